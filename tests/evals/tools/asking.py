"""Scores of answers without a model."""

from corrgrpo_gym.evals.models.base import Reply


def reply(answer):
    return Reply(answer if isinstance(answer, dict) else {"role": "assistant", "content": answer})


def native(*calls):
    made = [
        {"id": f"c{i}", "type": "function", "function": {"name": n, "arguments": a}} for i, (n, a) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def values(benchmark, case, answer):
    return benchmark.score(case, [reply(answer)]).values


def table(benchmark, answer_of):
    """Columns by name, in percent, where every case gets answer_of(case)."""
    from corrgrpo_gym.evals.runner import sample_of_case

    samples = [sample_of_case(c, benchmark.score(c, [reply(answer_of(c))])) for c in benchmark.cases]
    out = {}
    for column in benchmark.columns:
        value = column.estimate(samples).value
        out[column.name] = None if value is None else round(100 * value, 2)
    return out


def shuffled(benchmark):
    """Every case gets the gold answer of the next one."""
    cases = list(benchmark.cases)
    following = {c.id: n.reference for c, n in zip(cases, cases[1:] + cases[:1], strict=True)}
    return lambda case: following[case.id]
