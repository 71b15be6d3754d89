"""What an evaluation prints, at the widths of terminals."""

import io

import pytest
from rich.console import Console

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals import registry, screen
from corrgrpo_gym.evals.config import resolve
from corrgrpo_gym.evals.metrics import Column, Sample, mean
from corrgrpo_gym.evals.models.base import ModelFailure, Reply, Usage
from corrgrpo_gym.evals.paper import paper_rows

from . import toys
from .server import Response, Server, completion

CODE = {"pass@1": "humaneval_pass@1"}
LEETCODE = {"efficiency": "leetcode_efficiency", "executable": "leetcode_executable", "pass@1": "leetcode_pass@1"}


def test_the_papers_row_of_a_model():
    (row,) = paper_rows(CODE, "org/Qwen2.5-Coder-0.5B-Instruct")
    assert row.figures["pass@1"] == {"base": 54.88, "grpo": 57.32, "gdpo": 57.32, "corrgrpo": 59.76}
    assert paper_rows(LEETCODE, "qwen2.5-coder-7b-instruct")[0].figures["efficiency"]["dapo"] == 40.48
    assert len(paper_rows(CODE, "another")) == 4
    (row,) = paper_rows(CODE, "another", "Qwen2.5-Coder-3B-Instruct")
    assert row.figures["pass@1"]["base"] == 82.32
    (row,) = paper_rows({"asr": "agentdojo_asr"}, "Qwen/Qwen3-8B")
    assert row.figures["asr"] == {"base": 19.49, "grpo": 2.05, "corrgrpo": 1.54}
    with pytest.raises(GymError, match="Did you mean 'Qwen2.5-Coder-3B-Instruct'"):
        paper_rows(CODE, "x", "Qwen2.5-Coder-3B-Instrukt")
    with pytest.raises(GymError, match="no figures for this benchmark"):
        paper_rows({}, "x")


def made(tmp_path, monkeypatch, **more):
    bench = registry.make(toys.ENV, size=6)
    bench.columns = [Column(name, name, mean("correct")) for name in LEETCODE]
    bench.paper, bench.passing = LEETCODE, "correct"
    monkeypatch.setattr(registry, "make", lambda *a, **k: bench)
    return bench


@pytest.mark.parametrize("width", [80, 160])
def test_the_papers_figures_stand_beside_ours_and_everything_fits(width, tmp_path, monkeypatch):
    made(tmp_path, monkeypatch)
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    for model, row in (("Qwen2.5-Coder-7B-Instruct", ""), ("mine", ""), ("mine", "Qwen2.5-Coder-3B-Instruct")):
        with Server(lambda asked: Response(completion(toys.calculate(asked.prompt)))) as server:
            toys.start(tmp_path / f"{model}{row}", console, base_url=server.url, model=model, paper=True, paper_row=row)
    text = out.getvalue()
    tables = [line for line in text.splitlines() if line[:1] in "┏┡└│┃"]
    assert tables and max(map(len, tables)) <= width
    seven = text[text.index("paper") :]
    assert "44.35" in seven and "51.42" in seven and "14.91" in seven
    # All eight of the paper's methods need room; a narrow terminal shows the base model, GRPO and CorrGRPO.
    assert ("dapo" in seven[: seven.index("Paper:")]) == (width == 160)
    assert "The paper's figures, in percent" in text and "67.86" in text  # of all its models, for ours is none of them
    assert "Paper: Qwen2.5-Coder-3B-Instruct" in text
    assert "100.00" in text and "60.97 to 100.00" in text


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(screen.time, "monotonic", lambda: self.now)


def watched(monkeypatch, width, terminal):
    clock, out = Clock(monkeypatch), io.StringIO()
    console = Console(file=out, width=width, highlight=False, force_terminal=terminal)
    bench = registry.make(toys.ENV)
    config = resolve({"env": toys.ENV, "model": "m", "price_in": 1.0, "price_out": 5.0})
    return screen.EvalScreen(bench, config, console), clock, out


def feed(shown, clock, samples):
    for i in range(100):
        clock.now += 0.5
        key = (f"sum-{i}", 0)
        if i % 10 == 3:
            shown.replied(key, [], ModelFailure("timeout", "slow"))
        else:
            shown.replied(key, [Reply({"content": "x"}, usage=Usage(1000, 200))], None)
            samples[key] = Sample(key[0], key[0], "", {"correct": 1.0})
            shown.scored(samples[key])


def test_plain_lines_where_there_is_no_terminal(monkeypatch):
    shown, clock, out = watched(monkeypatch, 80, False)
    samples = {}
    shown.begin(400, 100, samples)
    feed(shown, clock, samples)
    shown.end()
    (line,) = out.getvalue().strip().splitlines()  # one in 50 seconds
    assert line.startswith("159/400  2.0/s  2 min left  failed 6 (timeout 6)  correct 1.000")
    assert line.endswith("54 k in, 11 k out  cost 0.11")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_line_of_a_terminal_fits(width, monkeypatch):
    shown, clock, out = watched(monkeypatch, width, True)
    samples = {}
    shown.begin(400, 100, samples)
    feed(shown, clock, samples)
    line = shown._line(width - 17).replace("[red]", "").replace("[/]", "")
    assert line.startswith("200/400") and len(line) <= width - 17
    assert ("cost" in line) == (width == 120)
    shown.end()


def test_figures_for_people():
    assert [screen.clock(s) for s in (5, 89, 600, 7200)] == ["5 s", "89 s", "10 min", "2.0 h"]
    assert [screen.count(n) for n in (0, 9999, 12_345, 12_345_678)] == ["0", "9999", "12 k", "12 M"]
    assert (
        screen.figure(None, True) == "-"
        and screen.figure(0.5, True) == "50.00"
        and screen.figure(-2, False) == "-2.000"
    )
    names = [f"case-{i}" for i in range(40)]
    assert screen.named(names, 40).endswith("case-11, and 28 more in summary.json")
    assert screen.named(names[:3], 3) == "case-0, case-1, case-2"


def test_the_time_left_grows_while_a_sample_takes_long(tmp_path, monkeypatch):
    bench = made(tmp_path, monkeypatch)
    now = [0.0]
    monkeypatch.setattr(screen.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    shown = screen.EvalScreen(bench, resolve({"env": toys.ENV, "model": "reference"}), Console(file=out, width=100))
    shown.status = lambda: "timing a-case"
    shown.begin(6, 0, {})
    for now[0] in (1.0, 2.0, 3.0):
        shown.scored(Sample("a", "a", "", {"correct": 1.0}))
    for now[0] in (40.0, 80.0):
        shown.tick()
    lines = [line for line in out.getvalue().splitlines() if "3/6" in line]
    assert len(lines) == 2 and "40 s left" in lines[0] and "80 s left" in lines[1] and "timing a-case" in lines[1]
