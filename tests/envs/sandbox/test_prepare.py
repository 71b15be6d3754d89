"""Imports of preludes run before programs are forked: nothing of one program or prelude reaches another."""

import pytest

from corrgrpo_gym.envs.sandbox.jail.prepare import prepare

IMPORTS = "import math\nfrom operator import *\nfrom math import *\n"


def test_imports_at_the_beginning_are_done_at_once():
    module, rest = prepare(IMPORTS + "inf = float('inf')\nimport re\n")
    assert module.pi == module.math.pi and module.add(1, 2) == 3 and module.__name__ == "__main__"
    assert not hasattr(module, "re")
    exec(rest, vars(module))
    assert module.inf == float("inf") and module.re.match("a", "a")


@pytest.mark.parametrize(
    "prelude",
    [
        "import no_such_module",
        "from math import no_such_name",
        "from . import math",
        "'''A text.'''\nimport math",
        "import sys; sys.leak = 1\nimport math",
        "if True:\n    import math",
        "import math\nfrom __future__ import annotations",
        "from __future__ import annotations\nimport math",
        "",
    ],
)
def test_what_could_do_more_runs_with_each_program(prelude):
    if "import math\nfrom __future__" in prelude:
        with pytest.raises(SyntaxError):
            prepare(prelude)
        return
    module, _ = prepare(prelude)
    assert not hasattr(module, "math")


def test_lines_keep_their_numbers():
    module, rest = prepare("import math\n\ndef f(): pass\n")
    exec(rest, vars(module))
    assert module.f.__code__.co_firstlineno == 3


def test_names_mean_what_the_prelude_says_last(judge):
    code = "def f(n): return pow(2, 3), add"
    assert judge(code, "assert candidate(1) == (8.0, 1)", prelude=IMPORTS + "add = 1").status == "passed"


def test_a_program_finds_its_prelude_as_every_other_did(judge):
    """What one does to it, the next one with the same prelude does not see."""
    code = """
import __main__, builtins, math, sys
def f(n):
    seen = [hasattr(m, 'leak') for m in (__main__, builtins, math, sys)] + [pi == 3, 'leak' in globals()]
    for m in (__main__, builtins, math, sys): m.leak = 1
    __main__.pi = 3
    return seen
"""
    for _ in range(3):
        assert judge(code, "assert candidate(1) == [False] * 6", prelude=IMPORTS).status == "passed"


def test_a_prelude_does_not_reach_programs_with_another(judge):
    changed = "import sys, math\nsys.leak = math.leak = 1\nsys.setrecursionlimit(77)\n"
    code = (
        "import sys, math\ndef f(n): return hasattr(sys, 'leak'), hasattr(math, 'leak'), sys.getrecursionlimit() == 77"
    )
    assert judge(code, "assert candidate(1) == (True, True, True)", prelude=changed).status == "passed"
    assert judge(code, "assert candidate(1) == (False, False, False)", prelude=IMPORTS).status == "passed"
    assert judge(code, "assert candidate(1) == (False, False, False)", prelude="").status == "passed"
