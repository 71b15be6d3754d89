"""Calls written as Python: `[look(place="here"), clock.now()]`, by the syntax tree of a text that was vetted first."""

import ast
import math
import re
import warnings
from keyword import iskeyword
from typing import Any

from .call import Call, NotACall

MAX_LENGTH = 1 << 18
MAX_DEPTH = 40
_SHORT = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""
_LONG = r"""\'\'\'(?:[^\\]|\\.)*?\'\'\'|\"\"\"(?:[^\\]|\\.)*?\"\"\""""
# The only tokens that a call of literals is made of, and (below) what a token may follow. Python's parser builds a tree
# as deep as f()()(), x[0][0], 1-1-1 or lambda:lambda: are long; none of these passes the vetting, so that no tree is
# deeper than its brackets are.
_TOKEN = re.compile(
    rf"(?P<space>\s+)|(?P<string>[rRuU]?(?:{_LONG}|{_SHORT}))"
    r"|(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?j?|0[xXoObB][\da-fA-F]+)"
    r"|(?P<name>[^\W\d]\w*)|(?P<open>[\[({])|(?P<close>[\])}])|(?P<sign>[-+])|(?P<dot>\.)|(?P<other>[,:=])",
    re.DOTALL,
)
_LOOKS = re.compile(r"\[\s*[^\W\d][\w.]*\s*\(")
_ONE = re.compile(r"[^\W\d][\w.]*\(")
_CONSTANTS = {"true": True, "false": False, "null": None}
_BEGINNING = ("", "open", "other")  # a value may begin after these
_AFTER = {
    "string": (*_BEGINNING, "string"),
    "number": (*_BEGINNING, "sign"),
    "name": (*_BEGINNING, "sign", "dot"),
    "sign": _BEGINNING,
    "dot": ("name",),
}


def is_call(text: str) -> bool:
    """Whether a text is one call and nothing else; what only begins like one may be a sentence."""
    if not (text.endswith(")") and _ONE.match(text)):
        return False
    try:
        return len(calls_of(text)) == 1
    except NotACall:
        return False


def looks_like_calls(text: str) -> bool:
    """Whether a text begins as a list of calls does."""
    return _LOOKS.match(text) is not None


def calls_of(text: str) -> list[Call]:
    """Read `[f(a=1), g.h(b="x")]` or `f(a=1)`.

    Raises:
        NotACall: it is anything else; arguments must be literals, by name.
    """
    text = text.strip()
    _vet(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree: ast.expr = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotACall(f"not Python: {getattr(error, 'msg', None) or error}") from None
    items = tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]
    return [_call(item) for item in items]


def _vet(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise NotACall(f"longer than {MAX_LENGTH} characters")
    depth = dots = position = 0
    before = ""
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotACall(f"{text[position]!r} has no place in a call")
        kind, position = str(match.lastgroup), match.end()
        if kind == "space":
            continue
        depth += (kind == "open") - (kind == "close")
        dots = dots + 1 if kind == "dot" else dots if kind == "name" else 0
        if depth > MAX_DEPTH or dots > 8:
            raise NotACall("nested too deep")
        allowed = ("name", *_BEGINNING) if match[0] == "(" else _AFTER.get(kind, _BEGINNING)
        word = kind == "name" and iskeyword(match[0]) and match[0] not in ("True", "False", "None")
        if word or kind not in ("close", "other") and before not in allowed:
            two = before == kind == "sign"
            raise NotACall("two signs in a row" if two else f"{match[0][:20]!r} has no place there")
        before = kind


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise NotACall("not a call")
    if node.args:
        raise NotACall(f"{_name(node.func)[:40]} has an argument without a name")
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise NotACall(f"{_name(node.func)[:40]}: an argument is repeated or unpacked")
        arguments[keyword.arg] = _value(keyword.value)
    return Call(_name(node.func), arguments)


def _name(node: ast.expr) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise NotACall("what is called has no name")
    return ".".join([node.id, *reversed(parts)])


def _value(node: ast.expr) -> Any:
    """A literal; depth was vetted."""
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | bool | None):
        if isinstance(node.value, float) and not math.isfinite(node.value):
            raise NotACall("a number is too large")
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        if type(value) in (int, float):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [_value(key) if key is not None else () for key in node.keys]
        if all(isinstance(key, str) for key in keys):
            return dict(zip(keys, map(_value, node.values), strict=True))
    raise NotACall("an argument is not a plain value")
