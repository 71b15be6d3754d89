"""What a program cannot do to the machine, to the sandbox, and to the programs after it."""

# ruff: noqa: E501 - programs in texts

import os
import socket
import tempfile
from pathlib import Path

import pytest

EVERYWHERE = True  # see conftest
RIGHT = "def f(n):\n    return n + 1"


def outcome(judge, body, **options):
    """What ``body`` returns or raises in the jail, as text."""
    code = "import os, sys, signal, socket, ctypes, threading, time, subprocess, resource\ndef f():\n"
    code += "".join(f"    {line}\n" for line in body.splitlines())
    verdict = judge(
        code,
        "assert False, candidate()",
        test="def check(candidate):\n    raise ValueError(candidate())\n",
        **options,
    )
    return verdict.detail.removeprefix("in the test: ValueError: ")


@pytest.mark.parametrize(
    "body",
    [
        "return os.fork()",
        "while True: os.fork()",
        "return subprocess.run(['/bin/true'])",
        "return os.posix_spawn(sys.executable, ['python'], {})",
        "return os.execv('/bin/true', ['true'])",
        "if os.system('true') != 0: raise OSError\nreturn 0",
        "from multiprocessing import Process\nProcess(target=print).start()",
    ],
)
def test_no_processes_so_no_fork_bombs_and_daemons(judge, body):
    text = outcome(judge, body)
    assert text.startswith(
        (
            "PermissionError",
            "OSError",
            "BlockingIOError",
            "ZeroDivisionError",
            "FileNotFoundError",
            "ImportError",
            "ModuleNotFoundError",
        )
    ), text
    assert judge(RIGHT).status == "passed"


def test_a_thread_bomb_is_bounded(judge, against):
    against("threads")
    body = (
        "threading.stack_size(65536)\nn = 0\ntry:\n    while n < 5000:\n        threading.Thread(target=time.sleep, args=(60,), "
        "daemon=True).start()\n        n += 1\nexcept RuntimeError:\n    pass\nreturn n"
    )
    assert 0 < int(outcome(judge, body, wall_seconds=20)) <= 64
    assert judge(RIGHT).status == "passed"


@pytest.mark.parametrize(
    "body",
    ["x = bytearray(1 << 33)", "x = []\nwhile True: x.append('x' * 10**7)", "return list(range(10**9))"],
)
def test_memory_is_limited(judge, body):
    assert "MemoryError" in outcome(judge, body, memory_bytes=200 << 20)


def test_memory_within_the_limit_is_there(judge):
    assert outcome(judge, "return len(bytearray(900 << 20))") == str(900 << 20)


def test_memory_limits_cannot_be_lifted(judge):
    body = "resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)\nreturn len(bytearray(2 << 30))"
    assert outcome(judge, body, memory_bytes=300 << 20).startswith(("ValueError", "PermissionError"))


def test_endless_loops_end_whatever_signals_are_ignored(judge):
    body = (
        "for s in range(1, 65):\n    try:\n        signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\n"
        "while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass"
    )
    assert "CPU time" in outcome(judge, body, cpu_seconds=0.3)
    assert "wall clock" in outcome(judge, body.replace("True: pass", "True: time.sleep(1)"), wall_seconds=0.5)


def test_threads_share_the_limit_of_cpu_time(judge):
    body = "def burn():\n    while True: pass\nfor _ in range(3): threading.Thread(target=burn).start()\ntime.sleep(60)"
    assert "CPU time" in outcome(judge, body, cpu_seconds=0.3)


def test_output_goes_nowhere(judge, capfd):
    body = "for _ in range(50):\n    print('x' * 10**6)\n    print('y' * 10**6, file=sys.stderr)\n    os.write(1, b'z' * 10**6)\nreturn 7"
    assert outcome(judge, body) == "7"
    assert capfd.readouterr() == ("", "")


def test_input_is_empty(judge):
    assert outcome(judge, "return sys.stdin.read()") == ""
    assert "EOFError" in outcome(judge, "return input()")


@pytest.mark.parametrize("where", ["/tmp/x", "/x", "/dev/x", "/dev/shm/x", "/harness/x", "/root/x", "x", "/var/tmp/x"])
def test_nothing_can_be_written(judge, where):
    assert outcome(judge, f"open({where!r}, 'w').write('x')").startswith(
        ("PermissionError", "FileNotFoundError", "OSError")
    )


@pytest.mark.parametrize(
    "call",
    [
        "os.mkdir('/tmp/d')", "os.truncate(__import__('json').__file__, 0)", "os.unlink(__import__('json').__file__)",
        "os.chmod('/', 0o777)", "os.symlink('/', '/tmp/l')", "os.memfd_create('m')", "os.mkfifo('/tmp/f')", "os.chroot('/')",
        "os.sched_setaffinity(0, [0])", "os.nice(-5)", "os.setuid(0)", "os.unshare(0x10000000)", "os.pidfd_open(1)",
        "os.setpriority(os.PRIO_PROCESS, 1, 19)", "os.kill(1, 9)", "os.kill(-1, 9)", "os.kill(os.getppid(), 9)", "os.killpg(0, 9)",
        "signal.pidfd_send_signal(1, 9)", "resource.prlimit(1, resource.RLIMIT_AS, (0, 0))", "os.setns(0)", "os.sendfile(1, 0, 0, 1)",
    ],
)  # fmt: skip
def test_calls_that_reach_outside_fail(judge, call):
    text = outcome(judge, f"{call}\nreturn 'done'")
    assert text.startswith(
        ("OSError", "PermissionError", "AttributeError", "FileNotFoundError", "ProcessLookupError")
    ), text
    assert judge(RIGHT).status == "passed"


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("ptrace", 101), ("process_vm_readv", 310), ("process_vm_writev", 311), ("add_key", 248), ("keyctl", 250),
        ("io_uring_setup", 425), ("bpf", 321), ("userfaultfd", 323), ("mount", 165), ("unshare", 272), ("clone3", 435),
        ("perf_event_open", 298), ("shmget", 29), ("mq_open", 240), ("socket", 41), ("socketpair", 53), ("sendmsg", 46),
        ("rt_sigqueueinfo", 129), ("tgkill", 234), ("tkill", 200), ("open_by_handle_at", 304), ("memfd_create", 319),
        ("openat2", 437), ("fork", 57), ("vfork", 58), ("execveat", 322), ("sched_setscheduler", 144), ("setsid", 112), ("seccomp", 317),
    ],
)  # fmt: skip
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
def test_system_calls_that_do_not_exist(judge, call, number):
    body = f"libc = ctypes.CDLL(None, use_errno=True)\nr = libc.syscall({number}, 0, 0, 0, 0, 0, 0)\nreturn r, ctypes.get_errno()"
    assert outcome(judge, body) == "(-1, 38)", call


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
def test_numbers_of_another_abi_do_not_exist_either(judge):
    body = "libc = ctypes.CDLL(None, use_errno=True)\nr = libc.syscall(0x40000000 + 39)\nreturn r, ctypes.get_errno()"
    assert outcome(judge, body) in ("(-1, 38)", "the process was ended by SIGSYS")


def test_there_is_no_network(judge):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert "OSError" in outcome(judge, f"socket.create_connection(('127.0.0.1', {port}), 1)\nreturn 1")
    assert "OSError" in outcome(judge, "socket.socketpair()\nreturn 1")


def test_host_files_are_invisible(judge, against):
    against("files")
    with tempfile.NamedTemporaryFile("w", suffix="secret") as file:
        file.write("secret")
        file.flush()
        os.chmod(file.name, 0o644)
        for path in (file.name, "/etc/passwd", "/etc/shadow", str(Path(__file__)), "/etc/ld.so.preload", "/home"):
            assert outcome(judge, f"return open({path!r}).read()").startswith("FileNotFoundError")
    assert {"null", "urandom"} <= set(eval(outcome(judge, "return os.listdir('/dev')"))) <= PSEUDO_DEVICES


PSEUDO_DEVICES = {
    *("null", "urandom", "zero", "full", "random", "tty", "stdin", "stdout", "stderr", "fd"),
    *("pts", "ptmx", "mqueue", "shm", "core", "console"),
}


def test_the_kernels_figures_are_invisible(judge, against):
    against("kernel")
    for path in ("/proc/meminfo", "/proc/cpuinfo", "/proc/version", "/proc/uptime", "/proc/kallsyms", "/etc/hosts"):
        text = outcome(judge, f"return open({path!r}).read()")
        assert text == "" or text.startswith("FileNotFoundError")
    assert outcome(judge, "return os.path.isdir('/sys') and os.listdir('/sys')") in ("False", "[]")


def test_nothing_tells_of_the_jail(judge, against):
    against("jail")
    for path in ("/proc/self/maps", "/proc/mounts", "/proc/self/cgroup", "/proc/1/environ"):
        assert outcome(judge, f"return open({path!r}).read()").startswith("FileNotFoundError")
    assert outcome(judge, "return sorted(os.listdir('/dev'))") == "['null', 'urandom']"


def test_the_harness_processes_cannot_be_looked_into(judge, against):
    """Nor those of the machine, whose ids mean nothing in there."""
    against("host")
    body = (
        "seen = []\nfor pid in [p for p in range(1, 70) if p != os.getpid()]:\n"
        "    for name in ('mem', 'maps', 'environ', 'fd', 'cwd', 'root'):\n"
        "        try:\n            os.listdir(f'/proc/{pid}/{name}') if name in ('fd', 'cwd', 'root') else "
        "open(f'/proc/{pid}/{name}', 'rb').read(1)\n            seen.append((pid, name))\n"
        "        except OSError:\n            pass\nreturn seen"
    )
    assert outcome(judge, body) == "[]"
    body = f"return os.path.exists('/proc/{os.getpid()}') and open('/proc/{os.getpid()}/cmdline').read()"
    assert "pytest" not in outcome(judge, body)


def test_installed_packages_are_invisible_but_for_the_admitted(judge):
    for name in ("numpy", "pytest", "torch", "pip"):
        assert "ModuleNotFoundError" in outcome(judge, f"import {name}")
    assert outcome(judge, "from sortedcontainers import SortedList\nreturn list(SortedList([2, 1]))") == "[1, 2]"


def test_the_environment_is_cleared(judge, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    assert outcome(judge, "return sorted(os.environ)").startswith("['LC_ALL', ")
    assert "SECRET_TOKEN" not in outcome(judge, "return sorted(os.environ)")


def test_the_host_is_not_known(judge, against):
    against("host")
    name, user, parent = eval(outcome(judge, "return socket.gethostname(), os.getuid(), os.getppid()"))
    assert name == "sandbox"
    assert user not in (0, os.getuid())
    assert parent < 64  # in a process namespace


def test_programs_have_namespaces_of_their_own(judge, against):
    against("apart")
    assert outcome(judge, "return os.getpid(), os.getppid()") == "(1, 0)"


def test_only_the_channel_and_nothing_else_is_open(judge):
    body = "r = []\nfor fd in range(64):\n    try:\n        os.fstat(fd); r.append(fd)\n    except OSError:\n        pass\nreturn len(r)"
    assert outcome(judge, body) == "4"


def test_descriptors_are_limited(judge):
    assert outcome(judge, "r = []\nwhile True: r.append(os.open('/dev/null', 0))").startswith("OSError")


MARK = "a-text-that-only-one-answer-holds"


def test_nothing_passes_from_one_program_to_the_next(judge):
    plant = (
        "import sys, os, builtins, json, random\n"
        f"MARK = '{MARK}' * 100\nkeep = [MARK * 50]\n"
        "builtins.leak = sys.leak = os.environ['LEAK'] = json.leak = MARK\n"
        "sys.modules['leak'] = sys; sys.setrecursionlimit(77); sys.path.append(MARK); random.seed(1)\n"
        "builtins.sorted = None; list.__len__\n"
        "def f(n): return n + 1"
    )
    before = outcome(
        judge, "import random\nreturn random.random(), sys.getrecursionlimit(), len(sys.path), sorted([1])"
    )
    assert judge(plant).status == "passed"
    assert (
        outcome(
            judge,
            "import random\nreturn random.random(), sys.getrecursionlimit(), len(sys.path), sorted([1])",
        )
        == before
    )
    body = "import builtins, json\nreturn [hasattr(o, 'leak') for o in (builtins, sys, json)], 'LEAK' in os.environ, 'leak' in sys.modules"
    assert outcome(judge, body) == "([False, False, False], False, False)"


# Every page around every object; unmapped ones are told by the kernel, which refuses to write them to a pipe.
# The mark is looked for backwards, so that the program that looks does not find itself.
SCAN = """
import gc
libc = ctypes.CDLL(None)
libc.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
reader, writer = os.pipe()
near = {id(o) >> 20 for o in gc.get_objects(generation=None)} | {id(t) >> 20 for t in object.__subclasses__()}
pages = hits = 0
for span in sorted({n + d for n in near for d in (-2, -1, 0, 1, 2)}):
    for page in range(span << 20, (span + 1) << 20, 4096):
        if libc.write(writer, page, 4096) == 4096:
            pages += 1
            hits += os.read(reader, 4096)[::-1].count(MARK)
return hits, pages > 1000
"""


@pytest.mark.parametrize("planted", [False, True])
def test_memory_holds_nothing_of_earlier_answers_and_arguments(judge, planted):
    judge(f"def f(x):\n    return ['{MARK}' + str(i) for i in range(1000)]", f"candidate('{MARK}' * 100)")
    body = SCAN.replace("MARK", repr(MARK[::-1].encode()))
    if planted:  # it does find what is there
        body = f"keep = ['-'.join(({MARK[:6]!r}, {MARK[7:]!r})) + str(i) for i in range(1000)]\n" + body
    hits, enough = eval(outcome(judge, body))
    assert enough
    assert (hits > 500) if planted else (hits == 0)


def test_a_program_that_closes_or_floods_its_stream_gains_nothing(judge):
    for body in (
        "os.closerange(0, 64)\nreturn 2",
        "for fd in range(3, 32):\n    try:\n        os.write(fd, b'\\xff' * 100)\n    except OSError:\n        pass\nreturn 2",
        "for fd in range(3, 32):\n    try:\n        os.write(fd, (20).to_bytes(4, 'little'))\n    except OSError:\n        pass\nreturn 2",
        "for fd in range(3, 32):\n    try:\n        while True: os.write(fd, b'\\x00' * 65536)\n    except OSError:\n        pass\nreturn 2",
    ):
        code = "import os\ndef f(n):\n" + "".join(f"    {line}\n" for line in body.splitlines())
        assert judge(code, wall_seconds=2).status in ("runtime_error", "timeout")
    assert judge(RIGHT).status == "passed"
