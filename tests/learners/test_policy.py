import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners import policy as policies
from corrgrpo_gym.learners.config import PolicyConfig
from corrgrpo_gym.learners.policy import Piece, load_model, load_policy, micro_batches, token_logps

from . import tiny

PIECES = [
    Piece([5, 6, 7, 8, 9, 10, 11], [[12, 3, 4, 1], [9], [8, 8, 8, 8, 8, 1], [7, 1]]),
    Piece([3], [[9, 9, 1], [8, 7, 6, 5]]),
    Piece([4, 20], [[2], [30], [1]]),
    Piece(list(range(2, 32)), [[33, 34, 1], [35, 1]]),
]
# transformers' eager attention computes its softmax in float32.
CLOSE = {"sdpa": 1e-9, "eager": 2e-6}
ROWS = sum(len(p.completions) for p in PIECES)


def _weights():
    """A weight per row and token, so that no two errors cancel."""
    generator = torch.Generator().manual_seed(3)
    return torch.randn((ROWS, 16), generator=generator, dtype=torch.float64)


def _logps_and_gradient(policy, budget, shared, pieces=PIECES):
    """All rows' log-probabilities, and the gradient of their weighted sum over micro-batches."""
    weights, rows = _weights(), {}
    policy.model.zero_grad()
    for batch, numbers in micro_batches(pieces, budget, shared):
        logp, mask = policy.logps(batch, 1.3, shared=shared)
        (logp * weights[numbers, : logp.shape[1]])[mask].sum().backward()
        for number, values, seen in zip(numbers, logp.detach(), mask, strict=True):
            rows[number] = values[seen]
    gradient = torch.cat([p.grad.flatten() for p in policy.trainable()])
    return [rows[i] for i in range(ROWS)], gradient


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_shared_prompts_change_neither_log_probabilities_nor_gradients(kind, attention):
    policy = tiny.policy(kind, attention, dtype=torch.float64)
    assert policy.can_share
    rows, gradient = _logps_and_gradient(policy, 10**6, shared=False)
    assert gradient.norm() > 1
    for budget in (10**6, 90, 40, 1):
        shared_rows, shared_gradient = _logps_and_gradient(policy, budget, shared=True)
        for a, b in zip(rows, shared_rows, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=CLOSE[attention])
        # RMSNorm computes in float32.
        assert (gradient - shared_gradient).abs().max() < 1e-6 * gradient.abs().max()
        assert torch.cosine_similarity(gradient, shared_gradient, dim=0) > 1 - 1e-12


def test_the_plain_path_is_what_the_model_says_of_each_sequence_alone():
    policy = tiny.policy(dtype=torch.float64)
    rows, _ = _logps_and_gradient(policy, 10**6, shared=False)
    sequences = [(p.prompt, c) for p in PIECES for c in p.completions]
    for row, (prompt, completion) in zip(rows, sequences, strict=True):
        logits = policy.model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
        expected = (logits / 1.3).log_softmax(-1)[range(len(completion)), completion]
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_sliding_windows_see_positions_not_padding(attention):
    policy = tiny.policy("mistral", attention, dtype=torch.float64, sliding_window=4)
    assert not policy.can_share
    rows, gradient = _logps_and_gradient(policy, 10**6, shared=True)
    assert gradient.isfinite().all()
    sequences = [(p.prompt, c) for p in PIECES for c in p.completions]
    for row, (prompt, completion) in zip(rows, sequences, strict=True):
        logits = policy.model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
        expected = (logits / 1.3).log_softmax(-1)[range(len(completion)), completion]
        torch.testing.assert_close(row, expected, rtol=0, atol=CLOSE[attention])


def test_prompts_carry_gradient():
    """Without the prompts' part the gradient would be another one: the shared path must not lose it."""
    policy = tiny.policy(dtype=torch.float64)
    policy.logps([PIECES[0]], 1.0)[0].sum().backward()
    only_in_prompt = policy.model.get_input_embeddings().weight.grad[[5, 6]]
    assert (only_in_prompt.abs().sum(-1) > 1e-6).all()


def test_gradient_checkpointing_recomputes_and_changes_nothing(tmp_path):
    source = str(tiny.folder(tmp_path / "model", attention_dropout=0.5))
    plain = load_policy(source, PolicyConfig(device="cpu"))
    recomputing = load_policy(source, PolicyConfig(device="cpu", gradient_checkpointing=True))
    calls = []
    recomputing.model.get_decoder().layers[1].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    rows, gradient = _logps_and_gradient(plain, 60, shared=True)
    again, gradient_again = _logps_and_gradient(recomputing, 60, shared=True)
    assert len(calls) == 2 * len(list(micro_batches(PIECES, 60, True)))
    for a, b in zip(rows, again, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    torch.testing.assert_close(gradient, gradient_again, rtol=1e-3, atol=1e-3)


def test_gradient_checkpointing_of_adapters(tmp_path):
    source = str(tiny.folder(tmp_path / "model"))
    made = [
        load_policy(source, PolicyConfig(device="cpu", lora_rank=2, gradient_checkpointing=gc)) for gc in (False, True)
    ]
    for policy in made:
        _fill_adapters(policy)
    (_, a), (_, b) = (_logps_and_gradient(policy, 80, shared=True) for policy in made)
    assert a.abs().max() > 0
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_train_last_blocks_moves_those_and_the_norm(tmp_path):
    source = str(tiny.folder(tmp_path / "model"))
    policy = load_policy(source, PolicyConfig(device="cpu", train_last_blocks=2))
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    optimizer = torch.optim.SGD(policy.trainable(), lr=0.1)
    policy.logps(PIECES, 1.0)[0].sum().backward()
    optimizer.step()
    moved = {name for name, p in policy.model.named_parameters() if not torch.equal(p, before[name])}
    expected = {n for n in before if n.startswith(("model.layers.1.", "model.layers.2.")) or n == "model.norm.weight"}
    assert moved == expected and expected
    with pytest.raises(GymError, match="train_last_blocks is 4.*has 3 blocks"):
        load_policy(source, PolicyConfig(device="cpu", train_last_blocks=4))


def _fill_adapters(policy):
    """Adapters begin as nothing; give them something to say."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in policy.trainable():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator))


def test_lora_reference_is_the_base_model_and_merging_is_exact(tmp_path):
    source = str(tiny.folder(tmp_path / "model"))
    base = load_policy(source, PolicyConfig(device="cpu"))
    policy = load_policy(source, PolicyConfig(device="cpu", lora_rank=4), reference=True)
    _fill_adapters(policy)
    with torch.no_grad():
        expected, mask = base.logps(PIECES, 1.0)
        adapted = policy.logps(PIECES, 1.0)[0][mask]
        for shared in (True, False):
            reference = policy.logps(PIECES, 1.0, shared=shared, reference=True)[0]
            torch.testing.assert_close(reference[mask], expected[mask], rtol=0, atol=1e-5)
        assert (adapted - expected[mask]).abs().max() > 0.1
        policy.save(tmp_path / "adapter")
        again = load_policy(source, PolicyConfig(device="cpu", lora_rank=4), adapter=tmp_path / "adapter")
        torch.testing.assert_close(again.logps(PIECES, 1.0)[0][mask], adapted, rtol=0, atol=0)
        assert [p.shape for p in again.trainable()] == [p.shape for p in policy.trainable()]
        merged = again.merged()
        torch.testing.assert_close(
            policies.Policy(merged, tiny.EndOnly(), PolicyConfig()).logps(PIECES, 1.0)[0][mask],
            adapted, rtol=0, atol=1e-4,
        )  # fmt: skip


def test_lora_leaves_the_base_alone_and_takes_only_the_last_blocks(tmp_path):
    source = str(tiny.folder(tmp_path / "model"))
    policy = load_policy(source, PolicyConfig(device="cpu", lora_rank=2, train_last_blocks=1))
    names = [n for n, p in policy.model.named_parameters() if p.requires_grad]
    assert names and all("lora_" in n and ".layers.2." in n for n in names)
    assert json.loads(json.dumps(policy.describe())).count("M trained")


def test_new_adapters_depend_on_the_seed_alone(tmp_path):
    source = str(tiny.folder(tmp_path / "model"))

    def weights(seed):
        torch.rand(3)  # whatever has been drawn before
        policy = load_policy(source, PolicyConfig(device="cpu", lora_rank=2), seed=seed)
        return torch.cat([p.detach().flatten() for p in policy.trainable()])

    assert torch.equal(weights(1), weights(1)) and not torch.equal(weights(1), weights(2))


def test_the_reference_keeps_the_initial_weights():
    policy = tiny.policy(reference=True)
    with torch.no_grad():
        first, mask = policy.logps(PIECES, 1.0)
        for p in policy.trainable():
            p.add_(0.05 * torch.randn(p.shape))
        now = policy.logps(PIECES, 1.0)[0]
        reference = policy.logps(PIECES, 1.0, reference=True)[0]
    torch.testing.assert_close(reference[mask], first[mask], rtol=0, atol=0)
    assert (now - first)[mask].abs().max() > 1e-3


def test_chunked_log_probabilities_are_the_whole_ones(monkeypatch):
    torch.manual_seed(0)
    logits = torch.randn(5, 7, 11, dtype=torch.float64, requires_grad=True)
    ids, weights = torch.randint(11, (5, 7)), torch.randn(5, 7, dtype=torch.float64)

    def run():
        out = token_logps(logits, ids, 0.7)
        (gradient,) = torch.autograd.grad((out * weights).sum(), logits)
        return out.detach(), gradient

    whole, chunks = run(), []
    one = policies._chunk_logps
    monkeypatch.setattr(policies, "_chunk_logps", lambda *a: chunks.append(len(a[0])) or one(*a))
    monkeypatch.setattr(policies, "CHUNK", 4 * 11 + 3)
    chunked = run()
    assert max(chunks) == 4 and len(chunks) == 2 * 9  # forward, and again in backward
    for a, b in zip(whole, chunked, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)
    expected = (logits / 0.7).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    torch.testing.assert_close(whole[0], expected.detach(), rtol=0, atol=1e-14)


lengths = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), lengths), min_size=1, max_size=6), st.integers(1, 150), st.booleans())
def test_micro_batches_hold_every_row_once_within_the_budget(groups, budget, shared):
    pieces, number = [], 0
    for size, completions in groups:
        rows = []
        for length in completions:
            rows.append([number] * length)  # each row says which it is
            number += 1
        pieces.append(Piece([7] * size, rows))
    seen = []
    for batch, numbers in micro_batches(pieces, budget, shared):
        rows = [c for piece in batch for c in piece.completions]
        assert [row[0] for row in rows] == numbers
        for piece in batch:
            for row in piece.completions:
                owner = next(p for p in pieces if any(c is row for c in p.completions))
                assert piece.prompt == owner.prompt
        prompt, longest = max(len(p.prompt) for p in batch), max(map(len, rows))
        padded = (len(batch) if shared else len(rows)) * prompt + len(rows) * longest
        assert padded <= budget or len(rows) == 1
        seen += numbers
    assert sorted(seen) == list(range(number))


def test_what_cannot_be_loaded_is_named(tmp_path):
    with pytest.raises(GymError, match="model .*nothing: there is no such file or folder"):
        load_model(str(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(GymError, match="cannot load the model '.*empty'"):
        load_model(str(tmp_path / "empty"))
    with pytest.raises(GymError, match="no such file"):
        load_model(str(tmp_path / "model.gguf"))
    folder = tiny.folder(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0broken")
    with pytest.raises(GymError, match="cannot load the model"):
        load_model(str(folder))


def test_devices():
    with pytest.raises(GymError, match="'gpu' is not a device"):
        policies._device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(GymError, match="torch sees no GPU"):
            policies._device("cuda:1")
