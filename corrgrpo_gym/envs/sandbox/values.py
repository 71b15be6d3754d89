"""Values that are more than plain data, as plain trees: nodes, counters, deques, a candidate's own objects.

`pack` turns a value into a tree in which every tuple is ``(kind, ...)`` and everything else is a scalar or a
list of such trees; `unpack` is its inverse, with the classes of the receiving side. What has no form as data
travels as a handle: a number under which the candidate's process keeps the object.

Instances of subclasses become their plain base: what is compared in the end is data, whatever ``__eq__`` a
class had.

Runs in the trusted judge and inside the jail: standard library only.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 200
MAX_ITEMS = 2_000_000

_TYPES: dict[str, type] = {
    t.__name__: t for t in (int, str, float, bool, list, tuple, dict, set, frozenset, bytes, complex, object)
}
# Keys of one set or dict that may share a hash.
MAX_EQUAL_HASHES = 100
_SCALARS = frozenset({type(None), bool, int, float, str, bytes, complex, type(...)})
_NO_NODE = ("-",)


class Unsendable(ValueError):
    """A value with no form as data, too deep, or too large."""


class ListNode:
    """A linked-list node, where the data's prelude defines none."""

    def __init__(self, val: Any = 0, next: Any = None):
        self.val = val
        self.next = next


class TreeNode:
    """A binary-tree node, where the data's prelude defines none."""

    def __init__(self, val: Any = 0, left: Any = None, right: Any = None):
        self.val = val
        self.left = left
        self.right = right


class Packer:
    """Packs one value.

    Args:
        handle: called with an object that has no form as data; returns its handle number, or None to
            refuse it.
    """

    def __init__(self, handle: Callable[[Any], int | None]):
        self._handle = handle
        self._left = MAX_ITEMS

    def pack(self, value: Any, depth: int = 0) -> Any:
        """Return the tree of ``value``.

        Raises:
            Unsendable: it is too deep or too large, or its handle was refused.
        """
        kind = type(value)
        if kind in _SCALARS:
            return value
        if depth > MAX_DEPTH:
            raise Unsendable("nested too deeply")
        if kind is list:
            return ("l", self._items(value, depth))
        for base, name in _CONTAINERS:
            if issubclass(kind, base):  # not isinstance, which asks the object
                return self._container(name, value, depth)
        for scalar in (int, float, str, bytes, complex):
            if issubclass(kind, scalar):
                return _plain(scalar, value)
        if issubclass(kind, type):
            name = type.__dict__["__name__"].__get__(value)
            if _TYPES.get(name) is value:
                return ("y", name)
        elif (nodes := self._nodes(value, depth)) is not None:
            return nodes
        return self._opaque(value)

    def _opaque(self, value: Any) -> Any:
        number = self._handle(value)
        if number is None:
            raise Unsendable(f"a value of type {type(value).__name__} has no form as data")
        return ("h", number)

    def _items(self, values: Any, depth: int) -> list[Any]:
        packed = []
        for value in values:
            self._left -= 1
            if self._left < 0:
                raise Unsendable("too many items")
            packed.append(value if type(value) in _SCALARS else self.pack(value, depth + 1))
        return packed

    def _container(self, name: str, value: Any, depth: int) -> Any:
        if name == "r":
            return ("r", value.start, value.stop, value.step)
        if name == "F":
            return ("F", value.numerator, value.denominator)
        if name == "M":
            return ("M", Decimal.__str__(value))
        if name == "q":
            return ("q", self._items(deque.__iter__(value), depth), value.maxlen)
        if name in "dCOD":
            flat = [part for pair in dict.items(value) for part in pair]
            return (name, self._items(flat, depth))
        base = {"l": list, "t": tuple, "s": set, "z": frozenset}[name]
        return (name, self._items(base.__iter__(value), depth))  # type: ignore[attr-defined]

    def _nodes(self, value: Any, depth: int) -> Any:
        """Nodes are known by shape, as a candidate may define its own classes."""
        if hasattr(value, "val"):
            if hasattr(value, "left") and hasattr(value, "right"):
                return self._tree(value, depth)
            if hasattr(value, "next"):
                return self._list(value, depth)
        return None

    def _list(self, node: Any, depth: int) -> Any:
        seen: dict[int, int] = {}
        kept: list[Any] = []
        values: list[Any] = []
        while node is not None and id(node) not in seen:
            if not (hasattr(node, "val") and hasattr(node, "next")):
                return self._opaque(kept[0])
            seen[id(node)] = len(seen)
            kept.append(node)  # holds it, so that no id is used twice
            values.append(node.val)
            node = node.next
            if len(seen) > MAX_ITEMS:
                raise Unsendable("too many items")
        return ("L", self._items(values, depth), -1 if node is None else seen[id(node)])

    def _tree(self, root: Any, depth: int) -> Any:
        seen: set[int] = set()
        kept: list[Any] = []
        packed: list[Any] = []
        stack: list[Any] = [root]
        while stack:
            node = stack.pop()
            if node is None:
                packed.append(_NO_NODE)
                continue
            if id(node) in seen or not all(hasattr(node, name) for name in ("val", "left", "right")):
                return self._opaque(root)
            seen.add(id(node))
            kept.append(node)
            packed += self._items([node.val], depth)
            stack += [node.right, node.left]
        return ("T", packed)


# Order matters: the special dictionaries are dictionaries.
_CONTAINERS: tuple[tuple[type, str], ...] = (
    (tuple, "t"),
    (Counter, "C"),
    (OrderedDict, "O"),
    (defaultdict, "D"),
    (dict, "d"),
    (set, "s"),
    (frozenset, "z"),
    (deque, "q"),
    (list, "l"),
    (range, "r"),
    (Fraction, "F"),
    (Decimal, "M"),
)


def _plain(base: Any, value: Any) -> Any:
    """The exact base value inside an instance of a subclass, whatever methods the subclass overrides."""
    if base is str:
        return str.__str__(value)
    if base is bytes:
        return bytes.__add__(value, b"")
    return base.__pos__(value)


class Unpacker:
    """Builds the values of packed trees.

    Args:
        list_node: makes a linked-list node from a value.
        tree_node: makes a tree node from a value.
        handle: returns what stands for a handle number on this side.
    """

    def __init__(self, list_node: Callable[[Any], Any], tree_node: Callable[[Any], Any], handle: Callable[[int], Any]):
        self._list_node = list_node
        self._tree_node = tree_node
        self._handle = handle

    def unpack(self, tree: Any, depth: int = 0) -> Any:
        """Return the value of ``tree``.

        Raises:
            ValueError: it is not a packed tree (also IndexError, TypeError, KeyError from hostile trees).
        """
        if type(tree) is not tuple:
            if type(tree) in _SCALARS:
                return tree
            raise ValueError("not a packed value")
        if depth > MAX_DEPTH + 1:
            raise ValueError("nested too deeply")
        kind = tree[0]
        if kind == "h":
            if type(tree[1]) is not int:
                raise ValueError("not a handle")
            return self._handle(tree[1])
        if kind == "y":
            return _TYPES[tree[1]]
        if kind == "r":
            return range(tree[1], tree[2], tree[3])
        if kind == "F":
            return Fraction(tree[1], tree[2])
        if kind == "M":
            return Decimal(tree[1])
        if type(tree[1]) is not list:
            raise ValueError("not a packed value")
        if kind == "T":
            return self._tree(tree[1], depth)
        items = [v if type(v) in _SCALARS else self.unpack(v, depth + 1) for v in tree[1]]
        if kind == "L":
            return self._list(items, tree[2])
        if kind == "q":
            return deque(items, tree[2])
        if kind in ("d", "C", "O", "D"):
            _check_hashes(items[::2])
            table = dict(zip(items[::2], items[1::2], strict=True))
            return {"d": dict, "C": Counter, "O": OrderedDict, "D": _default}[kind](table)  # type: ignore[operator]
        if kind in ("s", "z"):
            _check_hashes(items)
        return {"l": list, "t": tuple, "s": set, "z": frozenset}[kind](items)

    def _list(self, values: list[Any], loop: int) -> Any:
        nodes = [self._list_node(value) for value in values]
        for node, after in zip(nodes, nodes[1:], strict=False):
            node.next = after
        if loop >= 0:
            nodes[-1].next = nodes[loop]
        return nodes[0]

    def _tree(self, packed: list[Any], depth: int) -> Any:
        # Pre-order; a slot is a (parent, side) that waits for its child.
        root: Any = None
        slots: list[tuple[Any, str]] = [(None, "")]
        for item in packed:
            parent, side = slots.pop()
            node = None
            if item != _NO_NODE:
                node = self._tree_node(self.unpack(item, depth + 1))
                slots += [(node, "right"), (node, "left")]
            if parent is None:
                root = node
            else:
                setattr(parent, side, node)
        if slots:
            raise ValueError("a tree is cut off")
        return root


def _check_hashes(items: list[Any]) -> None:
    """Refuse keys that were chosen to share a hash: a table of them takes quadratic time, which no alarm ends.

    In the candidate's process they may have had hashes of their own, by a subclass. Honest keys hardly ever share one.
    """
    if len(items) > MAX_EQUAL_HASHES and max(Counter(map(hash, items)).values()) > MAX_EQUAL_HASHES:
        raise ValueError(f"over {MAX_EQUAL_HASHES} keys with one hash")


def _default(table: dict[Any, Any]) -> defaultdict[Any, Any]:
    return defaultdict(None, table)
