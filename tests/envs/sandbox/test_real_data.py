"""References of LeetCodeDataset, where the data is at hand."""

import gzip
import json
from pathlib import Path

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob, make_sandbox

DATA = Path(__file__).parents[4] / "shared/data/leetcodedataset"


def rows():
    if not DATA.is_dir():
        pytest.skip("the data set is not here")
    known = {}
    for line in (DATA / "test_reference_check.jsonl").read_text().splitlines():
        row = json.loads(line)
        known[row["task_id"]] = row["ref_cpu_s"]
    for split in ("test", "train"):
        with gzip.open(DATA / f"LeetCodeDataset-{split}.jsonl.gz", "rt") as file:
            for line in file:
                row = json.loads(line)
                if "numpy" in row["completion"]:
                    continue  # the sandbox has none
                if split == "train" or (known.get(row["task_id"]) or 99) < 0.05:
                    yield row


def test_references_pass_and_broken_ones_do_not():
    with make_sandbox(workers=1) as sandbox:
        for i, row in enumerate(rows()):
            if i % 25:
                continue
            job = {
                "name": row["task_id"],
                "prelude": row["prompt"],
                "test": row["test"],
                "entry_point": row["entry_point"],
            }
            verdict = sandbox.judge(CodeJob(answer=f"```python\n{row['completion']}\n```", **job))
            assert verdict.status == "passed", (row["task_id"], verdict)
            name = row["entry_point"].removeprefix("Solution().")
            broken = row["completion"] + f"\nSolution.{name} = lambda self, *a, **k: (-12345, 'no')\n"
            verdict = sandbox.judge(CodeJob(answer=f"```python\n{broken}\n```", **job))
            assert verdict.status in ("failed", "runtime_error"), (row["task_id"], verdict)
