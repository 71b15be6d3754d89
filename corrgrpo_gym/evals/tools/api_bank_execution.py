"""What a call of API-Bank does to its databases and gives back: by that, two calls are told apart or not.

Written from the descriptions of the APIs and the recorded results. An outcome is what the call returns together with
what it changes; a call that fails (a token that nobody has, an entry that isn't there) has no outcome. APIs without a
database (weather, flights, mails, translation) act on their arguments alone: their outcome is the arguments, in which
case, white space and the way a number is written don't count.
"""

import ast
import copy
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...envs.tool_calls import Call
from .api_bank_text import plain

Tables = dict[str, Any]
_FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%m-%d")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
# Entries that belong to a user: the table, what finds one of them, and what is written into it.
_ENTRIES = {
    "Reminder": ("Reminder", ("content", "time"), ("content", "time")),
    "Agenda": ("Agenda", ("content", "time", "location"), ("content", "time", "location")),
    "Alarm": ("Alarm", ("time",), ("time",)),
    "Meeting": (
        "Meeting",
        ("meeting_topic", "start_time", "end_time", "location", "attendees"),
        ("meeting_topic", "start_time", "end_time", "location", "attendees"),
    ),
}
_VERBS = ("Add", "Delete", "Modify", "Query")
# What finds the entry that is modified: the rest is new.
_FOUND_BY = {"Reminder": ("content",), "Agenda": ("content",), "Meeting": ("meeting_topic",)}
# Look-ups: the table, and the arguments that lead to a value, one level each.
_LOOKUPS = {
    "QueryStock": ("Stock", ("stock_code", "date")),
    "QueryHistoryToday": ("History", ("date",)),
    "Wiki": ("Wiki", ("keyword",)),
    "SymptomSearch": ("Symptom", ("symptom",)),
    "EmergencyKnowledge": ("Symptom", ("symptom",)),
    "QueryScene": ("Scenes", ("name",)),
    "SpeechRecognition": ("SpeechRecognition", ("url",)),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call does.

    Attributes:
        name: the API.
        result: what it gives back.
        changes: the tables that it changes, as they are after it.
    """

    name: str
    result: Any
    changes: Tables


class _Tables:
    """Tables that are copied when they are first written to."""

    def __init__(self, tables: Tables):
        self._tables = tables
        self.changed: Tables = {}

    def __getitem__(self, name: str) -> Any:
        return self.changed.get(name, self._tables[name])

    def own(self, name: str) -> Any:
        """A table to write to."""
        if name not in self.changed:
            self.changed[name] = copy.deepcopy(self._tables[name])
        return self.changed[name]


class ApiBankTools:
    """The APIs over a set of databases.

    Args:
        tables: what the database files hold, by name.
        library: descriptions by API name, for the tool search.
    """

    def __init__(self, tables: Mapping[str, Any], library: Mapping[str, str]):
        self.tables: Tables = dict(tables)
        self._library = {name: _words(f"{name} {name} {about}") for name, about in library.items()}
        self._users = {str(row["token"]): name for name, row in tables.get("Account", {}).items() if "token" in row}

    def run(self, call: Call, tables: Tables) -> Outcome | None:
        """Execute a call; `tables` stay as they are.

        Returns:
            Its outcome, comparable; None where it has none: it would come back as an error.
        """
        arguments = {key: plain(value) for key, value in call.arguments.items()}
        mine = _Tables(tables)
        try:
            result = self._result(call.name, arguments, mine)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration, RecursionError):
            return None
        return Outcome(call.name, result, mine.changed)

    def _result(self, name: str, a: dict[str, Any], tables: _Tables) -> Any:
        kind = next(
            (k for k in _ENTRIES if name in {f"{verb}{k}" for verb in ("Add", "Delete", "Modify", "Query")}), None
        )
        if kind is not None and "token" in a:
            return self._entry(name.removesuffix(kind), kind, a, tables)
        if name in _LOOKUPS:
            table, path = _LOOKUPS[name]
            value: Any = tables[table]
            for key in path:
                value = _under(value, a[key])
            return value
        special = getattr(self, f"_{name}", None)
        if special is not None:
            return special(a, tables)
        return {key: _normal(value) for key, value in a.items()}

    def _user(self, a: Mapping[str, Any]) -> str:
        return self._users[str(a["token"]).strip()]

    def _entry(self, verb: str, kind: str, a: dict[str, Any], tables: _Tables) -> Any:
        table, found_by, written = _ENTRIES[kind]
        user = self._user(a)
        rows = tables[table] if verb == "Query" else tables.own(table)
        if verb == "Add":
            rows[f"new of {user}"] = {key: _normal(a[key]) for key in written}
            return "success"
        if verb == "Modify":
            if kind == "Alarm":
                key = _find(rows, user, {"time": a["from_time"]})
                rows[key]["time"] = _normal(a["to_time"])
            else:
                key = _find(rows, user, {f: a[f] for f in _FOUND_BY[kind]})
                rows[key].update({f: _normal(a[f]) for f in written if f in a})
            return "success"
        key = _find(rows, user, {f: a[f] for f in found_by})
        return copy.deepcopy(rows[key]) if verb == "Query" else _normal(rows.pop(key))

    # -- accounts and banks

    def _GetUserToken(self, a: dict[str, Any], tables: _Tables) -> Any:
        row = tables["Account"][a["username"]]
        if row["password"] != str(a["password"]):
            raise ValueError("wrong password")
        return row["token"]

    def _RegisterUser(self, a: dict[str, Any], tables: _Tables) -> Any:
        tables.own("Account")[f"new {a['username']}"] = {"password": str(a["password"]), "email": _normal(a["email"])}
        return "success"

    def _DeleteAccount(self, a: dict[str, Any], tables: _Tables) -> Any:
        return _normal(tables.own("Account").pop(self._user(a)))

    def _ModifyPassword(self, a: dict[str, Any], tables: _Tables) -> Any:
        row = tables.own("Account")[self._user(a)]
        if row["password"] != str(a["old_password"]):
            raise ValueError("wrong password")
        row["password"] = str(a["new_password"])
        return "success"

    def _OpenBankAccount(self, a: dict[str, Any], tables: _Tables) -> Any:
        tables.own("Bank")[f"new {a['account']}"] = {"password": str(a["password"]), "name": _normal(a["name"])}
        return "success"

    def _QueryBalance(self, a: dict[str, Any], tables: _Tables) -> Any:
        return tables["Bank"][self._user(a)]["balance"]

    # -- health and home

    def _AppointmentRegistration(self, a: dict[str, Any], tables: _Tables) -> Any:
        fields = ("patient_name", "date", "doctor_name")
        tables.own("Appointments")["new"] = {key: _normal(a[key]) for key in fields}
        return "success"

    def _ModifyRegistration(self, a: dict[str, Any], tables: _Tables) -> Any:
        row = tables.own("Appointments")[str(a["appointment_id"])]
        for key in ("date", "doctor_name"):
            new = a.get("new_appointment_" + key.removesuffix("_name"))
            if new is not None:
                row[key] = _normal(new)
        return "success"

    def _CancelRegistration(self, a: dict[str, Any], tables: _Tables) -> Any:
        return _normal(tables.own("Appointments").pop(str(a["appointment_id"])))

    def _QueryRegistration(self, a: dict[str, Any], tables: _Tables) -> Any:
        wanted = {key: _normal(a[key]) for key in ("patient_name", "date")}
        found = {k: r for k, r in tables["Appointments"].items() if all(_normal(r[f]) == v for f, v in wanted.items())}
        if not found:
            raise KeyError("no such registration")
        return found

    def _QueryHealthData(self, a: dict[str, Any], tables: _Tables) -> Any:
        rows = _under(tables["HealthData"], a["user_id"])
        start, end = (_moment(a[key]) for key in ("start_time", "end_time"))
        return [row for row in rows if start <= _moment(row["time"]) <= end]

    def _RecordHealthData(self, a: dict[str, Any], tables: _Tables) -> Any:
        key = f"new {_normal(a['user_id'])}"
        tables.own("HealthData")[key] = [_normal(a["time"]), _normal(a["health_data"])]
        return "success"

    def _DeleteScene(self, a: dict[str, Any], tables: _Tables) -> Any:
        wanted = _normal(a["name"])
        return _normal(tables.own("Scenes").pop(next(k for k in tables["Scenes"] if _normal(k) == wanted)))

    # -- the rest

    def _ImageCaption(self, a: dict[str, Any], tables: _Tables) -> Any:
        return next(row["caption"] for row in tables["ImageCaptioning"] if row["url"] == a["url"].strip())

    def _DocumentQA(self, a: dict[str, Any], tables: _Tables) -> Any:
        rows = _under(tables["QuestionAnswering"], a["url"])
        wanted = _normal(a["question"])
        answers = [row["answer"] for row in rows if _normal(row["question"]) == wanted]
        return answers[0] if answers else [_normal(a["url"]), sorted(set(_words(a["question"])))]

    def _GetToday(self, a: dict[str, Any], tables: _Tables) -> Any:
        return "today"

    def _Calculator(self, a: dict[str, Any], tables: _Tables) -> Any:
        return round(_computed(str(a["formula"])), 9)

    def _ToolSearcher(self, a: dict[str, Any], tables: _Tables) -> Any:
        """The API whose name and description share most words with the keywords; the name counts twice."""
        wanted = set(_words(str(a["keywords"])))
        if not wanted:
            raise ValueError("no keywords")
        scores = {name: sum(words.count(word) for word in wanted) for name, words in self._library.items()}
        best = max(scores.values(), default=0)
        return sorted(name for name, score in scores.items() if score == best) if best else sorted(wanted)


def _find(rows: Mapping[str, Any], user: str, fields: Mapping[str, Any]) -> str:
    """The key of a user's entry with these values."""
    wanted = {key: _normal(value) for key, value in fields.items()}
    for key, row in rows.items():
        if row.get("username") == user and all(_normal(row.get(f)) == v for f, v in wanted.items()):
            return key
    raise KeyError(f"no entry with {dict(fields)!r}")


def _under(table: Any, key: Any) -> Any:
    """What stands under a key, in whatever case and format of the date."""
    wanted = _normal(key)
    for name, value in table.items():
        if _normal(name) == wanted:
            return value
    raise KeyError(str(key))


def _normal(value: Any) -> Any:
    """A value in which case, white space and the way a number or a date is written don't count."""
    if isinstance(value, dict):
        return {_normal(k): _normal(v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0])) if k != "username"}
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    text = " ".join(str(value).split()).casefold()
    for form in _FORMATS:
        try:
            return datetime.strptime(text, form).isoformat()
        except ValueError:
            continue
    try:
        return float(text) if len(text) < 40 else text
    except ValueError:
        return text


def _moment(value: Any) -> datetime:
    for form in _FORMATS:
        try:
            return datetime.strptime(str(value).strip(), form)
        except ValueError:
            continue
    raise ValueError(f"{value!r} is no time")


def _words(text: str) -> list[str]:
    return [word.lower().removesuffix("s") for word in _WORD.findall(text)]


def _computed(formula: str) -> float:
    if len(formula) > 500 or not re.fullmatch(r"[\d\s.+\-*/()]*", formula) or "**" in formula or "//" in formula:
        raise ValueError("not a formula")

    def value(node: ast.AST) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.operand))
        raise ValueError("not a formula")

    try:
        return value(ast.parse(formula.strip(), mode="eval").body)
    except (SyntaxError, MemoryError) as error:
        raise ValueError(str(error)) from None
