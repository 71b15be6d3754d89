"""Time the vectorised estimators against a per-group loop of the same formula, in the same run.

Run `python benchmarks/bench_advantages.py`. n = 8 rollouts, K = 7 components, one thread, best of several
repeats. The loops are written as one would write them for one group. Where G is over `LOOP_GROUPS` the loop
runs over that many groups and its time is scaled up; the table says so.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from corrgrpo_gym.corrgrpo import advantages

N, K = 8, 7
WEIGHTS = torch.tensor([0.05, 0.05, 0.05, 0.25, 0.60, 0.20, 0.30], dtype=torch.float64)
LOOP_GROUPS = 4096


def grpo_loop(rewards: Tensor) -> Tensor:
    rows = []
    for group in rewards:
        total = (group * WEIGHTS).sum(-1)
        rows.append((total - total.mean()) / (total.std() + 1e-6))
    return torch.stack(rows)


def corrgrpo_loop(rewards: Tensor) -> Tensor:
    rows = []
    for group in rewards:
        components = group * WEIGHTS
        total = components.sum(-1)
        live = components[:, components.amax(0) != components.amin(0)]
        if live.shape[1] == 0:
            rows.append(torch.zeros_like(total))
            continue
        s = live.T.corrcoef().sum() if live.shape[1] > 1 else torch.ones((), dtype=total.dtype)
        rows.append((total - total.mean()) / torch.sqrt(s.clamp(min=0.1) + 1e-6))
    return torch.stack(rows)


def gdpo_loop(rewards: Tensor) -> Tensor:
    rows = []
    for group in rewards:
        z = (group - group.mean(0)) / (group.std(0) + 1e-6)
        rows.append((z * WEIGHTS).sum(-1))
    total = torch.stack(rows)
    return (total - total.mean()) / (total.std() + 1e-4)


LOOPS: dict[str, Callable[[Tensor], Tensor]] = {
    "grpo": grpo_loop,
    "corrgrpo": corrgrpo_loop,
    "gdpo": gdpo_loop,
}


def rewards_of(groups: int) -> Tensor:
    """Stages that are reached or not, and three graded components, as a code environment gives them."""
    generator = torch.Generator().manual_seed(groups)
    rewards = torch.rand(groups, N, K, generator=generator, dtype=torch.float64)
    rewards[..., :4] = (rewards[..., :4] < 0.7).double().cumprod(-1)
    return rewards


def seconds(function: Callable[[], Tensor], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, nargs="+", default=[64, 256, 1024, 4096, 16384, 65536])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"n = {N}, K = {K}, float64, one thread, best of {options.repeats} (loop: best of 2)")
    print(f"{'estimator':10} {'G':>6} {'vectorised ms':>14} {'loop ms':>10} {'ratio':>7}")
    for name, loop in LOOPS.items():
        for groups in options.groups:
            rewards = rewards_of(groups)
            timed = rewards[:LOOP_GROUPS]
            torch.testing.assert_close(advantages(name, timed, weights=WEIGHTS), loop(timed), rtol=1e-9, atol=1e-9)

            fast = seconds(lambda r=rewards, e=name: advantages(e, r, weights=WEIGHTS), options.repeats)
            slow = seconds(lambda r=timed, f=loop: f(r), 2) * groups / len(timed)
            note = "" if groups == len(timed) else f"  (loop timed on {len(timed)} groups and scaled)"
            print(f"{name:10} {groups:6} {fast * 1e3:14.2f} {slow * 1e3:10.1f} {slow / fast:7.0f}{note}")


if __name__ == "__main__":
    main()
