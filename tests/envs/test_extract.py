import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_gym.envs import extract
from corrgrpo_gym.envs.extract import Extraction, extract_code

CASES = json.loads((Path(__file__).parent / "data" / "code_answers.json").read_text())
GOOD = "class Solution:\n    def f(self, n: int) -> int:\n        return n + 1\n"
DRAFT = "class Solution:\n    def f(self, n: int) -> int:\n        return n - 1\n"
STARTER = "class Solution:\n    def f(self, n: int) -> int:\n        \n"
FENCES_AT_MARGIN = '''class Solution:
    def f(self, n):
        """
```python
f(1)
```

```
2
```
"""
        return n + 1
'''
STRING_AT_MARGIN = '''class Solution:
    def f(self, n):
        s = """
prose
"""
        return n + 1
'''
NOTHING = Extraction("", False, False)


def fenced(code, tag="python", mark="```"):
    return f"{mark}{tag}\n{code}{mark}\n"


def run(text, entry="Solution().f"):
    """Extract, execute what came out (these are our own texts), and return f(1)."""
    found = extract_code(text, entry)
    assert found.parses, found
    scope = {"__name__": "answer"}
    exec(found.code, scope)
    return eval(f"{entry}(1)", scope), found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_shared_cases(case):
    if case["expect"] == "nothing":
        assert extract_code(case["text"], "Solution().f") == NOTHING
    else:
        assert case["expect"] == "Solution().f(1) == 2"
        assert run(case["text"])[0] == 2


FENCED = {
    "plain": fenced(GOOD),
    "no tag": fenced(GOOD, ""),
    "tag py": fenced(GOOD, "py"),
    "tag after a space": fenced(GOOD, " Python "),
    "tag with colon": fenced(GOOD, "python:solution.py"),
    "tag in braces": fenced(GOOD, "{.python .numberLines}"),
    "four backticks": fenced(GOOD, mark="````"),
    "five tildes": fenced(GOOD, mark="~~~~~"),
    "closing fence longer": "```python\n" + GOOD + "`````\n",
    "CRLF": fenced(GOOD).replace("\n", "\r\n"),
    "CR": fenced(GOOD).replace("\n", "\r"),
    "BOM before": "\ufeff" + fenced(GOOD),
    "BOM inside": "```python\n\ufeff" + GOOD + "```",
    "NBSP as indentation": fenced(GOOD.replace("    ", "\xa0\xa0\xa0\xa0")),
    "NBSP before the fence": "\xa0```python\n" + GOOD + "\xa0```\n",
    "zero width space": fenced(GOOD.replace("return", "\u200breturn")),
    "tabs": fenced(GOOD.replace("    ", "\t")),
    "all indented": "- do\n\n" + "".join("\t" + line + "\n" for line in fenced(GOOD).split("\n")),
    "list marker on the fence": "1. ```python\n   " + GOOD.replace("\n", "\n   ") + "```\n",
    "blank lines not indented": "   ```python\n   x = 1\n\n   " + GOOD.replace("\n", "\n   ") + "```\n",
    "ANSI colours": fenced("\x1b[1;34mclass\x1b[0m Solution:" + GOOD.removeprefix("class Solution:")),
    "ANSI link and lone escapes": "\x1b]8;;http://x\x07\x1b\x1b[K" + fenced(GOOD) + "\x1b[",
    "fence behind text": "The answer: ```python\n" + GOOD + "```\n",
    "fence behind code": "```python\n" + GOOD.rstrip("\n") + "```\nDone.",
    "text behind the fence": "```python\n" + GOOD + "```  That is all.\n\nIt takes `n`.\n",
    "thought before": "<think>" + fenced(DRAFT) + "</think>" + fenced(GOOD),
    "thought opened by the template": fenced(DRAFT) + "hm</think>\n\n" + fenced(GOOD),
    "nested thoughts": "<think>a<think>b</think>" + fenced(DRAFT) + "</think>" + fenced(GOOD),
    "thought after": fenced(GOOD) + "<think>or\n" + fenced(DRAFT),
    "other spelling": "<Thinking>" + fenced(DRAFT) + "</THINKING>\n" + fenced(GOOD),
    "draft, then right": fenced(DRAFT) + fenced(GOOD),
    "usage after": fenced(GOOD) + fenced("print(Solution().f(1))\n"),
    "usage that doesn't parse after": fenced(GOOD) + fenced("Solution().f(1) -> 2\n"),
    "import of itself after": fenced(GOOD) + fenced("from solution import Solution\nSolution().f(1)\n"),
    "another method after": fenced(GOOD) + fenced("class Solution:\n    def g(self): pass\n"),
    "broken after": fenced(GOOD) + fenced("class Solution:\n    def f(self, n:\n"),
    "java after": fenced(GOOD) + fenced("class Solution {\n  int f(int n) { return n + 1; }\n}\n", "java"),
    "unclosed after": fenced(GOOD) + "```python\n" + DRAFT,
    "text in a fence": fenced("O(1) time, Solution().f\n", "") + fenced(GOOD),
    "inline code": "Use `class Solution` and ```f```:\n" + fenced(GOOD),
    "prompt echoed": fenced(STARTER) + fenced(GOOD),
    "opening fence twice": "```python\nfirst the code\n```python\n" + GOOD + "```\n",
    "stray fence before": "```\nNow:\n```python\n" + GOOD + "```\n",
    "tildes in prose": "~~~ well ~~~\n" + fenced(GOOD),
    "document in a fence": "````markdown\n# Answer\n" + fenced(GOOD) + "````\n",
    "fences in a docstring": fenced(FENCES_AT_MARGIN),
    "fence in a string and a broken one before": fenced('x = """\n') + fenced(GOOD),
    "triple quotes that never end": fenced('class Solution:\n    """\n') + fenced(GOOD),
    "tildes inside of backticks": fenced("x = '''\n~~~\n'''\n" + GOOD),
    "fence in a comment": fenced("# ends with ```\n" + GOOD),
    "escaped quotes": fenced('x = "\\"\\"\\""; y = \'\\\'"""\'\n' + GOOD),
    "inherited": fenced("class Base:\n    def f(self, n): return n + 1\n\nclass Solution(Base): pass\n"),
    "class under if": fenced("if True:\n    " + GOOD.replace("\n", "\n    ").rstrip() + "\n"),
    "method assigned": fenced("class Solution:\n    f = lambda self, n: n + 1\n"),
    "class assigned": fenced("class Other:\n    def f(self, n): return n + 1\nSolution = Other\n"),
}


@pytest.mark.parametrize("text", FENCED.values(), ids=FENCED.keys())
def test_fenced_code_is_found(text):
    value, found = run(text)
    assert value == 2
    assert found.fenced


OUTSIDE = {
    "raw": GOOD,
    "raw with imports": "import math\n\n" + GOOD,
    "raw below prose": "Here is the class Solution:\n\n" + GOOD + "\nThis works because it's right.",
    "raw between prose": "Explanation: see\n\nimport sys\nfrom math import *\n" + GOOD + "Note: it's O(1).\n",
    "raw that needs a helper": "Sure!\n\nONE = 1\ndef g(x):\n    return x + ONE\n\n"
    + GOOD.replace("n + 1", "g(n)")
    + "\nDone!",
    "raw with a decorator": "Well.\n@staticmethod\ndef g(x): return x + 1\n" + GOOD + "\nIs that all?",
    "raw, indented": "Here:\n\n    " + GOOD.replace("\n", "\n    ") + "\n\nThat's it.",
    "raw with a string at the margin": "OK!\n" + STRING_AT_MARGIN + "Bye.",
    "raw with brackets at the margin": "OK!\nONE = [\n    1\n]\n" + GOOD.replace("1\n", "ONE[0]\n") + "Go.",
    "raw, then fenced usage": GOOD + "\nTry:\n" + fenced("print(Solution().f(1))\n"),
    "prefilled fence": GOOD + "```\nIt adds one.",
    "prefilled fence, tests after": GOOD + "```\nTest:\n" + fenced("assert Solution().f(1) == 2\n"),
    "prefilled fence, docstring with fences": FENCES_AT_MARGIN + "```\nIt adds one.",
    "raw, docstring with fences": FENCES_AT_MARGIN,
    "unclosed": "Sure.\n```python\n" + GOOD,
    "unclosed, no line end": "```python\n" + GOOD.rstrip(),
    "unclosed tildes": "~~~\n" + GOOD,
    "unclosed with imports before": fenced("ONE = 1\n") + "```python\n" + GOOD.replace("1\n", "ONE\n"),
    "prompt echoed, raw": STARTER + "\nAnswer:\n" + GOOD,
}


@pytest.mark.parametrize("text", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_code_outside_of_closed_fences_is_found(text):
    value, found = run(text)
    assert value == 2
    assert not found.fenced


@pytest.mark.parametrize(
    "code",
    [
        "def f(n):\n    return n + 1\n",
        "f = lambda n: n + 1\n",
        "f: object = lambda n: n + 1\n",
        "try:\n    import nothing_like_this\nexcept ImportError:\n    def f(n): return n + 1\n",
        "class Solution:\n    def g(self, n): return n + 1\nf = Solution().g\n",
    ],
)
def test_functions(code):
    assert run(fenced(code) + fenced("print(f(1))\n"), "f")[0] == 2
    assert run("Like this:\n\n" + code + "\nThere.", "f")[0] == 2


def test_async_function():
    found = extract_code(fenced("async def f(n):\n    return n\n"), "f")
    assert found == Extraction("async def f(n):\n    return n", True, True)


NOT_FOUND = {
    "empty": "",
    "prose": "I would write class Solution with a method f, but I can't.",
    "prose at the line's start": "class Solution is what you asked for.\n\nHere: nothing.",
    "thought only": "<think>" + fenced(GOOD),
    "thought closed at the end": fenced(GOOD) + "</think>",
    "usage only": fenced("print(Solution().f(1))\n"),
    "import only": fenced("from answer import Solution\n"),
    "other function": fenced("def g(): pass\n"),
    "method without its class": fenced("def f(self, n):\n    return n + 1\n"),
    "nested in a function": fenced("def g():\n    class Solution:\n        def f(self): pass\n"),
}


@pytest.mark.parametrize("text", NOT_FOUND.values(), ids=NOT_FOUND.keys())
def test_nothing(text):
    assert extract_code(text, "Solution().f") == NOTHING


BROKEN = "class Solution:\n    def f(self, n:\n        return n + 1\n"


@pytest.mark.parametrize(
    ("text", "expected", "is_fenced"),
    [
        (fenced(BROKEN), BROKEN, True),
        (fenced(BROKEN) + fenced("print(Solution().f(1))\n"), BROKEN, True),
        (fenced(GOOD.replace("n + 1", "n +")) + fenced(BROKEN), BROKEN, True),
        (fenced("x = 1\n") + fenced(BROKEN), BROKEN, True),
        ("```python\n" + BROKEN, BROKEN, False),
        (BROKEN, BROKEN, False),
        ("Here:\n" + BROKEN + "\nThere.", BROKEN, False),
        ("OK!\n" + GOOD + '        s = """\n', GOOD + '        s = """', False),
        (fenced("Solution . f (\n"), "Solution . f (", True),
    ],
)
def test_broken_code_is_kept_as_it_is(text, expected, is_fenced):
    assert extract_code(text, "Solution().f") == Extraction(expected.rstrip("\n"), is_fenced, False)


def test_class_without_the_method_is_the_answer_where_there_is_no_better():
    wrong = "class Solution:\n    def g(self): pass"
    assert extract_code(fenced(wrong + "\n"), "Solution().f") == Extraction(wrong, True, True)


def test_null_byte_and_lone_surrogate_do_not_parse():
    for bad in ("\0", "\udc80"):
        code = f"class Solution:\n    f = '{bad}'"
        assert extract_code(fenced(code + "\n"), "Solution().f") == Extraction(code, True, False)


class TestEarlierBlocks:
    def test_only_blocks_that_are_needed(self):
        text = fenced("ONE = 1\n") + fenced("UNUSED = 2\nprint(UNUSED)\n") + fenced(GOOD.replace("1\n", "ONE\n"))
        code = run(text)[1].code
        assert "ONE = 1" in code and "UNUSED" not in code

    def test_a_chain_of_needs(self):
        text = fenced("import math\n") + fenced("def g(x): return math.ceil(x)\n") + fenced("def h(x): return g(x)\n")
        assert run(text + fenced(GOOD.replace("n + 1", "h(n) + 1")))[0] == 2

    def test_star_import(self):
        text = fenced("from math import *\n") + fenced(GOOD.replace("n + 1", "ceil(n) + 1"))
        assert run(text)[0] == 2

    def test_of_a_draft_only_what_is_needed(self):
        draft = "import functools\nfrom typing import List\n\n\n@functools.cache\ndef g(x): return x + 1\n\n" + DRAFT
        code = run(fenced(draft) + fenced(GOOD.replace("n + 1", "g(n)")))[1].code
        assert "n - 1" not in code and "List" not in code and "@functools.cache" in code

    def test_a_draft_is_left_out_though_names_are_missing(self):
        code = extract_code(fenced(DRAFT) + fenced(GOOD.replace("int)", "List)")), "Solution().f").code
        assert "n - 1" not in code

    def test_broken_blocks_are_left_out(self):
        code = extract_code(fenced("ONE = (\n") + fenced(GOOD.replace("1\n", "ONE\n")), "Solution().f").code
        assert code.startswith("class Solution")

    def test_names_bound_anywhere_are_not_missing(self):
        uses = (
            "class Solution:\n    def f(self, n, *a, k=1, **kw):\n        import math as ONE\n"
            "        return [ONE for ONE in a] or n + 1\n"
        )
        assert "ONE = 1" not in run(fenced("ONE = 1\n") + fenced(uses))[1].code

    def test_keywords_of_calls_are_not_bound(self):
        uses = GOOD.replace("n + 1", "max(0, n + ONE, key=key)")
        assert run(fenced("key = None\nONE = 1\n") + fenced(uses))[0] == 2


@pytest.mark.parametrize("entry", ["", "Solution.f", "a b", "Solution().f()", "1f", "f;import os"])
def test_bad_entry_point(entry):
    with pytest.raises(ValueError, match="entry point"):
        extract_code(GOOD, entry)


FRAGMENTS = st.sampled_from(
    ["```", "```python\n", "~~~\n", "\n", "\n", "    ", "\t", "1. ", "`", "text ", GOOD, fenced(GOOD)]
    + ["<think>", "</think>", "\x1b[0m", "\r\n", "\r", "\ufeff", "\xa0", "\0", "\udc80", "\x0c"]
    + ["class Solution:\n", "    def f(self, n):\n", "        return n\n", "def f(n): pass\n", "f = 1\n"]
    + ['""' + '"', "''" + "'", "'", "#", "\\", "import math\n", "@x\n", "(", ")"]
)
ANSWERS = st.lists(st.one_of(FRAGMENTS, st.text(max_size=8)), max_size=40).map("".join)
PROSE = st.characters(blacklist_characters="`~<\x1b\x9b", blacklist_categories=("Cs",))


@settings(max_examples=300, deadline=None)
@given(ANSWERS, st.sampled_from(["f", "Solution().f"]))
def test_fuzz(text, entry):
    found = extract_code(text, entry)
    assert found == extract_code(text, entry)
    assert "\r" not in found.code and "\x1b" not in found.code and "\ufeff" not in found.code
    if found.parses:
        ast.parse(found.code)
    if not found.code:
        assert found == NOTHING


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=PROSE, max_size=200))
def test_prose_before_and_after_does_not_matter(prose):
    assert run(prose + "\n" + fenced(GOOD) + prose)[0] == 2


def test_file_stands_alone(tmp_path):
    """The jail executes this file by itself, isolated from the package."""
    copy = tmp_path / "extract.py"
    copy.write_text(Path(extract.__file__).read_text())
    call = f"m['extract_code']({fenced(GOOD)!r}, 'Solution().f').parses"
    script = f"import runpy; m = runpy.run_path({str(copy)!r}); print({call})"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
