"""The code extractor: from a model's raw answer to the program that it means, for all tasks answered by code.

This file is also executed inside the sandbox's jail (parsing hostile code can crash the process that does
it), so it imports the standard library only and nothing from the package.

What is taken, in this order:

1. the last closed fenced block that parses and defines the entry point, with the earlier blocks that it needs
   (those that define names which it uses and lacks; of an earlier draft only those definitions);
2. an unclosed fence that does so (an answer that was cut off, or whose stop token was the fence);
3. raw code outside of fences that does so;
4. where nothing parses, the last block that defines, or at least names, the entry point; else nothing.

Thoughts, ANSI codes, byte order marks and carriage returns are removed first. Work is linear in the length of
the text: scanning and parsing have budgets of a few times that length, then the simplest reading is taken.
"""

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

SCAN_FACTOR = PARSE_FACTOR = 8

_ANSI = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]|\x1b")
_THOUGHT = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_FENCE = re.compile(r"[ \t\xa0]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})(.*)")
_LATE_OPENER = re.compile(r"[^`]*(`{3,})[ \t]*(python3?|py)[ \t]*$", re.IGNORECASE)
_LATE_CLOSER = re.compile(r"([^`]*[^`\s])`{3,}[ \t]*$")
_TAG = re.compile(r"[\w+#.:/-]+$")
_QUOTE = re.compile(r"#|'''|\"\"\"|'|\"")
_ENDS = {quote: re.compile(r"\\.|" + quote) for quote in ("'", '"', "'''", '"""')}
_CODE = re.compile(r"(?:from|import|class|def|async|if|try|for|with)\b|@|[A-Za-z_][\w, ]*(?::[^=]*)?=(?!=)")
_CONTINUATION = re.compile(r"[)\]}]|(?:else|elif|except|finally)\b")
_ODD_SPACES = {0xA0: " ", 0x200B: None, 0x2060: None}
_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Extraction(NamedTuple):
    """What was found in an answer.

    Attributes:
        code: the program; "" where nothing was found.
        fenced: whether it stood in a fenced block that was opened and closed.
        parses: whether it is a Python program by its syntax.
    """

    code: str
    fenced: bool
    parses: bool


def extract_code(text: str, entry_point: str, *, parse: Callable[[str], Any] = ast.parse) -> Extraction:
    """Find the program that defines `entry_point` in a model's answer.

    Args:
        text: the raw answer: thoughts, prose, fences and all. Any text is fine.
        entry_point: "Solution().twoSum", or the bare name of a function.
        parse: from source to `ast.Module`; what it raises means that the source doesn't parse. It is handed
            `PARSE_FACTOR` times the text's length in all, at most.

    Raises:
        ValueError: entry_point has neither form.
    """
    return _Reading(text, _EntryPoint(entry_point), parse).extract()


class _EntryPoint:
    """What the tests call: `name`, a function's or a method's; `owner` is the method's class or None."""

    def __init__(self, entry_point: str) -> None:
        match = re.fullmatch(r"(?:([^\W\d]\w*)\(\)\.)?([^\W\d]\w*)", entry_point)
        if match is None:
            raise ValueError(f"entry point {entry_point!r} is neither 'Class().method' nor a function's name")
        self.owner, self.name = match.groups()
        self.outer = self.owner or self.name
        function = rf"(?:async[ \t]+)?def[ \t]+{self.name}\b|{self.name}[ \t]*[:=]"
        line = rf"class[ \t]+{self.owner}\b" if self.owner else function
        self.line = re.compile(rf"^([ \t\xa0]*)(?:{line})", re.MULTILINE)
        self.words = [re.compile(rf"\b{word}\b") for word in {self.outer, self.name}]

    def defined_in(self, tree: ast.Module, strictly: bool) -> bool:
        """Whether the module binds the entry point; where not strictly, its class alone is enough."""
        for node in _statements(tree.body):
            if self.outer not in _binds(node) or isinstance(node, ast.Import | ast.ImportFrom):
                continue
            if not (strictly and self.owner and isinstance(node, ast.ClassDef)):
                return True
            if node.bases or self.name in _bound_by(node.body):
                return True
        return False


class _Block:
    """A piece of the answer that may be code, and what its reading met."""

    def __init__(self, lines: list[str], closed: bool = False) -> None:
        self.text = self.code = "\n".join(_dedented(lines)).strip("\n")
        self.closed = closed
        self.tree: ast.Module | None = None
        self.tried = self.fences_in_strings = self.other_fences = False
        self.end, self.info = 0, ""


class _Reading:
    """One answer being read, with what is left of the two budgets."""

    def __init__(self, text: str, entry: _EntryPoint, parse: Callable[[str], Any]) -> None:
        text = _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", ""))
        text = _without_thoughts(text)
        self.entry, self.parse = entry, parse
        self.parse_budget = PARSE_FACTOR * len(text)
        self.scan_budget = SCAN_FACTOR * len(text)
        self.lines = text.split("\n")
        self.blocks: list[_Block] = []
        self.outside: list[list[str]] = [[]]
        self.pieces: list[list[_Block]] = []
        self.last_bare_fence: int | None = None

    def extract(self) -> Extraction:
        self._find_blocks()
        for closed in (True, False):
            pool = [block for block in self.blocks if block.closed == closed]
            for strictly in (True, False):
                if (found := self._last_that_defines(pool, self.blocks, strictly)) is not None:
                    return found
        broken = [b for b in self.blocks if self.entry.line.search(b.text)]
        if not broken and (found := self._raw()) is not None:
            return found
        broken = broken or [b for b in self.blocks if all(w.search(b.text) for w in self.entry.words)]
        # A block that parses but doesn't define the entry point only uses it.
        for block in reversed(broken):
            if self._tree(block) is None:
                return Extraction(block.text, block.closed, False)
        return self._broken_raw()

    def _find_blocks(self) -> None:
        """Split the lines into fenced blocks and what stands outside of them."""
        i, wrappers = 0, set()
        while i < len(self.lines):
            line = self.lines[i]
            mark, info = _fence(line, late=True) or ("", "")
            if mark and not info:
                self.last_bare_fence = i
            if mark and mark not in wrappers and info.lower() in ("markdown", "md"):
                # A whole document in a fence: what counts is inside.
                wrappers.add(mark)
            elif mark and mark not in wrappers and (block := self._read_block(i, mark)) is not None:
                block.info = info
                self.blocks.append(block)
                self.outside.append([])
                i = block.end
                continue
            else:
                self.outside[-1].append(line)
            i += 1

    def _read_block(self, start: int, mark: str) -> _Block | None:
        """Read the block whose fence `mark` is in line `start`; None if it is better taken for text."""
        block = self._scan(start + 1, mark, careful=True)
        if block.fences_in_strings and self.scan_budget > 0 and self._tree(block) is None:
            block = self._scan(start + 1, mark, careful=False)
        if not block.closed and block.other_fences and self.scan_budget > 0 and self._tree(block) is None:
            return None
        return block

    def _scan(self, start: int, mark: str, careful: bool) -> _Block:
        """Read lines up to the closing fence; carefully: past fences inside of triple-quoted strings."""
        lines: list[str] = []
        quote, in_strings, others, end = "", False, False, None
        for i in range(start, len(self.lines)):
            line = self.lines[i]
            self.scan_budget -= len(line) + 1
            if (fence := _fence(line)) is not None:
                if quote:
                    in_strings = True
                elif fence[0].startswith(mark):
                    # A language tag opens the next block: this one was never closed, or by its neighbour.
                    end = i if _is_tag(fence[1]) else i + 1
                    self.last_bare_fence = self.last_bare_fence if fence[1] else i
                    break
                else:
                    others = True
            elif not quote and mark in line and (late := _LATE_CLOSER.match(line)) is not None:
                if _string_at_end(late[1], "") == ("", False):
                    lines.append(late[1])
                    end = i + 1
                    break
            if careful:
                quote = _string_at_end(line, quote)[0]
            lines.append(line)
        block = _Block(lines, closed=end is not None)
        block.end = len(self.lines) if end is None else end
        block.fences_in_strings, block.other_fences = in_strings, others
        return block

    def _tree(self, block: _Block) -> ast.Module | None:
        """Parse a block, once: as it is, else with odd spaces replaced; None if it doesn't parse."""
        if not block.tried:
            block.tried = True
            block.tree = self._parsed(block.text)
            if block.tree is None and (code := block.text.translate(_ODD_SPACES)) != block.text:
                block.code, block.tree = code, self._parsed(code)
        return block.tree

    def _parsed(self, code: str) -> ast.Module | None:
        if len(code) >= self.parse_budget:
            return None
        self.parse_budget -= len(code) + 1
        try:
            return self.parse(code)
        except Exception:  # SyntaxError, ValueError (NUL, surrogates), RecursionError, MemoryError, ...
            return None

    def _last_that_defines(self, pool: list[_Block], all_: list[_Block], strictly: bool) -> Extraction | None:
        for block in reversed(pool):
            tree = self._tree(block) if self.entry.outer in block.text else None
            if tree is not None and self.entry.defined_in(tree, strictly):
                return Extraction(self._completed(block, all_[: all_.index(block)]), block.closed, True)
        return None

    def _completed(self, block: _Block, earlier: list[_Block]) -> str:
        """Return the block's code with what it needs from earlier ones in front."""
        assert block.tree is not None
        if not earlier:
            return block.code
        missing = _missing(block.tree)
        parts = [block.code]
        for other in reversed(earlier):
            if not missing:
                break
            if (tree := self._tree(other)) is None:
                continue
            bound = _bound_by(tree.body)
            if self.entry.outer in bound:
                parts += _definitions(other.code, tree, missing)
            elif "*" in bound or not bound.isdisjoint(missing):
                parts.append(other.code)
                missing -= bound
                missing |= _missing(tree)
        code = "\n".join(reversed(parts))
        return code if len(parts) == 1 or self._parsed(code) is not None else block.code

    def _raw(self) -> Extraction | None:
        """Find code that stands in no fence: all of the text, or what of it looks like code."""
        wholes = [self.lines]
        if self.last_bare_fence is not None:
            wholes.append(self.lines[: self.last_bare_fence])
        if len(self.outside) > 1:
            wholes += reversed(self.outside)
        for lines in wholes:
            block = _Block(lines)
            if (found := self._last_that_defines([block], [block], True)) is not None:
                return found
        self.pieces = [list(_pieces(lines, self.entry)) for lines in reversed(self.outside)]
        for strictly in (True, False):
            for pieces in self.pieces:
                if (found := self._last_that_defines(pieces, pieces, strictly)) is not None:
                    return found
        return None

    def _broken_raw(self) -> Extraction:
        for piece in (piece for pieces in self.pieces for piece in reversed(pieces)):
            # Prose may begin a line with the name ("class Solution is ..."); a definition has its colon.
            if self.entry.line.match(piece.text) and ":" in piece.text and self._tree(piece) is None:
                return Extraction(piece.text, False, False)
        return Extraction("", False, False)


def _pieces(lines: list[str], entry: _EntryPoint) -> Iterator[_Block]:
    """Yield what looks like top-level statements, and indented code below prose, in order."""
    piece: list[str] = []
    quote, is_code, tied = "", False, False
    for line in [*lines, None]:
        starts = line is None or (line[:1].strip() and not quote and not tied and not _CONTINUATION.match(line))
        if starts and is_code:
            yield _Block(piece)
        elif starts and (match := entry.line.search("\n".join(piece))) is not None:
            yield _Block([part for part in piece if part.startswith(match[1]) or not part.strip()])
        if line is not None:
            if starts:
                piece, is_code = [], _CODE.match(line) is not None
            piece.append(line)
            quote = _string_at_end(line, quote)[0] if is_code else ""
            tied = is_code and line.startswith("@")


def _fence(line: str, late: bool = False) -> tuple[str, str] | None:
    """Return a fence's mark and info string; late: also of a Python one that stands behind text."""
    if "```" not in line and "~~~" not in line:
        return None
    match = _FENCE.match(line)
    if match is None or (match[1][0] == "`" and "`" in match[2]):
        match = _LATE_OPENER.match(line) if late else None
    return (match[1], match[2].strip()) if match else None


def _is_tag(info: str) -> bool:
    """Whether an info string names a language (perhaps with attributes) and isn't prose behind a fence."""
    return bool(info) and (_TAG.match(info) is not None or "=" in info or info.startswith("{"))


def _string_at_end(line: str, quote: str) -> tuple[str, bool]:
    """From the triple quote open at a line's start ("": none) to the one at its end, and if in a comment."""
    at = 0
    while True:
        if quote:
            end = next((m.end() for m in _ENDS[quote].finditer(line, at) if m[0] == quote), None)
            if end is None:
                return (quote if len(quote) == 3 else ""), False
            at = end
        start = _QUOTE.search(line, at)
        if start is None or start[0] == "#":
            return "", start is not None
        at, quote = start.end(), start[0]


def _without_thoughts(text: str) -> str:
    """Remove thoughts; an opening tag alone makes one of all behind it, a closing tag alone of all before."""
    kept: list[str] = []
    at, thinking = 0, False
    for tag in _THOUGHT.finditer(text):
        if tag[1]:
            if not thinking:
                kept.clear()
            at, thinking = tag.end(), False
        elif not thinking:
            kept.append(text[at : tag.start()])
            thinking = True
    if not thinking:
        kept.append(text[at:])
    return "\n".join(kept)


def _dedented(lines: list[str]) -> list[str]:
    """Remove the whitespace that all lines but the blank ones begin with."""
    leads = [line[: len(line) - len(line.lstrip())] for line in lines if line.strip()]
    if not leads or not (shortest := min(leads, key=len)):
        return lines
    low, high = min(leads), max(leads)
    width = next((i for i in range(len(shortest)) if low[i] != high[i]), len(shortest))
    return [line[width:] for line in lines]


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run in one scope, in order: also those inside of if, try, with and loops."""
    stack = list(body)[::-1]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _DEFINITIONS):
            inner = [s for part in ("body", "orelse", "finalbody") for s in getattr(node, part, ())]
            inner += [s for part in ("handlers", "cases") for h in getattr(node, part, ()) for s in h.body]
            stack += inner[::-1]


def _binds(node: ast.stmt) -> set[str]:
    """Return the names that one statement, without those inside of it, binds; "*" for a star import."""
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    parts = (part for target in targets for part in ast.walk(target))
    return {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _bound_by(body: Iterable[ast.stmt]) -> set[str]:
    return {name for node in _statements(body) for name in _binds(node)}


def _missing(tree: ast.AST) -> set[str]:
    """Return the names that are read somewhere and bound nowhere, builtins aside."""
    read: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            read.add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name.partition(".")[0])
        elif not isinstance(node, ast.keyword):
            names = (getattr(node, part, None) for part in ("id", "arg", "name", "rest"))
            bound.update(name for name in names if isinstance(name, str))
    return read - bound - _BUILTINS


def _definitions(code: str, tree: ast.Module, missing: set[str]) -> list[str]:
    """Return the top-level statements that bind missing names, the last first; updates `missing`."""
    lines, taken = code.split("\n"), []
    for node in reversed(tree.body):
        bound = _binds(node)
        if not bound.isdisjoint(missing):
            start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            taken.append("\n".join(lines[start - 1 : node.end_lineno]))
            missing -= bound
            missing |= _missing(node)
    return taken
