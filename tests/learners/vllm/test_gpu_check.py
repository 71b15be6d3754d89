"""scripts/gpu_check.py with vLLM installed, tried on the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_part_with_vllm(tmp_path):
    code = (
        "import sys; sys.path.insert(0, 'scripts'); import gpu_check as g; c = g.Check('cpu'); "
        "import json; print(json.dumps(g.vllm_part(c)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["float32"]["gap_max_after_push"] < 1e-4 < figures["float32"]["gap_max_with_old_weights"]
    assert figures["bfloat16"]["gap_max_after_push"] < figures["bfloat16"]["gap_max_with_old_weights"]
    assert all(f["sampling_tokens_per_s_at_most"] > 0 for f in figures.values())
