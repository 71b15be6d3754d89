"""The embedded data: tool-call tasks written for this package, in the dialect of RLLA.

A task lists two tools and asks for one call or for two. All that is asked for stands in the request; a right answer
copies it. What a warm start learns from is mostly incomplete: in `LEFT_OUT` of the calls the last parameter is missing,
and some answers have slips. So there is something to learn from the rewards that a few answers show how to do.

Nothing is read or downloaded; the rows depend on the seed alone. No request of a test task is in train; every value
and every tool is.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from ...errors import GymError, unknown

SPLITS = {"train": 800, "test": 120}
ANSWERS = 8
LEFT_OUT = 0.75
SLIPS = 0.15
TWO_CALLS = 0.25

_CITIES = ("Oslo", "Lima", "Cairo", "Paris", "Delhi", "Tokyo", "Quito", "Rome", "Accra", "Hanoi")
_PEOPLE = ("Ana", "Ben", "Chen", "Dara", "Emil", "Fay", "Goran", "Hana", "Ivo", "Juno")
_ROOMS = ("kitchen", "hall", "attic", "garage", "studio", "cellar")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ITEMS = ("lamp", "boat", "piano", "tent", "camera", "bicycle", "sofa", "drill")
_TOPICS = ("sports", "science", "music", "politics", "health", "travel")
_LANGUAGES = ("French", "Hindi", "Swahili", "Korean", "Polish", "Arabic")
_MONEY = ("euro", "yen", "peso", "rupee", "krona", "franc")
_DISHES = ("soup", "curry", "pizza", "salad", "noodles", "tacos")
_SMALL = tuple(range(2, 10))
_LARGE = tuple(range(15, 95, 5))


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: what asks for it, with each parameter's name in braces, and the values of the parameters in order."""

    name: str
    request: str
    values: dict[str, Sequence[Any]]


TOOLS = (
    Tool("get_weather", "how is the weather in {city} for {days} days", {"city": _CITIES, "days": _SMALL}),
    Tool("book_table", "book a table in {city} for {people} people", {"city": _CITIES, "people": _SMALL}),
    Tool("set_timer", "set a timer of {minutes} minutes for the {label}", {"minutes": _LARGE, "label": _DISHES}),
    Tool("call_person", "call {person} on {day}", {"person": _PEOPLE, "day": _DAYS}),
    Tool("convert_money", "change {amount} dollars to {currency}", {"amount": _LARGE, "currency": _MONEY}),
    Tool("play_music", "play songs of {artist} at volume {volume}", {"artist": _PEOPLE, "volume": _LARGE}),
    Tool("find_train", "find a train from {origin} to {target}", {"origin": _CITIES, "target": _CITIES}),
    Tool("add_event", "put the {title} on {day}", {"title": _ITEMS, "day": _DAYS}),
    Tool("get_news", "show me {count} news about {topic}", {"topic": _TOPICS, "count": _SMALL}),
    Tool("translate", "say {word} in {language}", {"word": _ITEMS, "language": _LANGUAGES}),
    Tool("order_food", "order {count} {dish} for dinner", {"dish": _DISHES, "count": _SMALL}),
    Tool("get_price", "what is the price of a {item} in {currency}", {"item": _ITEMS, "currency": _MONEY}),
    Tool("find_hotel", "find a hotel in {city} for {nights} nights", {"city": _CITIES, "nights": _SMALL}),
    Tool("set_lights", "turn the lights of the {room} to {level}", {"room": _ROOMS, "level": _LARGE}),
    Tool("send_gift", "send a {item} to {person}", {"item": _ITEMS, "person": _PEOPLE}),
    Tool("clean_room", "clean the {room} on {day}", {"room": _ROOMS, "day": _DAYS}),
)
_HEAD = "You may call tools.\n\n**Available Tools**\n"
_FORMAT = (
    "\n**Output Format**\n<think> thoughts </think>\n<tool_call>\n"
    '{"name": "Tool name", "parameters": {"Parameter name": "Parameter content"}}\n</tool_call>'
)


def embedded_rows(split: str, *, seed: int = 0) -> list[dict[str, Any]]:
    """Make the rows of one split.

    Args:
        split: "train" (800 tasks) or "test" (120).
        seed: of all choices.

    Returns:
        Rows with `index`, `instruction`, `input`, `output` and, for a warm start, `answers`.

    Raises:
        GymError: there is no such split.
    """
    if split not in SPLITS:
        raise GymError(unknown("split of the embedded tool-call tasks", split, SPLITS))
    rng = Random(f"rlla {seed}")
    made: dict[str, dict[str, Any]] = {}
    while len(made) < sum(SPLITS.values()):
        row = _row(rng)
        made.setdefault(row["input"], row)
    rows = list(made.values())
    # The test tasks are the first: a change of the number of training tasks leaves them as they are.
    chosen = rows[: SPLITS["test"]] if split == "test" else rows[SPLITS["test"] :]
    return [{"index": i, **row} for i, row in enumerate(chosen)]


def _row(rng: Random) -> dict[str, Any]:
    first, second = rng.sample(TOOLS, 2)
    wanted = [first, second] if rng.random() < TWO_CALLS else [first]
    calls = [_call(tool, rng) for tool in wanted]
    asked = " and ".join(tool.request.format(**values) for tool, (_, values) in zip(wanted, calls, strict=True))
    listed = [first, second]
    rng.shuffle(listed)
    tools = "".join(
        f"{n}. Name: {tool.name}\nParameters: {', '.join(tool.values)}\n" for n, tool in enumerate(listed, 1)
    )
    other = next(tool for tool in listed if tool is not first)
    return {
        "instruction": _HEAD + tools + _FORMAT,
        "input": f"**Dialogue Records History**\n<user> Please {asked}. </user>",
        "output": _answer(calls),
        "answers": [_imperfect(wanted, other, calls, rng) for _ in range(ANSWERS)],
    }


def _call(tool: Tool, rng: Random) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {}
    for name, pool in tool.values.items():
        values[name] = rng.choice([v for v in pool if v not in values.values()])
    return tool.name, values


def _answer(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    lines = "\n".join(json.dumps({"name": name, "parameters": values}) for name, values in calls)
    return f"<think> use {' and '.join(name for name, _ in calls)} </think>\n<tool_call>\n{lines}\n</tool_call>"


def _imperfect(wanted: Sequence[Tool], other: Tool, calls: Sequence[tuple[str, dict[str, Any]]], rng: Random) -> str:
    """An answer as a policy gives it that was not trained on rewards."""
    said = [(name, dict(values)) for name, values in calls]
    for _, values in said:
        if rng.random() < LEFT_OUT:
            values.popitem()
    if rng.random() >= SLIPS:
        return _answer(said)
    slip = rng.choice(("value", "function", "form", "response"))
    number = rng.randrange(len(said))
    name, values = said[number]
    if slip == "value":
        key = rng.choice(list(values))
        values[key] = rng.choice(wanted[number].values[key])
    elif slip == "function":
        said[number] = (other.name if len(said) == 1 else wanted[0].name, values)
    text = _answer(said)
    if slip == "form":
        return text.replace("</think>\n", "", 1)
    if slip == "response":
        return f"{text}\n<response> done </response>"
    return text
