"""Saved answers in the place of a model."""

import json

import pytest

from corrgrpo_gym.errors import GymError

from . import toys
from .server import Response, Server, completion, error

SAID = {"message": {"role": "assistant", "content": "2"}}


def written(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def answers(skip=(), **more):
    return [{"case": f"sum-{i}", "answer": str(2 * i), **more} for i in range(24) if i not in skip]


def test_a_file_of_answers(tmp_path):
    file = written(tmp_path / "a.jsonl", *answers())
    printed, outcome = toys.start(tmp_path / "r", answers=file)
    assert outcome.summary["columns"][0]["value"] == 1.0 and outcome.summary["failed"] == {}
    assert outcome.summary["model"]["kind"] == "saved" and f"model      {file}" in printed


def test_other_ways_to_write_a_line(tmp_path):
    lines = [
        {"task_id": "sum-0", "answer": "0"}, {"case": "sum-1", "message": {"role": "assistant", "content": "2"}},
        {"case": "sum-2", "answers": ["4"]}, {"case": "sum-3", "messages": [{"content": "6"}]}, "",
        {"case": "sum-4", "sample": 0, "message": {"content": "8", "reasoning_content": "4 and 4"}, "finish": "length"},
        {"case": "sum-5", "answer": None}, {"case": "sum-6", "message": {"tool_calls": [{"function": {"name": "f"}}]}},
    ]  # fmt: skip
    file = written(tmp_path / "a.jsonl", *lines)
    with open(file) as f:
        text = f.read().rstrip("\n")
    (tmp_path / "a.jsonl").write_text(text)  # the last line has no end
    _, outcome = toys.start(tmp_path / "r", answers=file, limit=7)
    saved = toys.records(tmp_path / "r")
    assert outcome.summary["columns"][0]["value"] == pytest.approx(5 / 7) and len(saved) == 7
    assert saved["sum-4", 0]["replies"][0]["finish"] == "length" and outcome.summary["cut"] == 1
    assert saved["sum-5", 0]["replies"][0]["message"]["content"] is None
    assert saved["sum-6", 0]["replies"][0]["finish"] == "tool_calls"


def test_missing_and_unknown_cases(tmp_path):
    file = written(tmp_path / "a.jsonl", *answers(skip=(2, 5)), {"case": "product-1", "answer": "1"})
    printed, outcome = toys.start(tmp_path / "r", answers=file)
    assert outcome.summary["failed"] == {"no_answer": 2} and outcome.summary["scored"] == 22
    assert "1 cases of a.jsonl are not in this benchmark: 'product-1' (line 23)" in printed
    assert "2 cases have no answer in a.jsonl" in printed
    printed, outcome = toys.start(tmp_path / "few", answers=file, limit=4)
    assert outcome.summary["failed"] == {"no_answer": 1} and "1 cases have no answer in a.jsonl" in printed
    printed, _ = toys.start(tmp_path / "none", answers=file, limit=2)
    assert "have no answer" not in printed
    file = written(tmp_path / "b.jsonl", {"case": "product-1", "answer": "1"}, {"case": 7, "answer": "1"})
    with pytest.raises(
        GymError, match="no answer for any case. Cases are named 'sum-0'.*; the file's: 'product-1', '7'"
    ):
        toys.start(tmp_path / "r2", answers=file)


def test_samples_by_number_or_in_order(tmp_path):
    lines = [{"case": f"sum-{i}", "answer": str(2 * i + wrong)} for wrong in (0, 1) for i in range(24)]
    _, outcome = toys.start(tmp_path / "r", answers=written(tmp_path / "a.jsonl", *lines), n=2)
    assert outcome.summary["columns"][0]["value"] == 0.5 and outcome.summary["scored"] == 48
    numbered = written(tmp_path / "b.jsonl", *answers(sample=1), *answers(sample=0))
    _, outcome = toys.start(tmp_path / "r2", answers=numbered, n=2)
    assert outcome.summary["columns"][0]["value"] == 1


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([*answers(sample=0), {"case": "sum-3", "sample": 0, "answer": "6"}],
         "a.jsonl:25: sample 0 of case 'sum-3' has an answer in line 4 already"),
        (["{"], "a.jsonl, line 1 is not JSON"),
        (["[]"], "a.jsonl, line 1 is a JSON list, not an object"),
        ([{"answer": "x"}], "a.jsonl:1: a line of saved answers"),
        ([{"case": "sum-1"}], "a.jsonl:1: expected one of .*found 0"),
        ([{"case": "sum-1", "answer": "x", "message": {}}], "a.jsonl:1: expected one of .*found 2"),
        ([{"case": "sum-1", "answer": 5}], "a.jsonl:1: a message is a dict"),
        ([{"case": "sum-1", "message": {"role": "user", "content": "x"}}], "a.jsonl:1: role is 'user'"),
        ([{"case": "sum-1", "sample": "first", "answer": "x"}], "a.jsonl:1: `sample` is 'first'"),
        ([{"case": "sum-1", "replies": [1]}], "a.jsonl:1: a reply is an object, not a number"),
        ([{"case": "sum-1", "replies": {}}], "a.jsonl:1: `replies` is an object, not a list"),
        ([{"case": "sum-1", "replies": [{"message": 5}]}], "a.jsonl:1: a message is a dict"),
        ([{"case": "sum-1", "replies": [{"finish": "stop"}]}], "a.jsonl:1: a reply has no `message`"),
        ([{"case": "sum-1", "replies": [{"message": {"role": "assistant", "content": 5}}]}], "content is a int"),
        ([{"case": "sum-1", "replies": [{**SAID, "finish": ["stop"]}]}], r"a.jsonl:1: `finish` is \"\['stop'\]\""),
        ([{"case": "sum-1", "answer": "x", "finish": ["stop"]}], "a.jsonl:1: `finish` is"),
        ([{"case": "sum-1", "replies": [{**SAID, "usage": "many"}]}], "a.jsonl:1: `usage` is a text"),
        ([{"case": "sum-1", "replies": [{**SAID, "usage": {"prompt": "3"}}]}], "`usage` has '3' for prompt"),
        ([{"case": "sum-1", "replies": [{**SAID, "usage": {"total": 3}}]}], "`usage` has 'total'"),
        ([{"case": "sum-1", "replies": [{**SAID, "notes": "odd"}]}], "a.jsonl:1: `notes` is not a list of texts"),
        ([{"case": "sum-1", "replies": [], "failure": "no"}], "a.jsonl:1: `failure` is not null"),
        ([{"case": "sum-0", "answer": "x"}, "", "[" * 100_000], "a.jsonl, line 3 is nested too deep"),
        ([], "has no answer for any case"),
    ],
)  # fmt: skip
def test_files_that_are_wrong(lines, complaint, tmp_path):
    with pytest.raises(GymError, match=complaint):
        toys.start(tmp_path / "r", answers=written(tmp_path / "a.jsonl", *lines))
    assert not (tmp_path / "r").exists()


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(GymError, match="there is no file .*absent"):
        toys.start(tmp_path / "r", answers=str(tmp_path / "absent"))
    with pytest.raises(GymError, match="takes the place of a model"):
        toys.start(tmp_path / "r", answers="x", model="tiny")


def test_another_runs_answers(tmp_path):
    def behave(asked):
        i = int(asked.prompt.split()[0])
        return Response(error("no"), 400) if i == 4 else Response(completion(str(2 * i + i % 2)))

    with Server(behave) as server:
        _, first = toys.start(tmp_path / "first", base_url=server.url, model="tiny")
        behave = lambda asked: Response(completion("8"))  # noqa: E731
        server.behave = behave
        _, first = toys.start(None, resume=tmp_path / "first", retry_failed=True)
    _, second = toys.start(tmp_path / "second", answers=str(tmp_path / "first"))
    one, two = toys.records(tmp_path / "first"), toys.records(tmp_path / "second")
    # A later line of a run replaces an earlier one; tokens and the rest come along.
    assert one == two and second.summary["columns"] == first.summary["columns"]
    assert second.summary["tokens"] == first.summary["tokens"]


def test_a_failure_in_another_run_stays_one(tmp_path):
    with Server(lambda asked: Response(error("no"), 400)) as server:
        toys.start(tmp_path / "first", base_url=server.url, model="tiny", limit=2)
    _, second = toys.start(tmp_path / "second", answers=str(tmp_path / "first"), limit=2)
    assert second.summary["failed"] == {"rejected": 2}


def test_a_run_goes_on_with_the_same_answers_only(tmp_path):
    file = written(tmp_path / "a.jsonl", *answers())
    toys.start(tmp_path / "r", answers=file, limit=2)
    written(tmp_path / "a.jsonl", *answers(skip=(3,)))
    with pytest.raises(GymError, match=r"model.digest was"):
        toys.start(None, resume=tmp_path / "r", limit=4)
