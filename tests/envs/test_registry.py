import subprocess
import sys
import textwrap
import warnings

import pytest

from corrgrpo_gym import envs
from corrgrpo_gym.envs import MultiRewardEnv, SingleTurnEnv, list_envs, make, register, registry
from corrgrpo_gym.errors import GymError

MODULE = '''
"""A user's module."""
from corrgrpo_gym.envs import MultiRewardEnv, SingleTurnEnv


class Mine(MultiRewardEnv):
    """Says yes.

    And more.
    """

    reward_names = ("yes",)
    splits = ("train", "test")

    def __init__(self, limit=3, *, split="train", data=None, **kwargs):
        super().__init__([str(i) for i in range(limit)], split=split, data_note=str(data), **kwargs)

    def prompt(self, task):
        return [{"role": "user", "content": "yes?"}]

    def score(self, task, reply):
        return [float(reply["content"] == "yes")]


def yes(answer):
    return answer == "yes"


def factory():
    """Makes one."""
    return Mine(limit=2)


def needs(limit, split):
    return Mine(limit, split=split)


def returns_nothing(split="train"):
    return None


env = Mine(limit=4)
rows = SingleTurnEnv({"train": [{"prompt": "a"}], "test": [{"prompt": "b"}]}, [yes])
number = 3


class Nested:
    inner = Mine
'''


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """Registrations, plug-ins, modules, path and folder of a test end with it."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(registry, "_plugins", None)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", ".")])
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def module(tmp_path):
    (tmp_path / "users_module.py").write_text(MODULE)
    return "users_module"


class Local(MultiRewardEnv):
    """A local one."""

    reward_names = ("a",)

    def __init__(self, *, size=1, split="train"):
        super().__init__(["x"] * size, split=split)


class TestMakeByModule:
    def test_class(self, module):
        env = make(f"{module}:Mine", split="test", limit=5)
        assert (env.split, len(env.tasks), env.data_note) == ("test", 5, "None")
        assert make(f"{module}:Mine", data="here").data_note == "here"

    def test_options_of_base_classes_are_taken(self, module):
        assert make(f"{module}:Mine", reward_weights=[3]).reward_weights == (3.0,)

    def test_function(self, module):
        assert len(make(f"{module}:factory").tasks) == 2
        with pytest.raises(GymError, match="is an environment of split 'train', not 'test'"):
            make(f"{module}:factory", split="test")

    def test_environment(self, module):
        env = make(f"{module}:env")
        assert len(env.tasks) == 4
        assert env is not sys.modules[module].env
        with pytest.raises(GymError, match="takes no option 'limit'"):
            make(f"{module}:env", limit=3)
        with pytest.raises(GymError, match="takes no data"):
            make(f"{module}:env", data="x")

    def test_environment_with_splits(self, module):
        assert make(f"{module}:rows", split="test").reset(seed=0)[0][0]["content"] == "b"
        with pytest.raises(GymError, match="unknown split 'tset'. Did you mean 'test'"):
            make(f"{module}:rows", split="tset")

    def test_nested_attribute(self, module):
        assert len(make(f"{module}:Nested.inner").tasks) == 3

    def test_file(self, module, tmp_path, monkeypatch):
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "another_file.py").write_text(MODULE)
        assert len(make("folder/another_file.py:env").tasks) == 4
        with pytest.raises(GymError, match="there is no file absent.py"):
            make("absent.py:env")

    def test_package(self, tmp_path):
        (tmp_path / "users_package").mkdir()
        (tmp_path / "users_package" / "__init__.py").write_text("")
        (tmp_path / "users_package" / "sub.py").write_text(MODULE)
        assert len(make("users_package.sub:env").tasks) == 4
        with pytest.raises(GymError, match=r"no module 'users_package.sob'"):
            make("users_package.sob:env")

    @pytest.mark.parametrize(
        ("thing", "options", "message"),
        [
            ("Mine", {"limt": 3}, "unknown option 'limt'. Did you mean 'limit'"),
            ("factory", {"limit": 3}, "unknown option 'limit'"),
            ("factory", {"data": "x"}, "takes no data: it brings its own"),
            ("needs", {}, "needs the option 'limit'"),
            ("Mine", {"split": "tset"}, "unknown split 'tset'"),
            ("returns_nothing", {}, "made a NoneType, not a MultiRewardEnv"),
            ("number", {}, "is a int, not an environment"),
            ("Minee", {}, "module users_module: unknown name 'Minee'. Did you mean 'Mine'"),
            ("Nested.outer", {}, "unknown name 'outer'"),
        ],
    )
    def test_mistakes(self, module, thing, options, message):
        with pytest.raises(GymError, match=message):
            make(f"{module}:{thing}", **options)

    def test_no_such_module(self, module):
        with pytest.raises(GymError, match=r"no module 'users_modul' in .*Did you mean 'users_module'"):
            make("users_modul:env")
        for path in (":x", "x:", ":"):
            with pytest.raises(GymError, match="should be 'package.module:thing'"):
                make(path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "import absent_dependency",
                r"raised ModuleNotFoundError: No module named 'absent_dependency' at .*:1",
            ),
            (
                "\n\nx = 1 / 0",
                r"was found, but importing it raised ZeroDivisionError: division by zero at .*broken.py:3",
            ),
            ("def (", r"raised SyntaxError: .* at .*broken.py:1"),
            ("raise SystemExit(2)", r"raised SystemExit: 2 at .*broken.py:1"),
        ],
    )
    def test_modules_that_raise(self, tmp_path, text, message):
        (tmp_path / "broken.py").write_text(text)
        with pytest.raises(GymError, match=message):
            make("broken:env")

    def test_errors_of_the_users_own_code_are_left_alone(self, tmp_path):
        (tmp_path / "buggy.py").write_text("def make():\n    return {}['x']\n")
        with pytest.raises(KeyError):
            make("buggy:make")


class TestRegister:
    def test_class(self):
        register("local", Local, size=3)
        assert len(make("local").tasks) == 3
        assert len(make("local", size=4).tasks) == 4
        info = next(info for info in list_envs() if info.name == "local")
        assert info == envs.EnvInfo("local", "A local one.", ("a",), f"registered by {__name__}", None)

    def test_environment_and_function(self):
        register("an environment", Local(size=2))
        register("a function", lambda: Local(size=2), description="Two.")
        assert len(make("an environment").tasks) == len(make("a function").tasks) == 2
        infos = {info.name: info for info in list_envs()}
        assert infos["an environment"].reward_names == ("a",)
        assert infos["a function"].reward_names is None and infos["a function"].description == "Two."

    def test_string_is_imported_when_it_is_made(self, module, monkeypatch, tmp_path):
        register("lazy", f"{module}:Mine", reward_names=["yes"])
        assert module not in sys.modules
        assert next(info for info in list_envs() if info.name == "lazy").reward_names == ("yes",)
        assert module not in sys.modules
        monkeypatch.syspath_prepend(tmp_path)
        assert len(make("lazy", limit=1).tasks) == 1

    def test_again(self):
        register("local", Local)
        register("local", Local, size=2)
        assert len(make("local").tasks) == 2
        with pytest.raises(GymError, match="'local' is registered already .*replace=True"):
            register("local", lambda: Local())
        register("local", lambda: Local(size=5), replace=True)
        assert len(make("local").tasks) == 5

    @pytest.mark.parametrize(
        ("name", "entry", "message"),
        [
            ("", Local, "non-empty str without ':'"),
            ("a:b", Local, "non-empty str without ':'"),
            (3, Local, "non-empty str"),
            ("x", 3, "no class, function, environment"),
            ("x", "module", "should be 'package.module:thing'"),
        ],
    )
    def test_mistakes(self, name, entry, message):
        with pytest.raises(GymError, match=message):
            register(name, entry)

    def test_unknown_names_suggest_the_nearest(self):
        with pytest.raises(GymError, match="unknown environment 'letcode'. Did you mean 'leetcode'.*package.module"):
            make("letcode")
        with pytest.raises(GymError, match="takes an environment's name"):
            make(Local)

    def test_options_are_checked(self):
        register("local", Local)
        with pytest.raises(GymError, match="environment 'local': unknown option 'sice'. Did you mean 'size'"):
            make("local", sice=3)

    def test_entry_that_cannot_be_imported(self):
        register("gone", "gone_module:Env")
        with pytest.raises(
            GymError, match=r"environment 'gone' \(registered by gone_module\).*no module 'gone_module'"
        ):
            make("gone")


@pytest.fixture
def plugins(tmp_path, monkeypatch, module):
    """Installs a distribution with entry points, as pip would leave it."""

    def install(name, **points):
        info = tmp_path / f"{name}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        lines = "".join(f"{key} = {value}\n" for key, value in points.items())
        (info / "entry_points.txt").write_text("[corrgrpo_gym.envs]\n" + lines)

    monkeypatch.syspath_prepend(tmp_path)
    return install


class TestPlugins:
    def test_found(self, plugins, module):
        plugins("good_plugin", yes=f"{module}:Mine", four=f"{module}:env")
        assert len(make("yes", limit=1).tasks) == 1
        assert len(make("four").tasks) == 4
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            info = next(info for info in list_envs() if info.name == "yes")
        assert info == envs.EnvInfo("yes", "Says yes.", ("yes",), "plug-in good_plugin 1.2", None)

    def test_not_imported_before_it_is_needed(self, plugins, module):
        plugins("good_plugin", yes=f"{module}:Mine")
        register("local", Local)
        make("local")
        with pytest.raises(GymError, match="Did you mean 'yes'"):
            make("yess")
        assert module not in sys.modules

    def test_broken_ones_are_named_and_break_no_others(self, plugins, module, tmp_path):
        (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('not today')")
        plugins("bad_plugin", broken="broken_plugin:Env", absent="absent_plugin:Env", nothing=f"{module}:Nothing")
        plugins("good_plugin", yes=f"{module}:Mine")
        with pytest.warns(UserWarning) as caught:
            names = {info.name for info in list_envs()}
        assert {"yes", "leetcode"} <= names and not {"broken", "absent", "nothing"} & names
        told = sorted(str(w.message) for w in caught)
        assert len(told) == 3 and all("plug-in bad_plugin 1.2" in text for text in told)
        assert "'broken'" in told[1] and "RuntimeError: not today" in told[1]
        assert len(make("yes").tasks) == 3
        with pytest.raises(
            GymError, match=r"environment 'broken' \(plug-in bad_plugin 1.2\): .*RuntimeError: not today"
        ):
            make("broken")

    def test_a_taken_name_is_left_out(self, plugins, module):
        plugins("rude_plugin", leetcode=f"{module}:Mine")
        with pytest.warns(
            UserWarning, match=r"'leetcode' of plug-in rude_plugin 1.2 is left out: .* taken \(built in\)"
        ):
            infos = list_envs()
        assert [info.source for info in infos if info.name == "leetcode"] == ["built in"]


def test_list_begins_with_what_is_built_in():
    register("aaa", Local)
    infos = list_envs()
    assert infos[0].source == "built in" and infos[-1].name == "aaa"
    leetcode = next(info for info in infos if info.name == "leetcode")
    assert leetcode.reward_names[0] == "format" and len(leetcode.reward_names) == 7
    assert leetcode.gymnasium_id == "corrgrpo_gym/LeetCode-v0" and leetcode.description


def test_the_import_is_light():
    script = """
    import sys
    import corrgrpo_gym.envs as envs
    envs.list_envs()
    heavy = {"torch", "pandas", "pyarrow", "transformers", "asyncio", "corrgrpo_gym.envs.leetcode"}
    print(sorted(heavy & set(sys.modules)))
    """
    script = textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_single_turn_environments_are_registered_like_others():
    register("rows", SingleTurnEnv([{"prompt": "x"}], {"one": lambda answer: 1}))
    assert make("rows").reset(seed=0)[1]["task"] == 0
