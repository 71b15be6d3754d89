from pathlib import Path

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob, SandboxUnavailable, Verdict, make_sandbox

DATA = Path(__file__).parent / "data"


class ScriptedSandbox:
    """Gives each answer the verdict that a function says, and remembers the jobs."""

    def __init__(self, verdict):
        self.verdict = verdict
        self.jobs: list[CodeJob] = []
        self.closed = 0

    def judge(self, job: CodeJob) -> Verdict:
        self.jobs.append(job)
        return self.verdict(job)

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
