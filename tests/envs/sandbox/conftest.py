from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob, Sandbox, Verdict, make_sandbox

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


@pytest.fixture(scope="session", params=["bubblewrap", "subprocess"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param == "subprocess":
        with pytest.warns(UserWarning, match="DOES NOT ISOLATE"):
            made = make_sandbox("subprocess", workers=1)
    else:
        made = make_sandbox(request.param, workers=1)
    with made:
        yield made


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
