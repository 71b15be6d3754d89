import gzip
import json
import sys

import pytest

from corrgrpo_gym.envs import hub
from corrgrpo_gym.envs.leetcode.data import load_problems, read_problems
from corrgrpo_gym.errors import GymError

from .conftest import DATA

ROW = {
    "task_id": "add-one",
    "prompt": "import math\n",
    "completion": "class Solution:\n    def addOne(self, n):\n        return n + 1\n",
    "entry_point": "Solution().addOne",
    "test": "def check(candidate):\n    assert candidate(n = 1) == 2\n",
    "query": "Add one.",
}


def write(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_published_layout_from_a_folder():
    problems, note, embedded = load_problems(DATA, "test")
    assert [p.task_id for p in problems] == [
        "stone-removal-game",
        "find-the-k-th-character-in-string-game-i",
        "smallest-number-with-all-set-bits",
    ]
    first = problems[0]
    assert first.entry_point == "Solution().canAliceWin" and first.difficulty == "Easy"
    assert "Stone" not in first.completion and "canAliceWin" in first.completion
    assert "class ListNode" in first.prelude and first.baseline == first.completion
    assert first.query.startswith("You are an expert") and "Math" in first.tags
    assert not embedded and note.startswith("path: 3 problems of ") and "v0.3.1-test" in note


def test_published_gzip_from_a_folder_and_as_a_file():
    folder = load_problems(str(DATA), "train").problems
    file = load_problems(DATA / "LeetCodeDataset-v0.3.1-train.jsonl.gz", "train").problems
    assert folder == file and [p.task_id for p in file][0] == "two-sum"


def test_nested_layout():
    problems = load_problems(DATA / "nested", "test").problems
    assert [p.task_id for p in problems] == ["power-of-three", "power-of-four"]
    assert "isPowerOfThree" in problems[0].query and problems[0].difficulty == "Easy"
    assert problems[0].starter_code.startswith("class Solution")


def test_the_file_without_a_version_goes_first_then_the_newest(tmp_path):
    def chosen():
        return load_problems(tmp_path, "test").note

    for name in ("v2-test-problems", "v0.2.0-test", "v0.10.0-test", "test"):
        write(tmp_path / f"LeetCodeDataset-{name}.jsonl", [ROW])
        assert f"LeetCodeDataset-{name}.jsonl" in chosen()
    write(tmp_path / "LeetCodeDataset-v0.3.1-test.jsonl", [ROW])
    assert "LeetCodeDataset-test.jsonl" in chosen()


def test_blank_lines_and_byte_order_mark(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\ufeff" + json.dumps(ROW) + "\n\n", encoding="utf-8")
    assert [p.task_id for p in load_problems(path, "train").problems] == ["add-one"]


def test_a_repeated_row_is_left_out_and_counted(tmp_path):
    path = write(tmp_path / "mine.jsonl", [ROW, ROW | {"question_id": 7}])
    problems, repeats = read_problems(path)
    assert len(problems) == 1 and repeats == 1
    assert "(1 repeated rows left out)" in load_problems(path, "train").note


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": None}, "field 'query' is missing"),
        ({"test": 3}, "field 'test' is a int, not a text"),
        ({"completion": "  "}, "field 'completion' is empty"),
        ({"tags": "Math"}, "field 'tags' is a str, not a list"),
        (
            {"entry_point": "Solution().addTwo"},
            "completion doesn't define the entry_point 'Solution().addTwo'",
        ),
        ({"entry_point": "Other().addOne"}, "completion doesn't define the entry_point 'Other().addOne'"),
        ({"entry_point": "os.system('x')"}, "entry_point \"os.system('x')\" is neither"),
        ({"test": "assert True\n"}, "test doesn't define check(candidate)"),
        ({"test": "def check():\n    pass\n"}, "test doesn't define check(candidate)"),
        ({"test": "def check(candidate):\n    pass\n"}, "test is empty: it never calls its candidate"),
        ({"test": "def check(candidate):\n    assert (\n"}, "test doesn't compile"),
        ({"prompt": "import ,\n"}, "prompt doesn't compile"),
        ({"baseline": "class Solution:\n    pass\n"}, "baseline doesn't define the entry_point"),
    ],
)
def test_bad_rows_are_named(tmp_path, change, message):
    bad = ROW | {"task_id": "bad-one"} | change
    path = write(tmp_path / "mine.jsonl", [ROW, {k: v for k, v in bad.items() if v is not None}])
    with pytest.raises(GymError) as error:
        load_problems(path, "train")
    assert f"{path}:2 (bad-one): {message}" in str(error.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", ":2: it is a JSON list"),
        ("{oops", ":2: not JSON"),
        ("[" * 100_000, ":2: not JSON"),
        ("version https://git-lfs.github.com/spec/v1", ":2: not JSON"),
    ],
)
def test_lines_that_are_no_rows(tmp_path, line, message):
    path = write(tmp_path / "mine.jsonl", [ROW, line])
    with pytest.raises(GymError, match=message):
        load_problems(path, "train")


def test_two_problems_with_one_id(tmp_path):
    path = write(tmp_path / "mine.jsonl", [ROW, ROW | {"query": "Add 1."}])
    with pytest.raises(GymError, match=":2: task_id 'add-one' is that of line 1"):
        load_problems(path, "train")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(GymError, match="no file or folder '.*nowhere'"):
        load_problems(tmp_path / "nowhere", "train")
    empty = write(tmp_path / "mine.jsonl", [])
    with pytest.raises(GymError, match="has no rows"):
        load_problems(empty, "train")
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(json.dumps(ROW).encode() * 50)[:-20])
    with pytest.raises(GymError, match="damaged gzip"):
        load_problems(cut, "train")
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(b'{"task_id": "\xe9"}\n')
    with pytest.raises(GymError, match="not UTF-8"):
        load_problems(latin, "train")


def test_a_split_that_is_not_there(tmp_path):
    with pytest.raises(GymError, match="holds the train split, not 'test'"):
        load_problems(DATA / "LeetCodeDataset-v0.3.1-train.jsonl.gz", "test")
    with pytest.raises(GymError, match="no file of split 'train'.*It holds LeetCodeDataset-v2-test-problems.jsonl"):
        load_problems(DATA / "nested", "train")
    with pytest.raises(GymError, match="Pass the folder"):
        load_problems(tmp_path, "train")


def test_embedded():
    problems, note, embedded = load_problems("embedded", "test")
    assert embedded and len(problems) == 108 and note.startswith("embedded: 108 problems")
    assert all(problem.slow_baseline for problem in problems)


class _Hub:
    """The part of huggingface_hub that is used."""

    def __init__(self, cached=None, online=False):
        self.cached, self.online = cached or {}, online
        self.asked = []

    def try_to_load_from_cache(self, repository, name, revision, repo_type):
        assert (repository, repo_type) == ("newfacade/LeetCodeDataset", "dataset")
        return self.cached.get((name, revision))

    def hf_hub_url(self, repository, name, repo_type, revision):
        return f"https://hub/{repository}/{revision}/{name}"

    def get_hf_file_metadata(self, url, timeout):
        self.asked.append(url)
        if not self.online:
            raise OSError("Name or service not known\nRetry")

    def hf_hub_download(self, repository, name, revision, repo_type):
        return str(DATA / "LeetCodeDataset-v0.3.1-test.jsonl")


def test_the_cache_goes_before_the_network(monkeypatch):
    path = str(DATA / "LeetCodeDataset-v0.3.1-test.jsonl")
    fake = _Hub({("LeetCodeDataset-test.jsonl", "main"): path})
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    for data in (None, "auto", "hub"):
        problems, note, embedded = load_problems(data, "test")
        assert len(problems) == 3 and not embedded
        assert note.startswith("hub: newfacade/LeetCodeDataset (main), cached: 3 problems")
    assert not fake.asked


def test_download(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", _Hub(online=True))
    assert "downloaded: 3 problems" in load_problems("auto", "test").note


def test_no_network(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "huggingface_hub", _Hub())
    with pytest.raises(hub.Unreachable, match=r"\(Name or service not known\)\. Pass data=PATH .* or data='embedded'"):
        load_problems("hub", "test")
    loaded = load_problems("auto", "test")
    assert loaded.embedded and "could not be downloaded" in loaded.note
    assert "Using the embedded problems instead" in caplog.text


def test_hub_package_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(GymError, match=r"pip install 'corrgrpo-gym\[hub\]'"):
        load_problems("hub", "test")
    assert load_problems(None, "test").embedded
