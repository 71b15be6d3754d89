"""Files of a run, or of the cache, that somebody edited, cut or damaged."""

import shutil

import pytest

from corrgrpo_gym.cache import cache_folder
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners import curves, session
from corrgrpo_gym.learners.checkpoints import CONFIG, STATE
from corrgrpo_gym.learners.runfolder import RunFolder, read_records

from . import runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    assert runs.start(out).finished
    return out


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run", symlinks=True)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('algo = "corrgrpo"', 'algo = "gspo+gdpo"', "algo"),
        ("lora_rank = 0", "lora_rank = 4", "policy.lora_rank"),
        ("seed = 0", "seed = 1", "seed"),
    ],
)
def test_an_edited_configuration_is_not_gone_on_with(run, old, new, key):
    edit(run / "config.toml", old, new)
    before = runs.streams(run)
    with pytest.raises(GymError, match=rf"was edited since the last checkpoint: {key}\. .*{CONFIG}"):
        session.resume(run, 6)
    assert runs.streams(run) == before
    made_with = run / "checkpoints" / "step-000004" / CONFIG
    shutil.copy(made_with, run / "config.toml")
    assert session.resume(run, 6).finished


def test_an_emptied_configuration_is_not_taken_for_the_defaults(run):
    (run / "config.toml").write_text("")
    with pytest.raises(GymError, match="was edited since the last checkpoint: .*env"):
        session.resume(run, 6)


def test_what_changes_no_result_may_be_changed(run, capsys):
    edit(run / "config.toml", "micro_batch_tokens = 16384", "micro_batch_tokens = 64")
    assert session.resume(run, 5).steps == 5


def test_a_lost_stream_is_mentioned(run, capsys):
    (run / "metrics.jsonl").unlink()
    assert session.resume(run, 5).finished
    assert "metrics.jsonl is shorter than at the checkpoint" in capsys.readouterr().out
    assert [m["step"] for m in runs.records(run)] == [5]


def test_a_garbled_line_is_named(run):
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join([lines[0], "#" * (len(lines[1]) - 1) + "\n", *lines[2:]]))
    for use in (lambda: session.resume(run, 5), lambda: curves.draw([run], run / "c.png")):
        with pytest.raises(GymError, match=r"metrics\.jsonl, line 2 is not JSON"):
            use()


def test_a_line_that_is_being_written_is_left_out(run):
    whole = len(runs.records(run))
    with open(run / "metrics.jsonl", "a") as f:
        f.write('{"step": 5, "rew')
    assert len(read_records(run / "metrics.jsonl")) == whole


def test_a_live_run_can_be_drawn(run):
    writer = RunFolder.open(run)
    try:
        assert curves.draw([run], run / "c.png").stat().st_size > 1000
    finally:
        writer.close()


def test_other_data_are_not_gone_on_with(run):
    edit(run / "config.toml", 'data = "auto"', 'data = "elsewhere"')
    with pytest.raises(GymError, match="was edited since the last checkpoint: data"):
        session.resume(run, 5)


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_serves(run, keep, capsys):
    place = run / "checkpoints" / "step-000004"
    data = (place / STATE).read_bytes()
    assert keep < len(data)
    (place / STATE).write_bytes(data[:keep])
    with pytest.raises(GymError, match=r"step-000004 is damaged .*Remove that folder"):
        session.resume(run, 5)
    shutil.rmtree(place)
    assert session.resume(run, 5).steps == 5


@pytest.mark.parametrize("damage", ["missing", "cut", "empty"])
def test_a_damaged_cache_is_made_again(damage, finished, tmp_path, capsys):
    for place in cache_folder().glob("policy-*"):
        weights = place / "model.safetensors"
        if damage == "missing":
            weights.unlink()
        elif damage == "cut":
            weights.write_bytes(weights.read_bytes()[:500])
        else:
            shutil.rmtree(place)
            place.mkdir()
    assert runs.start(tmp_path / "run").finished
    assert "is damaged: it is made again" in capsys.readouterr().out
    assert runs.streams(tmp_path / "run") == runs.streams(finished)
    assert runs.start(tmp_path / "again").finished
    assert "policy taken from" in capsys.readouterr().out


def test_export_to_a_file(run):
    with pytest.raises(GymError, match=r"cannot write to .*config\.toml"):
        session.export(run, run / "config.toml")
