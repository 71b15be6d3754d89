"""Our functions against what peers' own returned (TRL, verl, NVIDIA's GDPO, CorrGRPO's authors, DARA)."""

import pytest
import torch

from . import peers


@pytest.mark.parametrize("name", peers.OURS)
def test_equals_peer(name):
    wrong, checked = [], 0
    for case in peers.suites()[name]["cases"]:
        rtol, atol = peers.tolerance(name, case)
        for what, ours, theirs in peers.OURS[name](case):
            ours, theirs = torch.as_tensor(ours).double(), peers.tensor(theirs)
            assert ours.shape == theirs.shape, (case["id"], what)
            if case["ill_conditioned"]:
                right = bool(ours.isfinite().all())
            else:
                right = torch.allclose(ours, theirs, rtol=rtol, atol=atol)
            checked += 1
            if not right:
                wrong.append(f"{case['id']} {what}: off by {(ours - theirs).abs().max():.3g}")
    assert checked >= 3
    assert not wrong, "\n".join(wrong)


def test_copy_is_small_and_covers_every_suite(monkeypatch):
    assert peers.COPY.stat().st_size < 200_000
    monkeypatch.setattr(peers, "WHOLE", peers.COPY)
    peers.suites.cache_clear()
    copy = peers.suites()
    peers.suites.cache_clear()
    assert set(copy) == set(peers.OURS)
    assert all(len(suite["cases"]) >= 3 for suite in copy.values())
