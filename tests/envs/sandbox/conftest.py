import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob, Sandbox, Verdict, make_sandbox
from corrgrpo_gym.envs.sandbox.backends import ATTACKS

from . import other_user
from .engine import running

Judge = Callable[..., Verdict]

PRELUDE = """
import collections, math
from typing import *
from collections import *

class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next

class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val = val
        self.left = left
        self.right = right

def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head

def is_same_list(p, q):
    if p is None or q is None:
        return p is q
    return p.val == q.val and is_same_list(p.next, q.next)

def tree_node(values):
    nodes = [None if v is None else TreeNode(v) for v in values]
    children = nodes[1:]
    for node in nodes:
        if node is not None:
            node.left = children.pop(0) if children else None
            node.right = children.pop(0) if children else None
    return nodes[0] if nodes else None

def is_same_tree(p, q):
    if p is None or q is None:
        return p is q
    return p.val == q.val and is_same_tree(p.left, q.left) and is_same_tree(p.right, q.right)
"""


# Confinement and forgery are tried on all back ends; what the judge makes of values, on a jail and on none.
ALL = ("docker", "bubblewrap", "bubblewrap-user", "subprocess")
FEW = ("bubblewrap", "subprocess")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sandbox" in metafunc.fixturenames:
        everywhere = getattr(metafunc.module, "EVERYWHERE", False)
        metafunc.parametrize("sandbox", ALL if everywhere else FEW, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    with running() as client:
        yield client


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "bubblewrap-user" and os.geteuid() == 0:
        with other_user.sandbox() as made:
            yield made
        return
    if request.param == "bubblewrap-user":
        pytest.skip("not root: 'bubblewrap' already is that of a user without rights")
    if request.param == "docker":
        request.getfixturevalue("engine")
    if request.param == "subprocess":
        with pytest.warns(UserWarning, match="DOES NOT ISOLATE"):
            made = make_sandbox("subprocess", workers=1)
    else:
        made = make_sandbox(request.param, workers=1)
    with made:
        yield made


@pytest.fixture
def against(sandbox: Any) -> Callable[[str], None]:
    """Skip where the back end declares that it does not stop this class of attack."""

    def declared(attack: str) -> None:
        assert attack in ATTACKS
        for gap in sandbox.gaps:
            if gap.attack == attack:
                pytest.skip(f"declared: {gap.what}")

    return declared


@pytest.fixture(scope="session")
def judge(sandbox: Sandbox) -> Judge:
    """Judge ``code`` (put in a fence) against the body of ``check``; it enters at ``f`` or its method."""

    def run(code: str, check: str = "assert candidate(1) == 2", **options: Any) -> Verdict:
        body = "\n".join("    " + line for line in check.strip().splitlines())
        options.setdefault("entry_point", "Solution().f" if "class Solution" in code else "f")
        options.setdefault("prelude", PRELUDE)
        answer = options.pop("answer", f"```python\n{code}\n```")
        test = options.pop("test", f"def check(candidate):\n{body}\n")
        return sandbox.judge(CodeJob(name="a task", answer=answer, test=test, **options))

    return run
