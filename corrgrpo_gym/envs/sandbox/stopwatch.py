"""What a judge does to time programs: judge them, note their calls, repeat those.

Runs in the trusted judge process: standard library only.
"""

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import timing
from .line import Calls
from .repetitions import Repeatable, Untimed, playback, repeat

if TYPE_CHECKING:
    from .judge import Judge

_LONG_SECONDS = 1.0  # runs of this much together are precise enough


def measure(judge: "Judge", job: dict[str, Any]) -> dict[str, Any]:
    """Time an answer as it is when it is judged, and the harness's share of that; see `timing.Measured`.

    Raises:
        RowError: the row's own code is broken.
        JailLost: the jail ended.
    """
    calls: Calls = []
    verdict, program = judge.take(job, calls)
    if verdict["status"] != "passed" or program is None:
        return {"problem": f"{verdict['status']}: {verdict['detail']}"}
    requests = [request for request, _ in calls]
    ahead = judge.foresee(job)
    side = Repeatable(job, program, [answer for _, answer in calls], ahead)
    harness = playback(job, calls, ahead)
    own, shares = [verdict["cpu_seconds"]], list[float]()
    try:
        while len(shares) < job["measure"] and sum(own) < _LONG_SECONDS:
            shares.append(repeat(judge.jail, harness, requests, judge.watched, judged=True))
            own.append(repeat(judge.jail, side, requests, judge.watched, judged=True))
    except Untimed as reason:
        return {"problem": f"it {reason}"}
    share = statistics.median(shares) if shares else 0.0
    return {"seconds": statistics.median(own), "harness_seconds": share}


def compare(judge: "Judge", job: dict[str, Any]) -> dict[str, Any]:
    """Time an answer against the reference, on the calls that the test makes of the reference; see `timing.Timing`.

    Raises:
        RowError: the row's own code is broken.
        JailLost: the jail ended.
    """
    sides: dict[str, Repeatable] = {}
    judged: dict[str, float] = {}
    calls: Calls = []
    for side in ("candidate", "reference"):
        calls = []
        own = job if side == "candidate" else {**job, **job["reference"]}
        verdict, program = judge.take(own, calls)
        if verdict["status"] != "passed" or program is None:
            return {"problem": f"the {side} does not pass ({verdict['status']}: {verdict['detail']})"}
        sides[side] = Repeatable(own, program, [answer for _, answer in calls])
        judged[side] = verdict["cpu_seconds"]
    if len(sides["candidate"].answers) != len(calls):
        return {"problem": "the test's calls depend on what is answered"}
    sides["harness"] = playback(job, calls)
    requests = [request for request, _ in calls]

    def run(side: timing.Side) -> float:
        try:
            return repeat(judge.jail, sides[side], requests, judge.watched)
        except Untimed as reason:
            raise Untimed(f"the {side} {reason}") from None

    try:
        return asdict(timing.compare(run, job["spend"], (judged["candidate"], judged["reference"])))
    except Untimed as reason:
        return {"problem": str(reason)}
