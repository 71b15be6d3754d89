"""What back ends do not confine: what `corrgrpo-gym doctor` says, and what the conformance tests leave out."""

from dataclasses import dataclass

# Every class of attack, by the name that tests and gaps use.
ATTACKS = {
    "processes": "fork bombs, starting programs, daemons that outlive the job",
    "threads": "thread bombs",
    "memory": "taking memory beyond the limit",
    "cpu": "endless loops, ignoring signals, burning CPUs in threads",
    "output": "flooding output and the judge's stream",
    "writing": "filling disks, writing outside",
    "network": "network",
    "calls": "killing, tracing and changing other processes",
    "files": "reading the machine's files",
    "host": "seeing the machine's name, users, processes",
    "kernel": "seeing the machine's figures (memory, load, versions)",
    "jail": "seeing how the jail is made (mounts, groups)",
    "next job": "reading other jobs' data, leaving something to the next",
    "apart": "sharing namespaces with other programs of the worker",
    "group": "exhausting the machine from several processes of a jail at once",
}


@dataclass(frozen=True)
class Gap:
    """A class of attack that a back end does not stop here, or not by more than one means.

    Attributes:
        attack: one of `ATTACKS`.
        what: what that means.
        better: what to do about it.
    """

    attack: str
    what: str
    better: str


SHARED = Gap(
    "apart",
    "the programs of one worker run, one after the other, in the same namespaces (in processes of their own)",
    "'bubblewrap' has namespaces for each program",
)
PLAIN = (
    Gap(
        "files",
        "programs run as your user and can read every file that you can",
        "use 'bubblewrap' or 'docker'",
    ),
    Gap("host", "programs see the machine's name, users and processes", "use 'bubblewrap' or 'docker'"),
    Gap("kernel", "programs see the machine's figures in /proc and /sys", "use 'bubblewrap' or 'docker'"),
    Gap("jail", "programs see /proc of their own process", "use 'bubblewrap'"),
    Gap("threads", "threads are limited by memory alone", "use 'bubblewrap' or 'docker'"),
    Gap(
        "group", "no limit on memory, threads and CPUs of a worker as a whole", "use 'docker', or 'bubblewrap' as root"
    ),
    SHARED,
)
OWN = Gap(
    "jail",
    "programs see /proc of the container's processes: its mounts and groups, with their paths on this machine",
    "'bubblewrap' shows no /proc",
)


def ungrouped(why: str) -> Gap:
    """No control groups."""
    return Gap(
        "group",
        f"no limit on memory, threads and CPUs of a worker as a whole; each program has its own ({why})",
        "run as root, or in a scope of systemd's (systemd-run --user --scope ...), or use 'docker'",
    )


UNCOUNTED = Gap(
    "threads",
    "threads are limited by memory alone, as this kernel counts a user's threads over all namespaces",
    "a kernel from 5.14 on, run as root, or use 'docker'",
)
UNPARTED = Gap(
    SHARED.attack,
    SHARED.what,
    "let namespaces nest: see user.max_user_namespaces and kernel.unprivileged_userns_clone",
)
