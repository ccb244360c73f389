"""Oracles for losses, drafts and sampler: finite differences, brute force, and the sampler of transformers."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from companion.models import DecoderLM, LMConfig
from companion.testing import load_method

method = load_method("lk_losses")
LOSSES = method.LOSSES
LK_AND_TV = ("KL", "TV", "LK-alpha", "LK-lambda")


def logits(*shape, seed=0, scale=2.0, dtype=torch.float64):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.fixture(scope="module")
def target():
    """A small language model with sharp, context-dependent predictions."""
    generator = torch.Generator().manual_seed(0)
    model = DecoderLM(LMConfig(vocab=20, d_model=16, n_layers=2, n_heads=2, max_len=64), generator).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4.0)
    return model


@pytest.fixture(scope="module")
def states(target):
    generator = torch.Generator().manual_seed(1)
    tokens = target.generate(torch.randint(20, (64, 1), generator=generator), 30, generator=generator)
    return method.read_target(target, tokens)


def new_draft(kind, K=3, draft_vocab=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if kind == "heads":
        return method.DraftHeads(16, 4, 20, K, draft_vocab, generator)
    return method.DraftModel(16, 8, 20, K, 2, draft_vocab, generator)


@pytest.fixture(scope="module", params=["heads", "model"])
def draft(request, states):
    """A draft after some training, so that it has opinions."""
    trained = new_draft(request.param)
    generator = torch.Generator().manual_seed(2)
    method.train_draft(trained, states, method.kl_loss, steps=40, lr=0.03, generator=generator)
    return trained


# Losses


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_agree_with_finite_differences(name):
    p, q = logits(3, 5, 7), logits(3, 5, 7, seed=1).requires_grad_()
    loss = functools.partial(method.lk_lambda_loss, eta=0.0) if name == "LK-lambda" else LOSSES[name]
    for reduction in ("mean", "sum", "none"):
        assert torch.autograd.gradcheck(lambda z, r=reduction: loss(p, z, reduction=r), q)


def test_the_gradient_of_lk_lambda_holds_its_weight_fixed():
    p, q = logits(6, 7), logits(6, 7, seed=1).requires_grad_()
    weight = math.exp(-3 * float(method.acceptance_rate(p, q).mean()))
    fixed = weight * method.kl_loss(p, q) + (1 - weight) * method.tv_loss(p, q)
    loss = method.lk_lambda_loss(p, q)
    torch.testing.assert_close(loss, fixed, rtol=1e-12, atol=0)
    expected, got = (torch.autograd.grad(x, q)[0] for x in (fixed, loss))
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-14)


def test_values_against_plain_arithmetic():
    p, q = logits(4, 9), logits(4, 9, seed=1)
    P, Q = np.exp(p.log_softmax(-1).numpy()), np.exp(q.log_softmax(-1).numpy())
    alpha, kl = np.minimum(P, Q).sum(-1), (P * np.log(P / Q)).sum(-1)
    M, entropy = (P + Q) / 2, -(P * np.log(P)).sum(-1)
    weight = np.exp(-3 * alpha.mean())
    expected = {
        "KL": kl,
        "TV": np.abs(P - Q).sum(-1) / 2,
        "LK-alpha": -np.log(alpha),
        "LK-lambda": weight * kl + (1 - weight) * (1 - alpha),
        "reverse KL": (Q * np.log(Q / P)).sum(-1),
        "Jensen-Shannon": ((P * np.log(P / M)).sum(-1) + (Q * np.log(Q / M)).sum(-1)) / 2,
        "entropy-weighted KL": kl * entropy / entropy.mean(),
    }
    assert set(expected) == set(LOSSES)
    np.testing.assert_allclose(method.acceptance_rate(p, q), alpha, rtol=1e-12)
    for name, values in expected.items():
        np.testing.assert_allclose(LOSSES[name](p, q, reduction="none"), values, rtol=1e-10, err_msg=name)
        np.testing.assert_allclose(LOSSES[name](p, q, reduction="sum"), values.sum(), rtol=1e-10, err_msg=name)
        np.testing.assert_allclose(LOSSES[name](p, q), values.mean(), rtol=1e-10, err_msg=name)


def test_kl_is_pytorchs():
    p, q = logits(4, 9), logits(4, 9, seed=1)
    expected = F.kl_div(q.log_softmax(-1), p.log_softmax(-1), log_target=True, reduction="batchmean")
    torch.testing.assert_close(method.kl_loss(p, q), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_zero_only_for_equal_laws(name):
    p = logits(4, 9)
    z = (p + 3).requires_grad_()
    at_optimum = LOSSES[name](p, z, reduction="none")
    assert at_optimum.abs().max() < 1e-12
    assert torch.autograd.grad(at_optimum.sum(), z)[0].abs().max() < 1e-12
    assert (LOSSES[name](p, p + logits(4, 9, seed=1, scale=0.01), reduction="none") > 1e-9).all()


@pytest.mark.parametrize("name", LOSSES)
def test_logit_shifts_and_permutations_change_nothing(name):
    p, q = logits(4, 9), logits(4, 9, seed=1)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    value = LOSSES[name](p, q, reduction="none")
    torch.testing.assert_close(LOSSES[name](p + 5, q - 7, reduction="none"), value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(LOSSES[name](p[:, order], q[:, order], reduction="none"), value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nearly_disjoint_laws_have_a_finite_exact_gradient(dtype):
    """Overlap e^-69 = 1e-30: the gradient is that of log(q_0 + p_1), and pulls q towards token 0."""
    p = torch.tensor([[0.0, -69.08]], dtype=dtype)
    z = torch.tensor([[-69.08, 0.0]], dtype=dtype, requires_grad=True)
    loss = method.lk_alpha_loss(p, z)
    (gradient,) = torch.autograd.grad(loss, z)
    assert float(loss) == pytest.approx(69.08 - math.log(2), rel=1e-5)
    np.testing.assert_allclose(gradient[0], [-0.5, 0.5], rtol=1e-4)


def test_positions_without_any_overlap_count_zero():
    p = torch.tensor([[0.0, -math.inf], [0.0, 0.0]])
    z = torch.tensor([[-math.inf, 0.0], [1.0, 0.0]], requires_grad=True)
    loss = method.lk_alpha_loss(p, z, reduction="none")
    assert loss[0] == 0
    assert loss[1] > 0
    assert torch.autograd.grad(loss.sum(), z)[0].isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
def test_bfloat16_agrees_with_float32(name):
    p, q = logits(64, 50).bfloat16(), logits(64, 50, seed=1).bfloat16()
    low, high = LOSSES[name](p, q), LOSSES[name](p.float(), q.float())
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, high, rtol=1e-2, atol=1e-2)


def test_eta_goes_from_kl_to_tv():
    p, q = logits(4, 9), logits(4, 9, seed=1)
    torch.testing.assert_close(method.lk_lambda_loss(p, q, eta=0.0), method.kl_loss(p, q))
    torch.testing.assert_close(method.lk_lambda_loss(p, q, eta=math.inf), method.tv_loss(p, q))


def test_each_head_has_its_own_weight():
    p, q = logits(3, 4, 9), logits(3, 4, 9, seed=1)
    separate = torch.stack([method.lk_lambda_loss(*head) for head in zip(p, q, strict=True)])
    together = method.lk_lambda_loss(p, q, reduction="none", group_dims=1).mean(1)
    torch.testing.assert_close(together, separate)
    assert not torch.allclose(method.lk_lambda_loss(p, q, reduction="none").mean(1), separate)


def test_temperature():
    p, q = logits(4, 9), logits(4, 9, seed=1)
    torch.testing.assert_close(method.acceptance_rate(p, q, 0.5), method.acceptance_rate(2 * p, 2 * q))
    greedy = method.acceptance_rate(p, q, temperature=0)
    torch.testing.assert_close(greedy, (p.argmax(-1) == q.argmax(-1)).double())
    torch.testing.assert_close(method.acceptance_rate(p, 9 * p, temperature=0), torch.ones(4, dtype=torch.float64))


def test_draft_vocabulary_keeps_the_targets_normalisation():
    p, q, S = logits(4, 9), logits(4, 3, seed=1), torch.tensor([7, 2, 4])
    P, Q = p.softmax(-1)[:, S], q.softmax(-1)
    alpha = torch.minimum(P, Q).sum(-1)
    torch.testing.assert_close(method.acceptance_rate(p, q, draft_vocab=S), alpha)
    assert (alpha <= P.sum(-1)).all()
    for name, expected in (("TV", 1 - alpha), ("LK-alpha", -alpha.log())):
        torch.testing.assert_close(LOSSES[name](p, q, reduction="none", draft_vocab=S), expected)
    kl = method.kl_loss(p[:, S], q, reduction="none")  # renormalised
    torch.testing.assert_close(method.kl_loss(p, q, reduction="none", draft_vocab=S), kl)
    weight = math.exp(-3 * float(alpha.mean()))
    mixed = weight * kl + (1 - weight) * (1 - alpha)
    torch.testing.assert_close(method.lk_lambda_loss(p, q, reduction="none", draft_vocab=S), mixed)


@pytest.mark.parametrize("eta", [3.0, 0.0, None])
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 4000), (9,)])
def test_fused_loss_is_the_plain_one(eta, shape):
    plain = method.lk_alpha_loss if eta is None else functools.partial(method.lk_lambda_loss, eta=eta)
    p, z = logits(*shape), logits(*shape, seed=1).requires_grad_()
    expected, got = plain(p, z), method.fused_lk_loss(p, z, eta)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
    gradients = [torch.autograd.grad(2 * loss, z)[0] for loss in (expected, got)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: method.kl_loss(logits(4, 9), logits(4, 8)), "q_logits"),
        (lambda: method.tv_loss(logits(4, 9), logits(3, 9)), "q_logits"),
        (lambda: method.tv_loss(logits(4, 9), logits(4, 9), draft_vocab=torch.arange(3)), "q_logits"),
        (lambda: method.lk_alpha_loss(logits(4, 9), torch.full((4, 9), math.nan)), "NaN"),
        (lambda: method.kl_loss(torch.full((4, 9), math.nan), logits(4, 9)), "NaN"),
        (lambda: method.acceptance_rate(torch.full((4, 9), math.nan), logits(4, 9)), "NaN"),
        (lambda: method.fused_lk_loss(torch.full((4, 9), math.nan), logits(4, 9)), "NaN"),
        (lambda: method.fused_lk_loss(logits(4, 9), logits(4, 8)), "q_logits"),
        (lambda: method.fused_lk_loss(logits(4, 9), logits(4, 9), eta=-1.0), "eta=-1"),
        (lambda: method.kl_loss(torch.ones(4, 9, dtype=torch.long), logits(4, 9)), "p_logits"),
        (lambda: method.kl_loss(logits(4, 9), logits(4, 9), reduction="max"), "reduction='max'"),
        (lambda: method.lk_lambda_loss(logits(4, 9), logits(4, 9), eta=-0.1), "eta=-0.1"),
        (lambda: method.acceptance_rate(logits(4, 9), logits(4, 9), temperature=-1.0), "temperature=-1"),
        (lambda: method.expected_accepted_length(torch.zeros(3, 0)), "alphas"),
        (lambda: method.expected_accepted_length(torch.full((3, 2), 1.5)), "alphas"),
        (lambda: method.expected_accepted_length(torch.ones(3, 2), torch.ones(3, 2)), "ratios"),
        (lambda: method.multi_head_loss(method.kl_loss, logits(2, 3, 9), logits(2, 3, 9), gamma=0.0), "gamma=0"),
        (lambda: method.DraftHeads(8, 2, 9, 0), "K=0"),
        (lambda: method.DraftModel(8, 4, 9, -1), "K=-1"),
    ],
)
def test_bad_input_is_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()


# Accepted lengths


def test_expected_length_sums_products():
    alphas = torch.tensor([[0.5, 0.4, 0.2], [1.0, 1.0, 1.0]])
    torch.testing.assert_close(method.expected_accepted_length(alphas), torch.tensor([1.74, 4.0]))
    ratios = torch.tensor([[0.9, 0.1], [1.0, 1.0]])
    torch.testing.assert_close(
        method.expected_accepted_length(alphas, ratios), torch.tensor([1 + 0.5 + 0.36 + 0.018, 4.0])
    )


def test_multi_head_total():
    p, q = logits(3, 4, 9), logits(3, 4, 9, seed=1)
    heads = [float(method.tv_loss(*head)) for head in zip(p, q, strict=True)]
    total = heads[0] + 0.8 * heads[1] + 0.64 * heads[2]
    assert float(method.multi_head_loss(method.tv_loss, p, q)) == pytest.approx(total, rel=1e-12)


def test_ratios_make_the_expected_length_exact(target, states, draft):
    """tau from one prefix: the mean over the target's continuations against the sum over all paths."""
    prompt = states.tokens[:1, :6]
    V, K = 20, 2
    paths = torch.tensor(list(itertools.product(range(V), repeat=2)))  # x_{t+1} and x_{t+2}
    tokens = torch.cat((prompt.expand(len(paths), -1), paths, paths[:, :1]), 1)  # the last token is only padding
    all_states = method.read_target(target, tokens)
    t = prompt.shape[1] - 1
    q_logits = draft(all_states.hidden[:, : t + 1], F.pad(tokens, (0, 3)))[:K, :, t]  # (K, paths, V)
    p = all_states.logits.softmax(-1)[:, t : t + K + 1]  # after t, t+1, t+2
    overlap = torch.minimum(p[:, 1:], q_logits.softmax(-1).movedim(0, 1))  # (paths, K, V)
    weight = p[:, 0].gather(1, paths[:, :1])[:, 0]  # of x_{t+1}
    first = overlap[:, 0].sum(-1) / V  # the same for all x_{t+2}
    both = overlap[:, 0].gather(1, paths[:, 1:])[:, 0] * overlap[:, 1].sum(-1)
    exact = 1 + float((weight * (first + both)).sum())

    generator = torch.Generator().manual_seed(5)
    sampled = method.read_target(target, target.generate(prompt.expand(20_000, -1), 4, generator=generator))
    short = new_draft("heads" if isinstance(draft, method.DraftHeads) else "model", K=3)
    short.load_state_dict(draft.state_dict())
    alphas, ratios = (x[:, t, :] for x in method.path_acceptance(short, sampled))
    tau = method.expected_accepted_length(alphas[:, :K], ratios[:, : K - 1])
    assert float(tau.mean()) == pytest.approx(exact, abs=4 * float(tau.std()) / math.sqrt(len(tau)))


# Drafts and training


def test_anchor_positions(states, draft):
    """Position k at anchor t is judged by the target's law of x_{t+1+k}, and the tokens of `ratios` are those."""
    targets = states.targets(3)
    assert targets.shape == (3, 64, 28, 20)
    for k, t in ((1, 0), (2, 5), (3, 27)):
        torch.testing.assert_close(targets[k - 1, :, t], states.logits[:, t + k])
    _, ratios = method.path_acceptance(draft, states)
    q = draft(states.hidden[:, :28], states.tokens).softmax(-1)
    for k, t in ((1, 0), (2, 27)):
        x = states.tokens[:, t + 1 + k, None]
        expected = (q[k - 1, :, t].gather(1, x) / targets[k - 1, :, t].softmax(-1).gather(1, x)).clamp_max(1)[:, 0]
        torch.testing.assert_close(ratios[:, t, k - 1], expected)


def test_drafts_do_not_see_the_future(states, draft):
    """Logits at anchor t and position k may depend on hidden states up to t and tokens up to t + k."""
    t, hidden, tokens = 10, states.hidden[:4, :28], states.tokens[:4].clone()
    before = draft(hidden, tokens)
    later = hidden.clone()
    later[:, t + 1 :] = 0
    tokens[:, t + 3 + 1 :] = 0
    after = draft(later, tokens)
    torch.testing.assert_close(after[:, :, : t + 1], before[:, :, : t + 1])
    if isinstance(draft, method.DraftModel):
        tokens[:, t + 3] = (tokens[:, t + 3] + 1) % 20
        changed = draft(later, tokens)
        assert not torch.allclose(changed[2, :, t], before[2, :, t])
        torch.testing.assert_close(changed[:2, :, t], before[:2, :, t])


def test_proposals_are_the_trained_logits(states, draft):
    """Guess by guess, with rejected guesses in between, a proposer gives what training saw."""
    tokens, hidden = states.tokens[:1], states.hidden[:1]
    expected = draft(hidden[:, :28], tokens)
    propose = draft.proposer()
    for length in (8, 9, 12, 20):  # tokens known; the target has read all but the last
        for k in range(3):
            z = propose(k, tokens[:, : length + k], hidden[:, : length - 1])
            torch.testing.assert_close(z, expected[k, :, length - 2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["heads", "model"])
@pytest.mark.parametrize("name", LK_AND_TV)
def test_training_raises_acceptance(states, kind, name):
    draft = new_draft(kind)
    before = float(method.path_acceptance(draft, states)[0].mean())
    history = method.train_draft(
        draft, states, LOSSES[name], steps=30, lr=0.03, generator=torch.Generator().manual_seed(0), log=True
    )
    after = float(method.path_acceptance(draft, states)[0].mean())
    assert after > before + 0.03
    assert history.logs["alpha"].shape == (30,)


def test_training_needs_enough_tokens(states):
    short = method.TargetStates(*(x[:, :3] for x in states))
    with pytest.raises(ValueError, match="K=3"):
        method.train_draft(new_draft("heads"), short, method.kl_loss, steps=1, lr=0.1)


@pytest.mark.parametrize("kind", ["heads", "model"])
def test_small_draft_vocabulary(target, states, kind):
    S = torch.tensor([3, 0, 11, 5, 7, 19])
    draft = new_draft(kind, draft_vocab=S)
    generator = torch.Generator().manual_seed(0)
    method.train_draft(draft, states, method.lk_lambda_loss, steps=20, lr=0.03, generator=generator)
    full = draft.full(draft(states.hidden[:, :28], states.tokens))
    assert full.shape == (3, 64, 28, 20)
    outside = [v for v in range(20) if v not in S]
    assert (full[..., outside] == -math.inf).all()
    alphas, ratios = method.path_acceptance(draft, states)
    mass = states.targets(3).softmax(-1)[..., S].sum(-1).movedim(0, -1)
    assert (alphas <= mass + 1e-6).all()
    assert ratios.isfinite().all()
    tokens, kept = method.speculative_sample(target, draft, states.tokens[0, :4], 3, 20, generator)
    assert tokens.shape == (24,)
    assert kept.max() <= 3


def test_tune_leaves_no_optimum_on_the_edge():
    def score(rates):
        x = np.log10(rates)[:, None]
        return -((x - [1.2, -2.2]) ** 2)

    assert method.tune(score, [0.1, 1.0, 10.0]) == pytest.approx([10.0, 0.01])
    with pytest.raises(RuntimeError, match="edge"):
        method.tune(lambda rates: rates, [0.1, 1.0, 10.0], most=6)


# Sampler


def law_of_sequences(table, start, length):
    """Probabilities of all sequences of a Markov chain with these logits."""
    p = table.double().softmax(-1)
    probabilities = {(): 1.0}
    for _ in range(length):
        probabilities = {
            (*path, v): value * float(p[(start, *path)[-1], v])
            for path, value in probabilities.items()
            for v in range(len(p))
        }
    return np.array(list(probabilities.values()))


@pytest.mark.parametrize(("K", "temperature"), [(0, 1.0), (1, 1.0), (2, 0.7), (4, 1.0)])
def test_brute_force_law(K, temperature):
    p, q = logits(2, 3, 3, dtype=torch.float32)
    prompt = torch.full((40_000, 1), 1)
    generator = torch.Generator().manual_seed(K)
    tokens, kept = method.speculative_sample(lambda x: p[x], lambda x: q[x], prompt, K, 3 + K, generator, temperature)
    code = tokens[:, 1] * 9 + tokens[:, 2] * 3 + tokens[:, 3]
    expected = law_of_sequences(p / temperature, 1, 3) * len(prompt)
    assert stats.chisquare(torch.bincount(code, minlength=27), expected).pvalue > 1e-3
    assert kept.max() == K  # so all K drafts were in use


def test_cached_sampling_has_the_targets_law(target, states, draft):
    """One sequence at a time through the KV cache: the second new token against its exact law."""
    prompt = states.tokens[0, :5]
    generator = torch.Generator().manual_seed(3)
    counts = torch.zeros(20)
    for _ in range(1500):
        tokens, _ = method.speculative_sample(target, draft, prompt, 2, 5, generator)
        counts[tokens[6]] += 1
    first = target(prompt[None])[0, -1].softmax(-1)
    follow = target(torch.cat((prompt.expand(20, -1), torch.arange(20)[:, None]), 1))[:, -1].softmax(-1)
    expected = (first @ follow).detach().double().numpy() * 1500
    rare = expected < 5
    seen, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts.numpy(), expected))
    keep = expected > 0
    assert stats.chisquare(seen[keep], expected[keep] * seen.sum() / expected.sum()).pvalue > 1e-3


def test_without_drafting_it_is_plain_sampling(target):
    prompt = torch.tensor([3, 1, 4])
    tokens, kept = method.speculative_sample(target, None, prompt, 0, 30, torch.Generator().manual_seed(0))
    plain = target.generate(prompt[None], 30, generator=torch.Generator().manual_seed(0))
    assert torch.equal(tokens, plain[0])
    assert (kept == 0).all()


def test_a_perfect_draft_is_always_accepted(target):
    generator = torch.Generator().manual_seed(0)
    tokens, kept = method.speculative_sample(target, target, torch.tensor([3, 1, 4]), 4, 41, generator)
    assert tokens.shape == (44,)
    assert (kept == 4).all()
    assert len(kept) == 8  # 1 token from the prompt's call, then 5 a call


def test_greedy_decoding_is_the_targets(target, states, draft):
    prompt = torch.tensor([3, 1, 4, 1, 5])
    greedy = target.generate(prompt[None], 40, temperature=0)[0]
    tokens, _ = method.speculative_sample(target, draft, prompt, 3, 40, temperature=0)
    assert torch.equal(tokens, greedy)


def test_cache_and_whole_sequences_give_the_same_tokens(target):
    small = DecoderLM(
        LMConfig(vocab=20, d_model=8, n_layers=1, n_heads=2, max_len=64), torch.Generator().manual_seed(9)
    )
    runs = [
        method.speculative_sample(*models, torch.tensor([3, 1, 4]), 3, 40, torch.Generator().manual_seed(0))
        for models in ((target, small), (lambda x: target(x), lambda x: small(x)))
    ]
    for cached, whole in zip(*runs, strict=True):
        assert torch.equal(cached, whole)


def test_sampled_lengths_agree_with_the_exact_expectation():
    """Independent of the prefix (i.i.d. target and draft), tau is 1 + alpha + ... + alpha^K."""
    p, q = logits(2, 6, scale=1.0, dtype=torch.float32)
    prompt = torch.zeros(4000, 1, dtype=torch.long)
    generator = torch.Generator().manual_seed(0)
    _, kept = method.speculative_sample(
        lambda x: p.expand(*x.shape, 6), lambda x: q.expand(*x.shape, 6), prompt, 3, 20, generator
    )
    alpha = float(method.acceptance_rate(p, q))
    kept = kept.double()
    assert float(kept.mean()) == pytest.approx(
        alpha + alpha**2 + alpha**3, abs=5 * float(kept.std()) / len(kept) ** 0.5
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"K": -1}, "K=-1"),
        ({"K": 4}, "draft"),
        ({"max_new": 0}, "max_new=0"),
        ({"temperature": -0.5}, "temperature=-0.5"),
        ({"prompt": torch.zeros(0, dtype=torch.long)}, "prompt=0"),
        ({"prompt": torch.zeros(2, 3, dtype=torch.long)}, "draft"),
        ({"target": lambda x: x}, "draft"),
    ],
)
def test_the_sampler_names_bad_input(target, change, named):
    arguments = {"target": target, "draft": new_draft("heads"), "prompt": torch.tensor([1]), "K": 3, "max_new": 5}
    with pytest.raises(ValueError, match=named):
        method.speculative_sample(**(arguments | change))


def test_transformers_samples_the_same_law():
    """Two tiny GPT-2s in assisted generation and in our sampler: the second new token against its exact law."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 6, "n_positions": 16, "n_embd": 8, "n_head": 2, "bos_token_id": 0, "eos_token_id": None}
    pair = [
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, n_layer=n, initializer_range=1.0)).eval()
        for n in (2, 1)
    ]
    prompt, runs = torch.tensor([[1, 2]]), 250
    with torch.no_grad():
        first = pair[0](prompt).logits[0, -1].softmax(-1)
        follow = pair[0](torch.cat((prompt.expand(6, -1), torch.arange(6)[:, None]), 1)).logits[:, -1].softmax(-1)
    expected = (first @ follow).double().numpy() * runs
    settings = {"max_new_tokens": 3, "do_sample": True, "top_k": 0, "pad_token_id": 0, "assistant_model": pair[1]}
    mask, generator = torch.ones_like(prompt), torch.Generator().manual_seed(1)
    theirs, ours = np.zeros(6), np.zeros(6)
    for _ in range(runs):
        theirs[pair[0].generate(prompt, attention_mask=mask, **settings)[0, 3]] += 1
    models = [lambda x, m=model: m(x).logits for model in pair]
    tokens, _ = method.speculative_sample(*models, prompt.expand(runs, -1), 2, 5, generator)
    np.add.at(ours, tokens[:, 3].numpy(), 1)
    for seen in (theirs, ours):
        assert stats.chisquare(seen, expected).pvalue > 1e-3
