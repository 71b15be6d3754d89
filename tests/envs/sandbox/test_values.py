"""Values on their way between the test and the program."""

# ruff: noqa: E501 - programs in texts

import marshal
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corrgrpo_gym.envs.sandbox import values, wire

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**300), max_value=2**300),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
)
keys = st.recursive(scalars, lambda k: st.tuples(k, k) | st.frozensets(k, max_size=3), max_leaves=4)
plain = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=8),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=4),
        st.frozensets(keys, max_size=4),
    ),
    max_leaves=20,
)
rich = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.builds(deque, st.lists(inner, max_size=4), st.none() | st.integers(0, 5)),
        st.builds(Counter, st.dictionaries(keys, st.integers(), max_size=3)),
        st.builds(OrderedDict, st.dictionaries(keys, inner, max_size=3)),
        st.builds(range, st.integers(), st.integers(), st.integers(1, 9)),
        st.fractions(),
        st.decimals(allow_nan=False),
    ),
    max_leaves=10,
)


def same(a, b):
    """Equal, of equal types, all the way down; -0.0 is not 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b and repr(a) == repr(b) if isinstance(a, (float, complex)) else a == b


@given(plain)
@settings(deadline=None)
def test_plain_values_survive_the_wire(value):
    assert same(wire.loads(wire.dumps(value)), value)


def test_the_reader_agrees_with_marshal_on_runs():
    for value in (
        [1, 2, 3, 4, 5],
        [1, 2, 3, 4, 2**40],
        [1, 2, 3, 4, None],
        [0.5] * 9,
        [0.5] * 5 + [1],
        [[1] * 6] * 6,
    ):
        assert same(wire.loads(wire.dumps(value)), value)


@given(st.binary(max_size=60))
@settings(max_examples=400, deadline=None)
def test_any_bytes_are_a_value_or_bad(data):
    try:
        value = wire.loads(data)
    except wire.BadBytes:
        return
    assert same(wire.loads(wire.dumps(value)), value) or value != value or isinstance(value, (list, tuple, dict, set))


@given(plain, st.data())
@settings(deadline=None)
def test_changed_bytes_are_a_value_or_bad(value, data):
    body = bytearray(wire.dumps(value))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    try:
        wire.loads(bytes(body))
    except wire.BadBytes:
        pass


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[\xff\xff\xff\x7f",
        b"(\xff\xff\xff\xff",
        b"i\x00",
        b"u\x05\x00\x00\x00ab",
        b"u\x01\x00\x00\x00\xff",
        b"l\xff\xff\xff\x7f",
        b"l\x00\x00\x00\x80",
        b"l\x01\x00\x00\x00\xff\xff",
        b"{[\x00\x00\x00\x00N0",
        b"{N",
        b"<\x01\x00\x00\x00[\x00\x00\x00\x00",
        b"NN",
        b"[\x01\x00\x00\x00" * 5000 + b"N",
        b"(\x01\x00\x00\x00" * 500_000 + b"N",
        b"{N" * 5000,
        b"r\x00\x00\x00\x00",
        b"S",
        marshal.dumps(compile("1", "", "eval"), 2),
    ],
)
def test_malformed_bytes_are_refused(body):
    with pytest.raises(wire.BadBytes):
        wire.loads(body)


def unpack(tree, objects=None):
    return values.Unpacker(values.ListNode, values.TreeNode, (objects or {}).__getitem__).unpack(tree)


def pack(value, handle=lambda value: None):
    return values.Packer(handle).pack(value)


@given(rich)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_rich_values_survive_packing(value):
    assert same(unpack(wire.loads(wire.dumps(pack(value)))), value)


def test_a_default_dictionary_keeps_its_items():
    back = unpack(pack(defaultdict(list, {1: [2]})))
    assert type(back) is defaultdict
    assert back == {1: [2]}


def test_instances_of_subclasses_become_plain():
    class Int(int):
        __eq__ = lambda self, other: True  # noqa: E731
        __hash__ = int.__hash__

    class Text(str):
        __str__ = lambda self: "other"  # noqa: E731

    class Float(float):
        __pos__ = lambda self: 7.0  # noqa: E731

    class List(list):
        __iter__ = lambda self: iter([9])  # noqa: E731
        __eq__ = lambda self, other: True  # noqa: E731

    class Dict(dict):
        items = lambda self: [(9, 9)]  # noqa: E731

    pair = type("Pair", (tuple,), {"__len__": lambda self: 0})
    for value, base in ((Int(3), 3), (Text("a"), "a"), (Float(-0.0), -0.0), (List([1]), [1]), (Dict({1: 2}), {1: 2}),
                        (pair((1, 2)), (1, 2)), (Decimal("1.50"), Decimal("1.50")), (Fraction(1, 3), Fraction(1, 3))):  # fmt: skip
        assert same(unpack(pack(value)), base)


def chain(values_):
    head = None
    for value in reversed(values_):
        head = values.ListNode(value, head)
    return head


def test_long_lists_and_deep_trees():
    head = unpack(pack(chain(list(range(50_000)))))
    seen = []
    while head:
        seen.append(head.val)
        head = head.next
    assert seen == list(range(50_000))
    root = values.TreeNode(0)
    for i in range(50_000):
        root = values.TreeNode(i, left=root) if i % 2 else values.TreeNode(i, right=root)
    back = unpack(pack(root))
    while root:
        assert (back.val, back.left is None, back.right is None) == (
            root.val,
            root.left is None,
            root.right is None,
        )
        root, back = root.left or root.right, back.left or back.right
    assert back is None


def test_a_list_that_loops():
    head = chain([1, 2, 3])
    head.next.next.next = head.next
    back = unpack(pack(head))
    assert back.next.next.next is back.next


def test_nodes_are_known_by_shape():
    node = SimpleNamespace(val=1, next=None)
    assert type(unpack(pack(node))) is values.ListNode
    leaf = SimpleNamespace(val=[1, (2,)], left=None, right=None)
    back = unpack(pack(leaf))
    assert (type(back), back.val, back.left) == (values.TreeNode, [1, (2,)], None)


def test_what_has_no_form_as_data_is_a_handle_or_refused():
    thing = object()
    assert unpack(pack([thing], lambda value: 5), {5: thing}) == [thing]
    with pytest.raises(values.Unsendable):
        pack([thing])
    shared = values.TreeNode(1)
    with pytest.raises(values.Unsendable):
        pack(values.TreeNode(0, shared, shared))
    loop: list = []
    loop.append(loop)
    with pytest.raises(values.Unsendable):
        pack(loop)


@given(plain)
@settings(deadline=None)
def test_hostile_trees_raise_errors_that_are_expected(tree):
    try:
        unpack(tree)
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError, AttributeError):
        pass


# Through the whole sandbox.


@pytest.mark.parametrize(
    "value",
    [
        "None", "True", "-1", "2**63", "-(2**200)", "1.5", "float('inf')", "-float('inf')", "'\\ud800\\udc00'", "b'\\x00'",
        "[]", "[1, [2.0, ('a',)]]", "(1,)", "()", "{1, 2}", "set()", "frozenset({1})", "{1: 'a', (1, 2): [None]}", "2 + 3j",
        "Counter('aab')", "OrderedDict([(2, 1), (1, 2)])", "deque([1, 2], 5)", "range(3)", "int", "[0.1] * 9", "[[]] * 3",
        "list(range(100_000))", "'x' * 1_000_000", "[None] * 50",
    ],
)  # fmt: skip
def test_values_go_there_and_back(judge, value):
    code = "def f(x):\n    return [x, type(x).__name__]"
    check = f"v = {value}\nr = candidate(v)\nassert type(r[0]) is type(v)\nassert r == [v, type(v).__name__]"
    assert judge(code, check).status == "passed"


def test_a_tuple_is_not_a_list(judge):
    assert judge("def f(): return [1]", "assert candidate() == (1,)").status == "failed"
    assert judge("def f(): return (1,)", "assert candidate() == [1]").status == "failed"
    assert judge("def f(): return {1: 2}", "assert candidate() == {'1': 2}").status == "failed"
    assert judge("def f(): return 1.0", "assert type(candidate()) is int").status == "failed"


@pytest.mark.parametrize(
    "own", ["", "class ListNode:\n    def __init__(self, x):\n        self.val = x; self.next = None\n"]
)
def test_linked_lists(judge, own):
    code = own + (
        "class Solution:\n"
        "    def f(self, head):\n"
        "        assert head is None or isinstance(head, ListNode)\n"
        "        last = None\n"
        "        while head:\n"
        "            head.next, last, head = last, head, head.next\n"
        "        return last\n"
    )
    check = (
        "assert is_same_list(candidate(list_node([1, 2, 3])), list_node([3, 2, 1]))\n"
        "assert is_same_list(candidate(None), None)\n"
        "assert is_same_list(candidate(list_node(list(range(3000)))), list_node(list(range(3000))[::-1]))\n"
    )
    assert judge(code, check).status == "passed"
    assert judge(code.replace("return last", "return last.next"), check).status in ("failed", "runtime_error")


@pytest.mark.parametrize("own", ["", "class TreeNode:\n    def __init__(self, val, left=None, right=None):\n        self.val, self.left, self.right = val, left, right\n"])  # fmt: skip
def test_trees(judge, own):
    code = own + (
        "class Solution:\n"
        "    def f(self, root: Optional[TreeNode]):\n"
        "        if root is None:\n"
        "            return None\n"
        "        return TreeNode(root.val + 1, self.f(root.right), self.f(root.left))\n"
    )
    check = (
        "assert is_same_tree(candidate(root = tree_node([1, 2, 3, None, 4])), tree_node([2, 4, 3, None, None, 5]))\n"
        "assert candidate(None) is None"
    )
    assert judge(code, check).status == "passed"
    assert judge(code.replace("+ 1", "+ 2"), check).status == "failed"


def test_a_list_of_nodes(judge):
    code = "def f(heads): return [h and h.next for h in heads]"
    check = "r = candidate([list_node([1, 2]), None])\nassert is_same_list(r[0], list_node([2])) and r[1] is None"
    assert judge(code, check).status == "passed"


def test_objects_of_the_candidates_own_are_handles(judge):
    code = (
        "class Node:\n    def __init__(self, data):\n        self.data = data; self.kids = []\n"
        "    def total(self, scale=1): return scale * (self.data + sum(k.data for k in self.kids))\n"
        "def f(what, node=None, kid=None):\n"
        "    if what == 'make': return Node\n"
        "    node.kids.append(kid)\n"
        "    return node\n"
    )
    check = (
        "Node = candidate('make')\n"
        "root = Node(1)\nassert root.data == 1\nroot.data = 5\nassert root.data == 5\n"
        "root = candidate('add', root, kid=Node(7))\nassert root.total() == 12\nassert root.total(scale=2) == 24\n"
        "assert len(root.kids) == 1 and root.kids != [] and bool(root)\n"
        "assert not (root == 5) and root in [root]\n"
    )
    assert judge(code, check).status == "passed"


@pytest.mark.parametrize(
    "value",
    [
        "(x for x in [1])",
        "lambda: 1",
        "object()",
        "iter([2])",
        "Loop",
        "'x' * (40 << 20)",
        "[0] * (10 << 20)",
        "Deep",
        "zip()",
    ],
)
def test_values_that_cannot_be_sent_are_just_wrong(judge, value):
    code = f"Loop = []\nLoop.append(Loop)\nDeep = []\nfor _ in range(10**5): Deep = [Deep]\ndef f(n): return {value}"
    assert judge(code).status == "failed"


@pytest.mark.parametrize("wrap", [set, frozenset, dict.fromkeys, Counter, OrderedDict.fromkeys], ids=str)
def test_keys_chosen_to_share_a_hash_are_refused(wrap):
    """They had other hashes where they come from; here a table of them would take quadratic time."""

    class Int(int):
        __hash__ = lambda self: id(self)  # noqa: E731

    def keys(count):
        return [Int(k * (2**61 - 1)) for k in range(count)]

    assert len(unpack(pack(wrap(keys(50))))) == 50
    with pytest.raises(ValueError, match="keys with one hash"):
        unpack(pack(wrap(keys(500))))


def test_many_honest_keys_pass():
    big = {(i, -i) for i in range(5000)} | {float(i) for i in range(5000)} | {str(i) for i in range(5000)}
    assert unpack(pack(big)) == big
