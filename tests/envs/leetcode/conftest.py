from pathlib import Path

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob, Measured, SandboxUnavailable, Verdict, make_sandbox

DATA = Path(__file__).parent / "data"


class ScriptedSandbox:
    """Gives each answer the verdict that a function says, and remembers the jobs."""

    backend = "scripted"
    workers = 2

    def __init__(self, verdict, harness_seconds=0.0):
        self.verdict = verdict
        self.harness_seconds = harness_seconds
        self.measured: list[CodeJob] = []
        self.jobs: list[CodeJob] = []
        self.closed = 0

    def judge(self, job: CodeJob) -> Verdict:
        self.jobs.append(job)
        return self.verdict(job)

    def measure(self, job: CodeJob, runs: int) -> Measured:
        self.measured.append(job)
        verdict = self.verdict(job)
        if verdict.status != "passed":
            return Measured(problem=f"{verdict.status}: {verdict.detail}")
        return Measured(verdict.cpu_seconds, self.harness_seconds)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(scope="session")
def sandbox():
    try:
        made = make_sandbox("bubblewrap", workers=2)
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    with made:
        yield made


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """No test knows the times that another one kept."""
    monkeypatch.setenv("CORRGRPO_GYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
