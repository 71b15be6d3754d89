"""Files of an evaluation that somebody edited, cut or damaged: they are named, and nothing is lost."""

import json
import shutil

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.records import CONFIG, FACTS, REPLIES, SCORES
from corrgrpo_gym.evals.rescore import rescore

from . import toys


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    toys.start(out, model="reference", limit=4)
    return out


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def line(run, stream, number, text):
    """Put another text in the place of a line."""
    lines = (run / stream).read_bytes().split(b"\n")
    lines[number - 1] = text if isinstance(text, bytes) else json.dumps(text).encode()
    (run / stream).write_bytes(b"\n".join(lines))


def reply(**changed):
    said = {"message": {"role": "assistant", "content": "4"}, "finish": "stop", "usage": {}, "notes": []}
    return {"case": "sum-2", "sample": 0, "replies": [{**said, **changed}], "failure": None}


WRONG_LINES = [
    (REPLIES, b'{"case": "su', "is not JSON"),
    (REPLIES, b"\x89PNG\xff\x00", "is not JSON"),
    (REPLIES, b"[" * 100_000, "is nested too deep"),
    (REPLIES, 7, "is a JSON int, not an object"),
    (REPLIES, {}, "`case` is not the id of a case"),
    (REPLIES, {**reply(), "sample": "0"}, "`sample` is '0', not a number from 0"),
    (REPLIES, {**reply(), "replies": None}, "`replies` is null, not a list"),
    (REPLIES, {**reply(), "failure": 1}, "`failure` is not null"),
    (REPLIES, {"case": "sum-2", "sample": 0, "replies": []}, "`failure` is missing"),
    (REPLIES, reply(message={"role": "assistant", "content": 5}), "content is a int, not a str"),
    (REPLIES, reply(finish=["stop"]), "`finish` is"),
    (REPLIES, reply(usage="7"), "`usage` is a text"),
    (SCORES, b"nonsense", "is not JSON"),
    (SCORES, {"case": "sum-2", "sample": 0}, "`values` is null, not an object"),
    (SCORES, {"case": "sum-2", "sample": 0, "values": {"correct": "1"}}, "the value of 'correct' is a text"),
    (SCORES, b'{"case": "sum-2", "sample": 0, "values": {"correct": NaN}}', "not a finite number or null"),
    (SCORES, {"case": "sum-2", "sample": 0, "values": {}, "group": 3}, "`group` is a number"),
]


@pytest.mark.parametrize(("stream", "text", "what"), WRONG_LINES, ids=[w for *_, w in WRONG_LINES])
def test_a_line_that_is_not_what_was_written(stream, text, what, run):
    line(run, stream, 3, text)
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.name != "log.txt"}
    for attempt in (lambda: toys.start(None, resume=run), lambda: rescore(run)):
        with pytest.raises(GymError, match=f"{stream}, line 3") as raised:
            attempt()
        assert what in str(raised.value)
    assert {p.name: p.read_bytes() for p in run.iterdir() if p.name != "log.txt"} == before
    # As the message says.
    lines = (run / stream).read_bytes().split(b"\n")
    (run / stream).write_bytes(b"\n".join(lines[:2] + lines[3:]))
    assert toys.start(None, resume=run)[1].summary["scored"] == 4


def test_a_last_line_of_another_file_is_no_torn_one(run):
    (run / REPLIES).write_bytes(b"\x89PNG and so on")
    with pytest.raises(GymError, match=f"{REPLIES}, line 1 is not JSON"):
        toys.start(None, resume=run)
    assert (run / REPLIES).read_bytes() == b"\x89PNG and so on"


def test_zeros_of_a_power_cut_are_a_torn_line(run):
    whole = (run / REPLIES).read_bytes()
    (run / REPLIES).write_bytes(whole + b"\0" * 100)
    assert toys.start(None, resume=run)[1].finished
    assert (run / REPLIES).read_bytes() == whole


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        (CONFIG, b"\xff\xfe", "is not valid TOML"),
        (CONFIG, b"env = ", "is not valid TOML"),
        (CONFIG, b"x = " + b"[" * 10_000, "is nested too deep"),
        (CONFIG, b"", "eval needs --env"),
        (CONFIG, b"env = 5\nmodel = 'm'", "configuration key env"),
        (CONFIG, b"env = 'x'\nmodel = 'm'\nlimt = 3", "Did you mean 'limit'"),
        (FACTS, b"{", "cannot be read"),
        (FACTS, b"\xff", "cannot be read"),
        (FACTS, b"[" * 100_000, "cannot be read"),
        (FACTS, b"[]", "does not hold what an evaluation writes"),
        (FACTS, b'{"benchmark": {}}', "does not hold what an evaluation writes"),
        (FACTS, b'{"benchmark": {}, "model": {}, "config": {"env": 5}}', "run.json, config: configuration key env"),
    ],
)
def test_small_files_that_are_damaged(name, text, what, run):
    (run / name).write_bytes(text)
    for attempt in (lambda: toys.start(None, resume=run), lambda: rescore(run)):
        with pytest.raises(GymError) as raised:
            attempt()
        assert what in str(raised.value) and name in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("temperature = 0.0", "temperature = 1.0", "temperature was 0.0, now 1.0"),
        ('system = ""', 'system = "Be brief."\nprice_in = 2.0', "system was '', now 'Be brief.'"),
        ("[options]", "[options]\nsize = 30", "options.size was None, now 30"),
    ],
)
def test_an_edited_configuration_is_not_gone_on_with(old, new, says, run):
    text = (run / CONFIG).read_text()
    assert old in text
    (run / CONFIG).write_text(text.replace(old, new))
    for attempt in (lambda: toys.start(None, resume=run, limit=6), lambda: rescore(run)):
        with pytest.raises(GymError, match=f"{CONFIG} was edited: ") as raised:
            attempt()
        assert says in str(raised.value)
    assert len((run / REPLIES).read_text().splitlines()) == 4
    (run / CONFIG).write_text(text)
    assert toys.start(None, resume=run, limit=6)[1].summary["scored"] == 6
    assert rescore(run).finished


def test_what_changes_no_result_may_be_edited(run):
    text = (run / CONFIG).read_text()
    (run / CONFIG).write_text(text.replace("limit = 4", "limit = 5").replace("retries = 8", "retries = 9"))
    assert toys.start(None, resume=run)[1].summary["scored"] == 5
    (run / CONFIG).write_text(text)
    with pytest.raises(GymError, match="limit was 5, now 4. A run can grow, not shrink"):
        toys.start(None, resume=run)


def test_replies_without_a_configuration_are_not_mixed_with_others(run):
    (run / CONFIG).unlink()
    with pytest.raises(GymError, match=f"holds replies but no {CONFIG}"):
        toys.start(run, model="reference", limit=4, temperature=1.0)
    assert not (run / CONFIG).exists()
