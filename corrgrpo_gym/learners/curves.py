"""Learning curves of one or several runs as a picture."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import GymError
from .config import load_toml, resolve
from .runfolder import read_records

# Colours that people with the common kinds of colour blindness can tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw(runs: Sequence[Path], out: Path) -> Path:
    """Draw each reward component by step: sampled answers of training (pale) and the held-out split (strong).

    Runs of one algorithm share a colour; where there are several, the strong line is their mean and the band
    reaches from the lowest to the highest.

    Args:
        runs: Run folders on one environment.
        out: Picture to write; the ending says the format (png, svg, pdf).

    Raises:
        GymError: No matplotlib, not a run folder, or runs without a common reward component.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise GymError("plots need matplotlib: pip install matplotlib") from e
    by_algo: dict[str, list[list[dict[str, Any]]]] = {}
    for path in runs:
        by_algo.setdefault(resolve(load_toml(path / "config.toml")).algo, []).append(
            read_records(path / "metrics.jsonl")
        )
    names = _components([m for group in by_algo.values() for m in group])
    columns = min(4, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(3.4 * columns, 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, name in zip(axes, names, strict=False):
        for colour, (algo, group) in zip(COLOURS * len(by_algo), by_algo.items(), strict=False):
            for metrics in group:
                axis.plot(*_smooth(_series(metrics, f"reward/{name}")), color=colour, alpha=0.3, linewidth=1)
            steps, lowest, mean, highest = _spread([_series(metrics, f"val/{name}") for metrics in group])
            label = algo if len(group) == 1 else f"{algo} ({len(group)} runs)"
            axis.plot(steps, mean, color=colour, linewidth=2, marker="o", markersize=3, label=label)
            axis.fill_between(steps, lowest, highest, color=colour, alpha=0.15, linewidth=0)
        low, high = axis.get_ylim()
        if high - low < 0.1:  # noise of a thousandth must not look like a mountain
            axis.set_ylim((low + high) / 2 - 0.05, (low + high) / 2 + 0.05)
        axis.set_title(name, fontsize=10)
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=8)
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9, frameon=False)
    figure.suptitle("Reward by step: held out (strong) and sampled in training (pale)", fontsize=11)
    try:
        figure.savefig(out, dpi=130)
    except (OSError, ValueError) as e:
        raise GymError(f"cannot write the picture {out}: {e}") from e
    return out


def _components(runs: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    found = [{k.removeprefix("reward/"): None for m in run for k in m if k.startswith("reward/")} for run in runs]
    common = [name for name in found[0] if all(name in other for other in found)]
    if not common:
        raise GymError("these runs have no training step in common with a reward component of one name")
    return common


def _series(metrics: Sequence[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    return [(m["step"], m[key]) for m in metrics if m.get(key) is not None]


def _smooth(points: Sequence[tuple[int, float]], width: int = 7) -> tuple[list[int], list[float]]:
    values = [v for _, v in points]
    means = [sum(w) / len(w) for i in range(len(values)) if (w := values[max(0, i - width + 1) : i + 1])]
    return [s for s, _ in points], means


def _spread(group: Sequence[Sequence[tuple[int, float]]]) -> tuple[list[int], list[float], list[float], list[float]]:
    by_step: dict[int, list[float]] = {}
    for points in group:
        for step, value in points:
            by_step.setdefault(step, []).append(value)
    steps = sorted(step for step, values in by_step.items() if len(values) == len(group))
    columns = [by_step[s] for s in steps]
    return steps, [min(c) for c in columns], [sum(c) / len(c) for c in columns], [max(c) for c in columns]
