"""scripts/gpu_check.sh, tried on the CPU: what it does on a GPU machine but for the sizes and the card's figures."""

import json
import os
import subprocess
import sys
from pathlib import Path

from corrgrpo_gym.corrgrpo import catalogue

SCRIPT = Path(__file__).parents[1] / "scripts/gpu_check.sh"


def test_it_runs_every_part_and_writes_the_figures(tmp_path):
    out = tmp_path / "new/figures.json"
    done = subprocess.run(
        ["sh", str(SCRIPT), "--device", "cpu", "--out", str(out)],
        env=os.environ | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(out.read_text())
    assert set(figures) == {"machine", "limits", "shared_prefix", "algorithms", "speed", "vllm"}
    assert set(figures["algorithms"]) == {row.name for row in catalogue.algorithms()}
    assert figures["shared_prefix"]["float32"]["gradient_cosine"] > 0.99999
    assert all(f["largest_change"] > 0 and f["sampler_gap_max"] < 1e-3 for f in figures["algorithms"].values())
    speed = figures["speed"]
    assert speed["sampling_tokens_per_s"] > 0 and speed["updating_tokens_per_s"] > 0
    assert speed["memory_gib"]["updating"]["estimated"] > 0


def test_a_part_that_fails_fails_the_script_and_is_named(tmp_path):
    code = (
        "import sys; sys.path.insert(0, 'scripts'); import gpu_check as g; g.limits = lambda c: 1 / 0; sys.argv[1:] = "
    )
    code += f"['--device', 'cpu', '--out', {str(tmp_path / 'f.json')!r}]; sys.exit(g.main())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=SCRIPT.parents[1], capture_output=True, text=True, timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 1 and "FAILED" in done.stdout
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["limits"] == {"failed": "ZeroDivisionError: division by zero"} and "grpo" in figures["algorithms"]


def test_an_interpreter_without_torch_is_told(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    done = subprocess.run(["sh", str(SCRIPT)], env=os.environ | {"PYTHON": str(bare)}, capture_output=True, text=True)
    assert done.returncode == 2 and "has no torch or no transformers" in done.stderr
