"""How alike two programs are in the shape of their syntax trees, names and values ignored."""

import ast
from functools import lru_cache

import numpy as np

from ..sandbox.jail.reader import shape

Shape = tuple[str, ...]


def shape_of(code: str) -> Shape | None:
    """Return the pre-order node type names of trusted code, with a closing mark after each node's children.

    For code of the data set only: a model's answer is parsed in the sandbox, and its verdict holds the shape.

    Returns:
        None if the code doesn't parse or has more than 5,000 nodes.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = shape(tree)
    return None if names is None else tuple(names.split())


@lru_cache(maxsize=4096)
def similarity(candidate: Shape, reference: Shape) -> float:
    """Return `difflib.SequenceMatcher(None, candidate, reference, autojunk=False).ratio()`, faster.

    Every second element is a closing mark, which makes difflib slow (ten times slower on this data). Here the
    length of the common run that ends at each pair of positions is computed once, and each search for a
    longest block is a maximum over a part of that table.

    Args:
        candidate: the sequence that difflib calls a.
        reference: the sequence that difflib calls b.

    Returns:
        2 M / T in [0, 1], T the length of both, M that of the matching blocks; 1 for two empty sequences.
    """
    if candidate == reference:
        return 1.0
    if not candidate or not reference:
        return 0.0
    runs = _common_runs(candidate, reference)
    matched = 0
    parts = [(0, len(candidate), 0, len(reference))]
    while parts:
        a_low, a_high, b_low, b_high = parts.pop()
        a_end, b_end, size = _longest_block(runs, a_low, a_high, b_low, b_high)
        if size:
            matched += size
            if a_low < a_end - size and b_low < b_end - size:
                parts.append((a_low, a_end - size, b_low, b_end - size))
            if a_end < a_high and b_end < b_high:
                parts.append((a_end, a_high, b_end, b_high))
    return 2.0 * matched / (len(candidate) + len(reference))


def _common_runs(a: Shape, b: Shape) -> np.ndarray:
    """Return [len(a), len(b)]: length of the longest common run that ends at a[i] and b[j], both included."""
    types = {name: number for number, name in enumerate(dict.fromkeys(b))}
    codes = np.array([types[name] for name in b])
    equal = np.zeros((len(types) + 1, len(b)), dtype=np.int16)
    for number in range(len(types)):
        equal[number] = codes == number
    runs = np.zeros((len(a), len(b)), dtype=np.int16)
    previous = np.zeros(len(b), dtype=np.int16)
    for i, name in enumerate(a):
        row = equal[types.get(name, -1)]
        runs[i, 0] = row[0]
        np.multiply(previous[:-1] + 1, row[1:], out=runs[i, 1:])
        previous = runs[i]
    return runs


def _longest_block(runs: np.ndarray, a_low: int, a_high: int, b_low: int, b_high: int) -> tuple[int, int, int]:
    """Return the ends (exclusive) and length of the longest block: first in a, then first in b."""
    part = runs[a_low:a_high, b_low:b_high]
    height, width = part.shape
    # A run may have begun outside of this part.
    part = np.minimum(part, np.arange(1, width + 1, dtype=np.int16))
    np.minimum(part, np.arange(1, height + 1, dtype=np.int16)[:, None], out=part)
    a, b = divmod(int(part.argmax()), width)
    return a_low + a + 1, b_low + b + 1, int(part[a, b])
