"""Bodies of functions that the prompt began, and scripts."""

# ruff: noqa: E501 - answers in texts

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_gym.envs.extract import Extraction
from corrgrpo_gym.envs.extract_forms import extract_completion, extract_script

CASES = json.loads((Path(__file__).parent / "data" / "code_answers.json").read_text())
HEAD = '''from typing import List


def helper(n):
    return n + 1


def total(values: List[int]) -> int:
    """ Sum of the values, each through helper.
    >>> total([1, 2])
    5
    """
'''
BODY = """    result = 0
    for value in values:
        if value:
            result += helper(value)
    return result
"""
DEDENTED = "".join(line[4:] + "\n" for line in BODY.splitlines())
NOTHING = Extraction("", False, False)


def complete(answer, head=HEAD, entry="total"):
    """Extract, execute what came out after the head (these are our own texts), and return total([1, 2])."""
    found = extract_completion(answer, entry, head)
    assert found.parses, found
    space = {"__name__": "answer"}
    exec(head, space)
    exec(found.code, space)
    return space[entry]([1, 2])


ANSWERS = {
    "the body": BODY,
    "the body stripped": BODY.strip(),
    "the body without indentation": DEDENTED,
    "the body with two spaces": BODY.replace("    ", "  "),
    "the body with tabs": BODY.replace("    ", "\t"),
    "the body deeper": "".join(f"    {line}\n" for line in BODY.splitlines()),
    "the body with CRLF": BODY.replace("\n", "\r\n"),
    "a fenced body": f"```python\n{BODY}```",
    "a fenced body without indentation": f"```python\n{DEDENTED}```",
    "a fenced body that was stripped": f"```\n{BODY.strip()}\n```",
    "a fence that is never closed": f"```python\n{BODY}",
    "a fence that is never opened": f"{BODY}```",
    "prose around a fence": f"The body is:\n```python\n{BODY}```\nIt adds them up.",
    "prose around an indented body": f"Here is the body:\n\n{BODY}\nThis works because addition does.",
    "prose after a body at the margin": f"{DEDENTED}\nThis is it.\n\nReally.",
    "prose before a body at the margin": f"Sure, here:\n\n{DEDENTED}",
    "a thought before": f"<think>\nreturn 3? No.\n</think>\n{BODY}",
    "one line": "    return sum(helper(v) for v in values)",
    "one line at the margin": "return sum(helper(v) for v in values)",
    "an import in the body": "    import functools\n    return functools.reduce(lambda a, b: a + helper(b), values, 0)",
    "a docstring first": f'    """Adds."""\n{BODY}',
    "a function in the body": "    def add(a, b):\n        return a + helper(b)\n    r = 0\n    for v in values: r = add(r, v)\n    return r",
    "a function after the body": "    return more(values)\n\ndef more(values):\n    return sum(map(helper, values))\n",
    "a name like the function's": "total = 0\nfor v in values:\n    total += helper(v)\nreturn total",
    "such a name, stripped": "total = 0\n    for v in values:\n        total += helper(v)\n    return total",
    "a comment first": f"    # adds up\n{BODY}",
    "a blank line inside": BODY.replace("    return", "\n    return"),
    "the whole function": HEAD + BODY,
    "the function alone": "def total(values: List[int]) -> int:\n" + BODY,
    "the function, fenced": f"```python\ndef total(values: List[int]) -> int:\n{BODY}```",
    "the function, indented": "".join(f"  {line}\n" for line in ("def total(values):\n" + BODY).splitlines()),
    "the function with imports": "import functools\n\ndef total(values):\n    return functools.reduce(lambda a, b: a + helper(b), values, 0)",
    "the function with a helper of its own": "def helper(n): return n + 1\ndef total(values):\n" + BODY,
    "a lambda": "total = lambda values: sum(map(helper, values))",
    "the function in a class of the same answer": "def total(values):\n" + BODY + "\nclass T:\n    pass\n",
    "a draft and the final body": f"```python\nreturn 0\n```\nBetter:\n```python\n{BODY}```",
    "the function and an example": f"```python\ndef total(values):\n{BODY}```\n```python\nprint(total([1, 2]))\n```",
}
NO_ANSWERS = {
    "empty": "",
    "prose": "I cannot do that.",
    "one word": "Sorry",
    "pass": "    pass",
    "no return": "    x = 1",
    "a return of nothing": "    return",
    "an example": "```\n5\n```",
    "a cut line": "    result = (\n",
    "null byte": "    return \x00",
    "another function": "```python\ndef other(values):\n    return 5\n```",
    "another function, raw": "def other(values):\n    return 5\n",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_completions_are_found(name):
    assert complete(ANSWERS[name]) == 5


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_what_is_no_completion(name):
    assert not extract_completion(NO_ANSWERS[name], "total", HEAD).parses


def test_a_broken_function_is_kept_as_broken():
    found = extract_completion("```python\ndef total(values):\n    return (\n```", "total", HEAD)
    assert found == Extraction("def total(values):\n    return (", True, False)


def test_strings_of_several_lines_keep_their_lines_where_the_indentation_is_right():
    body = '    text = """\na\n  b"""\n    return text\n'
    found = extract_completion(body, "total", HEAD)
    space = {}
    exec(found.code, space)
    assert space["total"]([]) == "\na\n  b"


def test_heads():
    tabs = 'def total(values):\n\t"""Sum."""\n'
    assert complete("total = sum(values)\nreturn total + 2", tabs) == 5
    after_import = 'def total(values):\n    import math\n    """Sum."""\n'
    assert complete("return math.floor(sum(values) + 2)", after_import) == 5
    one = 'def total(values): "Sum."\n'
    assert not extract_completion("return 5", "total", one).parses
    for broken in ("def total(:", "x = 1\n", ""):
        assert extract_completion(BODY, "total", broken) == NOTHING
    assert extract_completion("def total(v): return 5", "total", "").parses


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_shared_cases_as_functions(case):
    """The same answers, with the method as a function of its own."""
    text = case["text"].replace("self, ", "").replace("Solution().f", "f")
    text = re.sub(r"class Solution:\n((?:    .*\n|\n)+)", lambda m: m[1].replace("\n    ", "\n")[4:], text)
    text = re.sub(r"   class Solution:\n((?:       .*\n)+)", lambda m: m[1].replace("\n    ", "\n")[4:], text)
    found = extract_completion(text, "f", 'def f(n: int) -> int:\n    """Next."""\n')
    if case["expect"] == "nothing":
        assert found == NOTHING
    else:
        space = {"__name__": "answer"}
        exec(found.code, space)
        assert space["f"](1) == 2


SCRIPT = "n = int(input())\nprint(n + 1)\n"
SCRIPTS = {
    "a fence": f"```python\n{SCRIPT}```",
    "no tag": f"```\n{SCRIPT}```",
    "raw": SCRIPT,
    "prose around": f"Read, add, print.\n```python\n{SCRIPT}```\nDone.",
    "the last one": f"```python\nprint(0)\n```\nNo:\n```python\n{SCRIPT}```",
    "an example's output after it": f"```python\n{SCRIPT}```\nOutput:\n```\n3\n```",
    "an example's call after it": f"```python\n{SCRIPT}```\n```\n$ python a.py\n```",
    "another language after it": f"```python\n{SCRIPT}```\n```cpp\nint main() {{}}\n```",
    "a text block after it": f"```python\n{SCRIPT}```\n```text\nprint(3)\n```",
    "never closed": f"```python\n{SCRIPT}",
    "never opened": f"{SCRIPT}```\nThat is all.",
    "tildes": f"~~~py\n{SCRIPT}~~~",
    "a thought before": f"<think>```python\nprint(9)\n```</think>```python3\n{SCRIPT}```",
    "a broken one last": f"```python\n{SCRIPT}```\n```python\nprint(\n```",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_found(name):
    found = extract_script(SCRIPTS[name])
    assert found.parses and found.code.strip() == SCRIPT.strip()


def test_a_script_gets_what_it_needs_from_earlier_blocks():
    found = extract_script(
        "```python\nimport math\ndef f(n): return n + 1\n```\n```python\nprint(f(int(input())))\n```"
    )
    assert found.code == "import math\ndef f(n): return n + 1\nprint(f(int(input())))"


@pytest.mark.parametrize(
    "text",
    ["", "I do not know.", "Yes", "```\n3\n```", "```cpp\nint main() {}\n```", "<think>```python\nprint(1)\n```"],
)
def test_what_is_no_script(text):
    assert extract_script(text) == NOTHING


def test_a_broken_script():
    assert extract_script("```python\nprint(\n```") == Extraction("print(", True, False)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="`~\n \tdefreturn():=\"'x<think>/py#", max_size=200))
def test_fuzz(text):
    for found in (extract_completion(text, "total", HEAD), extract_script(text)):
        if found.parses:
            compile(found.code, "<answer>", "exec", 1024)


@pytest.mark.parametrize("unit", ["```python\nreturn (\n```\n", "    return\n\n", "\n\nx\n", "```\n", "    x = 1\ny\n"])
def test_work_grows_with_the_length_alone(unit):
    """Counted in characters handed to the parser, as times vary."""
    counts = []
    for n in (50, 400):
        parsed = 0

        def parse(source):
            nonlocal parsed
            parsed += len(source)
            return compile(source, "", "exec", 1024)

        text = unit * n
        extract_completion(text, "total", HEAD, parse=parse)
        extract_script(text, parse=parse)
        counts.append(parsed / (len(text) + 200 * len(HEAD)))
    assert max(counts) < 60, counts
