import ast
import difflib

from hypothesis import example, given, settings
from hypothesis import strategies as st

from corrgrpo_gym.envs.leetcode.ast_shape import shape_of, similarity

SHAPES = st.lists(st.sampled_from(["Name", "Load", "Add", ")"]), max_size=40).map(tuple)


def by_difflib(a, b):
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()


def by_hand(code):
    """The definition, recursively."""

    def walk(node):
        inner = [name for child in ast.iter_child_nodes(node) for name in walk(child)]
        return [type(node).__name__, *inner, ")"]

    return tuple(walk(ast.parse(code)))


CODE = "class A:\n    def f(self, *, x: int = 1):\n"
CODE += "        return [y ** 2 for y in (x, self) if y < 3 or not y]\n"


def test_shape_is_the_preorder_with_closing_marks():
    assert shape_of("x = 1") == (*("Module", "Assign", "Name", "Store", ")", ")", "Constant", ")", ")", ")"),)
    assert shape_of(CODE) == by_hand(CODE)


def test_names_and_values_do_not_matter():
    assert shape_of("a = b + 1") == shape_of("total = value + 97")
    assert shape_of("a = b + 1") != shape_of("a = b - 1")


def test_no_shape():
    assert shape_of("def f(:") is None
    assert shape_of("x\0") is None
    assert shape_of("[" + "0," * 4999 + "]") is None  # Module, Expr, List, Load and 4,999 constants
    assert len(shape_of("[" + "0," * 4996 + "]")) == 10_000


@given(SHAPES, SHAPES)
@example((")", "Name"), ("Name", ")"))
@example(tuple("ab"), tuple("abab"))
@example((), ("Name",))
@settings(max_examples=400, deadline=None)
def test_similarity_is_difflibs_ratio(a, b):
    assert similarity(a, b) == by_difflib(a, b)


def test_similarity_of_programs_is_difflibs_ratio_in_this_order():
    one, other = shape_of(CODE), shape_of(CODE.replace("x: int = 1", "x, z").replace("y ** 2", "f(y)[0]"))
    assert similarity(one, other) == by_difflib(one, other) < 1.0
    a, b = tuple("bcccac"), tuple("bbacbc")
    assert similarity(a, b) == by_difflib(a, b)
    assert similarity(b, a) == by_difflib(b, a) != similarity(a, b)
