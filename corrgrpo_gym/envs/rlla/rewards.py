"""The four rewards of a tool-call answer (ToolRL, arXiv 2504.13958, as the CorrGRPO paper splits them).

1. format in {0, 1}: the answer has exactly the parts that the label has (call, response, both or neither), in that
   order, each tag once, nothing after; white space may stand between parts; the JSON of <tool_call> stands on lines of
   its own. Where the chat template has opened <think> already, the answer begins inside it.
2. function_name in [-0.5, 0.5]: multiset Jaccard of the names.
3. parameter_name in [-1, 1]: mean over the label's calls of the Jaccard of the parameters' names with the matched call.
4. parameter_value in [-1.5, 1.5]: share of the label's parameters, over all calls, that are equal in the matched call.

Each share x in [0, 1] is mapped linearly to its range. A label's call is matched with the best unused call of its name
(names, then values; greedy, in the label's order). An answer whose calls don't parse gives the three minima; a label
without calls gives 0 for all three. Values are equal as JSON values: 1 is 1.0, but neither "1" nor true.

Departures from the reference code, which `strict=True` undoes:

- there, a label whose calls have no parameters gives the full value reward whatever was called; here what has nothing
  to match is full only for calls that were matched;
- there, only the first <tool_call> block is read, and each of its lines must be one JSON object; here all blocks are
  read, object by object, wherever line ends fall (`format` asks for the lines all the same);
- there, thinking is not set apart: a <tool_call> inside it is the first block.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..chat import Message
from ..tool_calls import Call, parse
from ..tool_calls.call import NotACall, call_of
from ..tool_calls.json_reader import BadJson, whole

REWARD_NAMES = ("format", "function_name", "parameter_name", "parameter_value")
RANGES = {"function_name": (-0.5, 0.5), "parameter_name": (-1.0, 1.0), "parameter_value": (-1.5, 1.5)}

_TAGS = ("think", "tool_call", "response")
_FORM = re.compile(
    r"\s*+(?:<think>)?+(?P<think>.*?)</think>\s*+"
    r"(?:<tool_call>[ \t]*+\n(?P<tool_call>.*?)\n[ \t]*+</tool_call>\s*+)?+"
    r"(?:<response>(?P<response>.*?)</response>\s*+)?+",
    re.DOTALL,
)


class Shares(NamedTuple):
    """What was matched, each in [0, 1]; None where the label has no calls."""

    function_name: float | None
    parameter_name: float | None
    parameter_value: float | None


def rewards(reply: Message, label: str, wanted: Sequence[Call], strict: bool = False) -> dict[str, float]:
    """Score an answer.

    Args:
        reply: assistant message: text in the label's dialect, or native calls.
        label: the label's text.
        wanted: its calls.
        strict: as the reference code does.

    Returns:
        The four components by name.
    """
    shares = matched(reply, wanted, strict)
    scores = {"format": float(well_formed(reply, label))}
    for name, (low, high) in RANGES.items():
        share = getattr(shares, name)
        scores[name] = 0.0 if share is None else low + (high - low) * share
    return scores


def matched(reply: Message, wanted: Sequence[Call], strict: bool = False) -> Shares:
    """How much of the label's calls an answer has."""
    if not wanted:
        return Shares(None, None, None)
    calls = (_first_block(reply) if strict else _calls(reply)) or []
    if not calls:
        return Shares(0.0, 0.0, 0.0)
    said, right = Counter(c.name for c in calls), Counter(c.name for c in wanted)
    function = (said & right).total() / (said | right).total()
    unused = list(calls)
    names: list[float] = []
    equal = parameters = 0
    for call in wanted:
        best = max((c for c in unused if c.name == call.name), key=lambda c: _likeness(call, c), default=None)
        parameters += len(call.arguments)
        if best is None:
            # The reference code's Jaccard of nothing with nothing counts for matched calls alone.
            names.append(0.0)
            continue
        # By identity: {"a": true} and {"a": 1} are equal for Python.
        unused = [c for c in unused if c is not best]
        names.append(_jaccard(call, best))
        equal += _equal_values(call, best)
    found = len(wanted) - sum((right - said).values())
    value = equal / parameters if parameters else (1.0 if strict else found / len(wanted))
    return Shares(function, sum(names) / len(names), value)


def well_formed(reply: Message, label: str) -> bool:
    """Whether an answer has the label's parts, in order, each tag once, and nothing else."""
    if reply.get("tool_calls"):  # native calls have no text to be judged by its form
        return "<tool_call>" in label
    text = reply.get("content") or ""
    for tag in _TAGS:
        wanted = 1 if tag == "think" else int(f"<{tag}>" in label)
        opened = text.count(f"<{tag}>")
        if text.count(f"</{tag}>") != wanted or opened != wanted and (tag != "think" or opened):
            return False
    form = _FORM.fullmatch(text)
    return form is not None and all((form[tag] is not None) == (f"<{tag}>" in label) for tag in _TAGS[1:])


def _calls(reply: Message) -> list[Call] | None:
    """The calls of all blocks; None where something in them can't be read."""
    parsed = parse(reply, "tags")
    return None if parsed.errors else list(parsed.calls)


def _first_block(reply: Message) -> list[Call] | None:
    text = reply.get("content") or ""
    _, opened, rest = text.partition("<tool_call>")
    if not opened:
        return None
    try:
        return [call_of(whole(line)) for line in rest.partition("</tool_call>")[0].strip().split("\n")]
    except (BadJson, NotACall):
        return None


def _likeness(wanted: Call, said: Call) -> float:
    values = _equal_values(wanted, said) / len(wanted.arguments) if wanted.arguments else 1.0
    return _jaccard(wanted, said) + values


def _jaccard(wanted: Call, said: Call) -> float:
    either = wanted.arguments.keys() | said.arguments.keys()
    return len(wanted.arguments.keys() & said.arguments.keys()) / len(either) if either else 1.0


def _equal_values(wanted: Call, said: Call) -> int:
    return sum(k in said.arguments and same(v, said.arguments[k]) for k, v in wanted.arguments.items())


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
