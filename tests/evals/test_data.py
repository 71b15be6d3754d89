import json
import sys

import pytest

from corrgrpo_gym.envs import hub
from corrgrpo_gym.envs.rows import read_file
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.code import humaneval, livecodebench, mbpp
from corrgrpo_gym.evals.code.evalplus import restored
from corrgrpo_gym.evals.data import Source, find

from .code.rows import HUMANEVAL, LIVECODEBENCH, MBPP, write


class Hub:
    """The part of huggingface_hub that is used; holds files by repository and name."""

    def __init__(self, files, cached=True):
        self.files, self.cached = files, cached

    def try_to_load_from_cache(self, repository, name, revision, repo_type):
        return self.files.get((repository, name)) if self.cached else None

    def hf_hub_url(self, repository, name, repo_type, revision):
        return f"https://hub/{repository}/{name}"

    def get_hf_file_metadata(self, url, timeout):
        if not self.files:
            raise OSError("Name or service not known")

    def hf_hub_download(self, repository, name, revision, repo_type):
        return self.files[repository, name]


def parquet(path, rows):
    table = pytest.importorskip("pyarrow").Table.from_pylist(rows)
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    return str(path)


@pytest.mark.parametrize("cached", [True, False])
def test_the_hubs_files_are_read_as_they_are_there(tmp_path, monkeypatch, cached):
    files = {
        (humaneval.SOURCE.repository, humaneval.SOURCE.hub_file): parquet(tmp_path / "h.parquet", HUMANEVAL),
        (mbpp.SOURCE.repository, mbpp.SOURCE.hub_file): parquet(tmp_path / "m.parquet", MBPP),
        (livecodebench.SOURCE.repository, "test6.jsonl"): str(write(tmp_path / "test6.jsonl", LIVECODEBENCH)),
    }
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(files, cached))
    for kind, count in ((humaneval.HumanEval, 12), (mbpp.Mbpp, 12), (livecodebench.LiveCodeBench, 6)):
        for data in (None, "auto", "hub"):
            benchmark = kind(data)
            assert len(benchmark.cases) == count and benchmark.note.startswith("hub: ")
            assert ("cached" in benchmark.note) == cached


def test_no_network(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub({}))
    with pytest.raises(
        hub.Unreachable, match=r"not known\)\. Get HumanEval.jsonl from https.*pass its path with --data"
    ):
        humaneval.HumanEval()


def test_plus_comes_from_the_cache_of_its_own_tool(tmp_path, monkeypatch):
    source = Source("x", ("X.jsonl",), cache=(str(tmp_path),), address="https://example.org")
    with pytest.raises(GymError, match="the data are in none of .*Get X.jsonl from https://example.org"):
        find("x", source, "auto")
    path = write(tmp_path / "X.jsonl.gz", [{}])
    assert find("x", source, None)[0] == path


def test_files_that_are_no_data(tmp_path):
    for name, content, message in (
        ("a.jsonl", b"[1]\n", "a.jsonl:1: a row is a JSON object"),
        ("a.jsonl", b"", "has no rows"),
        ("a.jsonl", b"\xff\xfe", "not UTF-8"),
        ("a.parquet", b"PAR1", "is no Parquet table"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GymError, match=message):
            humaneval.HumanEval(tmp_path / name)


def test_a_table_gives_numbered_rows(tmp_path):
    rows = list(read_file(parquet(tmp_path / "m.parquet", MBPP)))
    assert rows[0][0] == 1 and rows[2][1]["test_list"] == MBPP[2]["test_list"]


def test_types_that_json_lacks_are_restored_by_the_assertion():
    def types(assertion, base, plus):
        row = {"task_id": "t", "entry_point": "f", "assertion": assertion, "base_input": base, "plus_input": plus}
        return json.loads(json.dumps(base)), restored(row)[1]

    assert types("assert f((1, 2), [3]) == 1", [[[1, 2], [3]]], [[[], [1, [2]]]])[1] == [[(), [1, [2]]]]
    assert types("assert f([(1, 'a')]) == 1", [[[[1, "a"]]]], [[[[2, "b"], [3, "c"]]]])[1] == [[[(2, "b"), (3, "c")]]]
    assert types("assert f({1, 2}) == 1", [[[1, 2]]], [[[3]]])[1] == [[{3}]]
    assert types("assert f({'a': (1,)}) == 1", [[{"a": [1]}]], [[{"b": [2]}]])[1] == [[{"b": (2,)}]]
    assert types("assert f(((1, 2), 3)) == 1", [[[[1, 2], 3]]], [[[[1, [2, [3]]]]]])[1] == [[((1, (2, (3,))),)]]
    assert types("assert f(1, 1j) == 1", [["1", "1j"]], [["2.5", "(1+2j)"]])[1] == [[2.5, 1 + 2j]]
    assert types("assert f(2 * 3) == 1\nassert f((1,)) == 1", [[6], [[1]]], [[[2]]])[1] == [[(2,)]]
    assert types("assert f('a') == 1", [["a"]], [["1"]])[1] == [["1"]]
