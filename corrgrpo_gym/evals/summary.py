"""What an evaluation came to, from its files."""

from collections import Counter
from collections.abc import Sequence, Set
from typing import Any

from .. import __version__
from .benchmark import Benchmark, Caveat
from .config import EvalConfig
from .metrics import Sample
from .records import EvalFolder

# Names in summary.json's lists.
MOST_NAMES = 1000


def summarise(folder: EvalFolder, benchmark: Benchmark, config: EvalConfig, ids: Sequence[str]) -> dict[str, Any]:
    """Read an evaluation's files and compute its figures: the same files give the same summary.

    Args:
        folder: the run.
        benchmark: for columns and caveats.
        config: for prices and the number of samples.
        ids: of the cases that take part, in order.

    Returns:
        Plain data, as in summary.json.
    """
    place = {name: i for i, name in enumerate(ids)}
    samples = _ordered(folder, place, config.n)
    finishes, notes, tokens = Counter[str](), Counter[str](), Counter[str]()
    cut = 0
    failed: list[dict[str, Any]] = []
    for record in folder.latest():
        if record["case"] not in place or record["sample"] >= config.n:
            continue
        for reply in record["replies"]:
            finishes[reply["finish"]] += 1
            notes.update(set(reply["notes"]))
            tokens.update({k: v for k, v in reply["usage"].items() if v})
        cut += any(reply["finish"] == "length" for reply in record["replies"])
        if record["failure"]:
            failed.append({"case": record["case"], "sample": record["sample"], **record["failure"]})
    failed.sort(key=lambda f: (place[f["case"]], f["sample"]))
    asked = len(ids) * config.n
    unscored = [
        {"case": key[0], "sample": key[1], "text": record["not_scored"]}
        | ({"error": record["error"]} if "error" in record else {})
        for key, record in folder.unscored.items()
        if key[0] in place and key[1] < config.n
    ]
    unscored.sort(key=lambda u: (place[u["case"]], u["sample"]))
    answered = sum(case in place and sample < config.n for case, sample in folder.replied) - len(failed)
    columns = []
    for column in benchmark.columns:
        estimate = column.estimate(samples)
        columns.append(
            {
                "name": column.name,
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "count": estimate.count,
                "percent": column.percent,
                "meaning": column.meaning,
            }
        )
    wrong = not_passed(benchmark, samples)
    return {
        "benchmark": benchmark.name,
        "note": benchmark.note,
        "model": folder.facts()["model"],
        "version": __version__,
        "cases": len(ids),
        "samples_per_case": config.n,
        "samples": asked,
        "answered": answered,
        "scored": len(samples),
        "not_scored": answered - len(samples),
        "not_scored_samples": unscored[:MOST_NAMES],
        "scorer_errors": sum("error" in u for u in unscored),
        "partial": len(samples) < asked,
        "cut": cut,
        "columns": columns,
        "failed": dict(sorted(Counter(f["kind"] for f in failed).items())),
        "failed_samples": failed[:MOST_NAMES],
        "not_passed": None if wrong is None else {"count": len(wrong), "cases": wrong[:MOST_NAMES]},
        "finishes": dict(sorted(finishes.items())),
        "tokens": {k: tokens[k] for k in ("prompt", "completion", "reasoning") if tokens[k]},
        "cost": cost(config, tokens["prompt"], tokens["completion"]),
        "notes": dict(sorted(notes.items())),
        "caveats": [*_caveats(benchmark, set(ids)), *benchmark.remarks(samples)],
    }


def _caveats(benchmark: Benchmark, ids: Set[str]) -> list[str]:
    """Those that are about the cases that took part."""
    lines = (c.among(ids) if isinstance(c, Caveat) else c for c in benchmark.caveats)
    return [line for line in lines if line is not None]


def _ordered(folder: EvalFolder, place: dict[str, int], n: int) -> list[Sample]:
    """Scored samples in the order of cases: figures do not depend on who answered first."""
    keys = [key for key in folder.samples if key[0] in place and key[1] < n]
    return [folder.samples[key] for key in sorted(keys, key=lambda key: (place[key[0]], key[1]))]


def not_passed(benchmark: Benchmark, samples: Sequence[Sample]) -> list[str] | None:
    """Cases with a sample that is not right, in order; None where the benchmark grades."""
    metric = benchmark.passing or getattr(benchmark.columns[0].estimate, "metric", "-")
    if metric == "-":
        return None
    wrong = (s.case for s in samples if (v := s.values.get(metric)) is not None and v < 1)
    return list(dict.fromkeys(wrong))


def cost(config: EvalConfig, prompt: int, completion: int) -> float | None:
    """What the tokens cost; None without prices."""
    if config.price_in is None and config.price_out is None:
        return None
    return (prompt * (config.price_in or 0.0) + completion * (config.price_out or 0.0)) / 1e6
