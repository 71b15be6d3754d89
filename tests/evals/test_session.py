"""Whole evaluations: interrupted, killed, gone on with, retried, on a full disk."""

import errno
import json
import signal
import threading
import time

import pytest

from corrgrpo_gym import run_files
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.records import REPLIES, SCORES
from corrgrpo_gym.evals.rescore import rescore

from . import toys
from .server import HANG, Response, Server, adds, endpoint, error, half_wrong


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An evaluation that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with Server(half_wrong) as server:
        toys.start(out, **endpoint(server))
    return toys.state(out)


def same_as(out, whole):
    replies, scores, summary = toys.state(out)
    ours = {**whole[2], "model": summary["model"]}  # another port
    assert (replies, scores, summary) == (whole[0], whole[1], ours)


def test_reference_answers(tmp_path):
    printed, outcome = toys.start(tmp_path / "r", model="reference")
    assert outcome.finished and outcome.summary["columns"][0] == {
        "name": "correct", "value": 1.0, "low": pytest.approx(0.862, abs=1e-3), "high": 1.0, "count": 24,
        "percent": False, "meaning": "mean of the reward 'correct', 0 to 1",
    }  # fmt: skip
    assert "correct" in printed and "24 of 24 samples answered, 24 scored" in printed
    assert json.loads((tmp_path / "r/summary.json").read_text()) == outcome.summary


def test_an_endpoint(tmp_path, whole):
    with Server(half_wrong) as server:
        printed, outcome = toys.start(tmp_path / "r", **endpoint(server, price_in=1.0, price_out=2.0, concurrency=5))
    assert outcome.summary["columns"][0]["value"] == 0.5
    assert outcome.summary["tokens"] == {"prompt": 24 * 7, "completion": 24 * 3}
    assert outcome.summary["cost"] == pytest.approx((24 * 7 + 2 * 24 * 3) / 1e6) and "cost 0.0003" in printed
    assert server.most <= 5 and len(server.asked) == 24
    assert f"tiny at {server.url}, greedy, 1 sample per case" in printed
    assert whole[2]["cost"] is None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["kill -9", "SIGTERM", "Ctrl-C"])
def test_stopped_and_gone_on_with(how, tmp_path, whole):
    out = tmp_path / "run"
    ready = threading.Event()

    def behave(asked):
        if asked.number == 13:
            ready.set()
        return half_wrong(asked) if asked.number < 15 else HANG

    with Server(behave) as server:
        args = (
            "eval",
            "--env",
            toys.ENV,
            "--base-url",
            server.url,
            "--model",
            "tiny",
            "--concurrency",
            3,
            "--out",
            out,
        )
        process = toys.command(*args)
        assert ready.wait(60)
        while len(toys.records(out)) < 12:
            time.sleep(0.02)
        process.send_signal(how)
        output = process.communicate(timeout=60)[0]
        assert process.returncode == (-9 if how == signal.SIGKILL else 130), output
        kept = toys.records(out)
        assert 12 <= len(kept) < 24 and not (out / "summary.json").exists()
        if how != signal.SIGKILL:
            assert f"eval --resume {out}" in output.replace("\n", "") and "Traceback" not in output
        asked = len(server.asked)
        server.behave = half_wrong
        status, output = toys.run("eval", "--resume", out)
    assert status == 0, output
    assert f"{len(kept)} of 24 samples are there" in output
    # Nothing is asked again, nothing is missing, and the figures are those of a run in one go.
    assert len(server.asked) - asked == 24 - len(kept)
    assert toys.records(out).items() >= kept.items()
    assert len((out / REPLIES).read_text().splitlines()) == len((out / SCORES).read_text().splitlines()) == 24
    same_as(out, whole)


@pytest.mark.parametrize("stream", [REPLIES, SCORES])
@pytest.mark.parametrize("cut", [1, 40])
def test_torn_lines(stream, cut, tmp_path, whole):
    out = tmp_path / "run"
    with Server(half_wrong) as server:
        toys.start(out, **endpoint(server))
        text = (out / stream).read_bytes()
        (out / stream).write_bytes(text[:-cut])
        (out / "summary.json").unlink()
        toys.start(out, **endpoint(server))
    assert len(server.asked) == 25 if stream == REPLIES else 24
    same_as(out, whole)
    # A run that is whole needs no server.
    toys.start(out, **endpoint(server))
    same_as(out, whole)
    (out / REPLIES).write_text("{}x\n" + (out / REPLIES).read_text())
    with pytest.raises(GymError, match="line 1 is not JSON"):
        toys.start(out, **endpoint(server))


def test_replies_that_were_not_scored_are_scored_without_asking_again(tmp_path, whole):
    out = tmp_path / "run"
    with Server(half_wrong) as server:
        toys.start(out, **endpoint(server))
        lines = (out / SCORES).read_text().splitlines(keepends=True)
        (out / SCORES).write_text("".join(lines[:7]))
        printed, _ = toys.start(None, resume=out)
    assert len(server.asked) == 24 and "17 of them to be scored" in printed
    same_as(out, whole)


def test_the_same_again_does_nothing_new(tmp_path):
    with Server(adds) as server:
        _, first = toys.start(tmp_path / "r", **endpoint(server))
        files = (tmp_path / "r" / REPLIES).read_bytes(), (tmp_path / "r" / SCORES).read_bytes()
        _, again = toys.start(tmp_path / "r", **endpoint(server))
    assert len(server.asked) == 24 and again == first
    assert files == ((tmp_path / "r" / REPLIES).read_bytes(), (tmp_path / "r" / SCORES).read_bytes())


def test_another_configuration_is_refused(tmp_path):
    out = tmp_path / "r"
    with Server(adds) as server:
        toys.start(out, **endpoint(server, limit=3, concurrency=2))
        before = (out / "config.toml").read_text()
        for change, named in (
            ({"temperature": 0.5}, "temperature was 0.0, now 0.5"),
            ({"system": "Be brief.", "seed": 3}, "seed was 0, now 3; system was '', now 'Be brief.'"),
            ({"options": {"size": 30}}, "options.size was None, now 30"),
            ({"model": "large"}, "model was 'tiny', now 'large'"),
            ({"limit": 2}, "limit was 3, now 2. A run can grow, not shrink"),
        ):
            with pytest.raises(GymError) as refused:
                toys.start(out, **endpoint(server, **{"limit": 3, **change}))
            assert named in str(refused.value)
        with pytest.raises(GymError, match="top_p was 1.0, now 0.5"):
            toys.start(None, resume=out, top_p=0.5)
        assert (out / "config.toml").read_text() == before
        # What changes no result may change.
        toys.start(out, **endpoint(server, limit=3, concurrency=9, timeout=5.0, retries=1, price_in=1.0))
    assert len(server.asked) == 3


def test_a_run_grows(tmp_path):
    with Server(adds) as server:
        toys.start(tmp_path / "r", **endpoint(server, limit=5))
        _, outcome = toys.start(tmp_path / "r", **endpoint(server, limit=8, n=2))
        assert len(server.asked) == 16 and outcome.summary["samples"] == outcome.summary["scored"] == 16
        _, grown = toys.start(None, resume=tmp_path / "r", limit=0)
        _, fresh = toys.start(tmp_path / "fresh", **endpoint(server, n=2))
    assert grown.summary == fresh.summary
    seeds = sorted((a.prompt, a.body["seed"]) for a in server.asked[:48])
    assert seeds == sorted((f"{i} + {i} =", s) for i in range(24) for s in (0, 1))


def test_data_that_changed_are_refused(tmp_path, monkeypatch):
    toys.start(tmp_path / "r", model="reference", limit=2)
    monkeypatch.setattr(toys, "calculate", None)
    other = (toys.Path(toys.__file__).read_text()).replace("{i} + {i} =", "{i} plus {i} =")
    (tmp_path / "toys2.py").write_text(other)
    for name in ("config.toml", "run.json"):
        file = tmp_path / "r" / name
        file.write_text(file.read_text().replace(f'env = "{toys.ENV}', f'env = "{tmp_path}/toys2.py:sums'))
        file.write_text(file.read_text().replace(f'"env": "{toys.ENV}', f'"env": "{tmp_path}/toys2.py:sums'))
    with pytest.raises(GymError, match="cannot go on: benchmark.data was .*; benchmark.environment was"):
        toys.start(None, resume=tmp_path / "r")


def test_failures_are_recorded_and_retried_alone(tmp_path):
    bad = {"3", "7", "11"}
    seen = []

    def behave(asked):
        seen.append(asked.prompt)
        return Response(error("nope"), 418) if asked.prompt.split()[0] in bad else adds(asked)

    with Server(behave) as server:
        printed, outcome = toys.start(tmp_path / "r", **endpoint(server))
        summary = outcome.summary
        assert outcome.finished and summary["failed"] == {"rejected": 3} and summary["scored"] == 21
        assert [f["case"] for f in summary["failed_samples"]] == ["sum-3", "sum-7", "sum-11"]
        assert summary["columns"][0]["count"] == 21
        assert "Failed 3: rejected 3" in printed and "--retry-failed" in printed and "sum-11: HTTP 418: nope" in printed
        # Going on leaves them as they are; asked to, it asks for them and nothing else.
        bad.remove("7")
        toys.start(None, resume=tmp_path / "r")
        assert len(seen) == 24
        _, outcome = toys.start(None, resume=tmp_path / "r", retry_failed=True)
        assert sorted(seen[24:]) == ["11 + 11 =", "3 + 3 =", "7 + 7 ="]
        assert outcome.summary["failed"] == {"rejected": 2} and outcome.summary["scored"] == 22
        bad.clear()
        _, outcome = toys.start(None, resume=tmp_path / "r", retry_failed=True)
        _, fresh = toys.start(tmp_path / "fresh", **endpoint(server))
    assert outcome.summary == fresh.summary
    assert "HTTP 418: nope" in (tmp_path / "r/log.txt").read_text()


def test_everything_fails(tmp_path):
    with Server(lambda asked: Response(error("no"), 400)) as server:
        printed, outcome = toys.start(tmp_path / "r", **endpoint(server))
    assert outcome.finished and outcome.summary["failed"] == {"rejected": 24}
    assert outcome.summary["columns"][0] == {**outcome.summary["columns"][0], "value": None, "low": None, "count": 0}
    assert "0 of 24 samples answered" in printed


def test_a_wrong_key_stops_at_once_and_the_run_goes_on_with_a_right_one(tmp_path):
    with Server(lambda asked: Response(error("bad key"), 401)) as server:
        with pytest.raises(GymError, match="refuses all requests.*bad key"):
            toys.start(tmp_path / "r", **endpoint(server, concurrency=2))
        assert len(server.asked) <= 9
        server.behave = adds
        _, outcome = toys.start(None, resume=tmp_path / "r")
    assert outcome.summary["scored"] == 24


def test_a_full_disk(tmp_path, monkeypatch, whole):
    out = tmp_path / "run"
    real, writes = open, []

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            self.file.__enter__()
            return self

        def __exit__(self, *exc):
            self.file.__exit__(*exc)

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, text):
            self.file.write(text[:10])
            self.file.flush()
            raise OSError(errno.ENOSPC, "No space left on device")

    def full(path, mode="r", *args, **options):
        file = real(path, mode, *args, **options)
        if mode == "a" and str(path).endswith(REPLIES):
            writes.append(path)
            return Full(file) if len(writes) >= 9 else file
        return file

    with Server(half_wrong) as server:
        monkeypatch.setattr(run_files, "open", full, raising=False)
        with pytest.raises(GymError, match=f"cannot write .*{REPLIES}: No space left.*eval --resume {out}"):
            toys.start(out, **endpoint(server))
        monkeypatch.setattr(run_files, "open", real)
        # What was half written is gone, the rest is there.
        assert len(toys.records(out)) == 8
        toys.start(None, resume=out)
    same_as(out, whole)


def test_two_processes_do_not_write_to_one_run(tmp_path):
    inside, go = threading.Event(), threading.Event()

    def behave(asked):
        inside.set()
        return HANG if not go.is_set() else adds(asked)

    with Server(behave) as server:
        process = toys.command(
            "eval", "--env", toys.ENV, "--base-url", server.url, "--model", "m", "--out", tmp_path / "r"
        )
        assert inside.wait(60)
        for attempt in (lambda: toys.start(None, resume=tmp_path / "r"), lambda: rescore(tmp_path / "r")):
            with pytest.raises(GymError, match="another process is writing"):
                attempt()
        process.terminate()
        process.communicate(timeout=60)
        go.set()
        toys.start(None, resume=tmp_path / "r")
    assert len(toys.records(tmp_path / "r")) == 24
