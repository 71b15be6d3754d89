"""`corrgrpo-gym doctor`: what it finds, says and returns."""

import pytest
from typer.testing import CliRunner

from corrgrpo_gym.cli import app
from corrgrpo_gym.envs.sandbox import Verdict, backends, doctor
from corrgrpo_gym.envs.sandbox.pool import Sandbox


def report(monkeypatch, columns=80):
    monkeypatch.setenv("COLUMNS", str(columns))
    result = CliRunner().invoke(app, ["doctor"])
    assert max(map(len, result.output.splitlines())) <= columns
    return result.exit_code, result.output


def test_all_back_ends_are_started_and_described(engine, monkeypatch):
    status, text = report(monkeypatch)
    assert status == 0
    for name in backends.NAMES:
        assert f"{name}: usable (" in text
    assert "can read every file that you can" in " ".join(text.split())
    assert "share this machine's kernel" in " ".join(text.split())


def test_status_1_where_the_default_is_not_usable(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    status, text = report(monkeypatch, 100)
    assert status == 1
    assert "bubblewrap: not usable" in text
    assert "docker: not usable" in text
    assert "subprocess: usable" in text
    text = " ".join(text.split())
    assert "apt-get install bubblewrap" in text
    assert "apt-get install docker.io" in text


def test_one_that_misjudges_is_not_usable(monkeypatch):
    monkeypatch.setattr(Sandbox, "judge", lambda self, job: Verdict("passed", detail="always"))
    finding = doctor.examine("bubblewrap")
    assert finding.problem == "it starts, but misjudges: passed (always)"
    assert doctor.describe(finding).startswith("bubblewrap: not usable")


def test_gaps_are_known_classes_of_attack_with_something_better(monkeypatch):
    finding = doctor.examine("subprocess")
    assert not finding.problem
    assert {"files", "host", "threads"} <= {gap.attack for gap in finding.gaps} <= set(backends.ATTACKS)
    for gap in finding.gaps:
        assert gap.what in " ".join(doctor.describe(finding).split())
        assert gap.better in " ".join(doctor.describe(finding).split())


def test_without_gaps_it_says_so():
    assert doctor.describe(doctor.Finding("bubblewrap", "")).endswith("No known gaps.")


@pytest.mark.parametrize("width", [40, 80])
def test_lines_keep_to_the_width(width):
    gap = backends.Gap("files", "words " * 30, "more words " * 30)
    text = doctor.describe(doctor.Finding("docker", "", (gap,)), width)
    assert max(map(len, text.splitlines())) <= width
