"""The wheel holds the package, all of it, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


def test_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    inside = {n for n in names if not n.split("/")[0].endswith(".dist-info")}
    assert {n.split("/")[0] for n in inside} == {"corrgrpo_gym"}
    here = {
        str(p.relative_to(ROOT))
        for p in (ROOT / "corrgrpo_gym").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert inside == here
    assert "corrgrpo_gym/py.typed" in inside
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)


def test_it_works_where_it_is_installed(wheel, tmp_path):
    """Away from the source tree: the command, the environment, and a verdict by the jail's own files."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    script = """
import corrgrpo_gym, pathlib
assert pathlib.Path(corrgrpo_gym.__file__).is_relative_to(pathlib.Path("site").resolve()), corrgrpo_gym.__file__
from corrgrpo_gym import envs
env = envs.make("leetcode", data="embedded")
env.reset(options={"task": 0})
answer = "```python\\n" + env.tasks[0].completion + "\\n```"
reward = env.step(answer)[1]
env.close()
print(dict(zip(env.reward_names, reward.tolist()))["accuracy"])
"""
    environment = {"PYTHONPATH": "site", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "1.0", done.stdout + done.stderr
