"""The transformer against attention written out by hand, its own full forward, and torch.func."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from companion.models import Attention, DecoderLM, KVCache, LMConfig, rotary_angles, rotate

SMALL = LMConfig(vocab=37, d_model=24, n_layers=2, n_heads=4, max_len=32, init_std=0.3)
VARIANTS = [
    replace(SMALL, **options)
    for options in (
        {},
        {"kv_heads": 2},
        {"kv_heads": 1, "sharing": "k=v"},
        {"sharing": "k=v"},
        {"sharing": "q=k"},
        {"sharing": "q=k=v", "mlp": "gelu"},
        {"positions": "learned", "mlp": "gelu", "tied": False},
        {"positions": "none", "sharing": "k=v"},
        {"n_layers": 0},
        {"n_layers": 0, "positions": "learned"},
    )
]


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def build(config, seed=0):
    return DecoderLM(config, gen(seed)).double()


def some_ids(config, batch=3, length=20, seed=1):
    return torch.randint(config.vocab, (batch, length), generator=gen(seed))


def name(config):
    return f"{config.positions}-{config.sharing}-G{config.groups}-L{config.n_layers}"


@pytest.mark.parametrize("config", VARIANTS, ids=name)
@torch.no_grad()
def test_cached_decoding_equals_the_full_forward(config):
    model, ids = build(config), some_ids(config)
    full, hidden = model(ids, return_hidden=True)
    assert full.shape == (3, 20, 37) and hidden.shape == (3, 20, 24)
    cache = model.new_cache(batch=3)
    chunks, states = [], []
    for a, b in ((0, 7), (7, 8), (8, 13), (13, 14), (14, 20)):  # a prefill, then chunks and single tokens
        logits, h = model(ids[:, a:b], cache, return_hidden=True)
        chunks.append(logits)
        states.append(h)
        assert cache.length == b
    torch.testing.assert_close(torch.cat(chunks, 1), full, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.cat(states, 1), hidden, rtol=0, atol=1e-12)


@pytest.mark.parametrize("config", VARIANTS[:4], ids=name)
@torch.no_grad()
def test_rolled_back_cache_forgets(config):
    model, ids = build(config), some_ids(config)
    cache = model.new_cache(batch=3, max_len=20)
    model(ids[:, :10], cache)
    model(some_ids(config, seed=9)[:, :6], cache)  # a draft that is rejected
    cache.rewind(4)
    assert cache.length == 12
    cache.truncate(10)
    torch.testing.assert_close(model(ids[:, 10:], cache), model(ids)[:, 10:], rtol=0, atol=1e-12)


def hand_attention(layer, x, causal=True):
    """Attention for one sequence (T, D), head by head and pair by pair, with complex numbers for the rotation."""
    config, E = layer.config, layer.config.head_dim
    K = x @ layer.key.weight.T
    Q = x @ layer.query.weight.T if "q=k" not in config.sharing else K
    V = x @ layer.value.weight.T if config.sharing in ("none", "q=k") else K
    frequency = config.rotary_base ** (-torch.arange(E // 2, dtype=torch.float64) * 2 / E)
    heads = []
    for h in range(config.n_heads):
        g = h // (config.n_heads // config.groups)
        q, k, v = Q[:, h * E : (h + 1) * E], K[:, g * E : (g + 1) * E], V[:, g * E : (g + 1) * E]
        qc, kc = (torch.view_as_complex(y.reshape(-1, E // 2, 2).contiguous()) for y in (q, k))
        rows = []
        for t in range(len(x)):
            seen = range(t + 1) if causal else range(len(x))
            turns = [torch.exp(1j * frequency * (t - s)) for s in seen]
            scores = torch.stack([(qc[t] * kc[s].conj() * r).sum().real for s, r in zip(seen, turns, strict=True)])
            rows.append(torch.softmax(scores / math.sqrt(E), 0) @ v[: len(scores)])
        heads.append(torch.stack(rows))
    return torch.cat(heads, -1) @ layer.out.weight.T


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("options", [{}, {"kv_heads": 2}, {"sharing": "k=v", "kv_heads": 1}, {"sharing": "q=k=v"}])
@torch.no_grad()
def test_attention_by_hand(options, causal):
    layer = Attention(replace(SMALL, causal=causal, **options)).double()
    x = torch.randn(9, 24, dtype=torch.float64, generator=gen())
    angles = rotary_angles(torch.arange(9), 6, SMALL.rotary_base)
    torch.testing.assert_close(layer(x[None], angles)[0], hand_attention(layer, x, causal), rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_later_token_changes_only_later_logits():
    ids = some_ids(SMALL)
    changed = ids.clone()
    changed[:, 12] = (ids[:, 12] + 1) % SMALL.vocab
    for causal in (True, False):
        model = build(replace(SMALL, causal=causal))
        moved = (model(ids) - model(changed)).abs().amax((0, 2))
        assert (moved[12:] > 1e-6).all()
        assert (moved[:12] == 0).all() if causal else (moved[:12] > 1e-6).all()


def test_rotation_depends_on_the_difference_of_positions():
    q, k = torch.randn(2, 1, 8, dtype=torch.float64, generator=gen())

    def score(i, j):
        return (
            rotate(q, *rotary_angles(torch.tensor([i]), 8, 1e4)) * rotate(k, *rotary_angles(torch.tensor([j]), 8, 1e4))
        ).sum()

    torch.testing.assert_close(score(7, 3), score(104, 100), rtol=0, atol=1e-12)
    assert abs(score(7, 3) - score(7, 4)) > 1e-3
    torch.testing.assert_close(rotate(q, *rotary_angles(torch.tensor([11]), 8, 1e4)).norm(), q.norm())


@pytest.mark.parametrize("sharing,tied_to", [("k=v", {"value": "key"}), ("q=k", {"query": "key"})])
def test_a_shared_projection_is_two_equal_ones(sharing, tied_to):
    shared, free = build(replace(SMALL, sharing=sharing)), build(SMALL)
    weights = shared.state_dict()
    for layer in range(SMALL.n_layers):
        for copy, original in tied_to.items():
            weights[f"blocks.{layer}.attention.{copy}.weight"] = weights[f"blocks.{layer}.attention.{original}.weight"]
    free.load_state_dict(weights)
    ids = some_ids(SMALL)
    a, b = shared(ids), free(ids)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    a.square().mean().backward()
    b.square().mean().backward()
    for s, f in zip(shared.blocks, free.blocks, strict=True):  # one weight, used twice: the gradients add
        both = f.attention.key.weight.grad + sum(getattr(f.attention, c).weight.grad for c in tied_to)
        torch.testing.assert_close(s.attention.key.weight.grad, both, rtol=0, atol=1e-12)


def test_cache_bytes():
    def nbytes(**options):
        return KVCache(replace(SMALL, **options), batch=5, dtype=torch.float32).nbytes

    full = 2 * SMALL.n_layers * 5 * SMALL.n_heads * SMALL.max_len * SMALL.head_dim * 4
    assert nbytes() == nbytes(sharing="q=k") == full
    assert nbytes(sharing="k=v") == nbytes(sharing="q=k=v") == full / 2
    assert nbytes(sharing="k=v", kv_heads=1) == full / 8


def test_parameter_count():
    count = lambda **options: sum(p.numel() for p in DecoderLM(replace(SMALL, **options)).parameters())  # noqa: E731
    d, V = 24, 37
    assert count(n_layers=0) == V * d + d
    assert count(n_layers=0, tied=False) == 2 * V * d + d
    assert count() - count(n_layers=1) == 4 * d * d + 3 * d * 64 + 2 * d
    assert count(mlp="gelu") - count(n_layers=1, mlp="gelu") == 4 * d * d + 8 * d * d + 2 * d
    assert count() - count(sharing="q=k=v") == 2 * 2 * d * d


def test_layer_states():
    model, ids = build(SMALL), some_ids(SMALL)
    states = model.trunk(model.embed(ids))
    assert len(states) == 3 and all(s.shape == (3, 20, 24) for s in states)
    torch.testing.assert_close(model.head(model.norm(states[-1])), model(ids))


def test_generate():
    model, prompt = build(SMALL), some_ids(SMALL, length=4)
    greedy = model.generate(prompt, 8, temperature=0)
    assert greedy.shape == (3, 12) and torch.equal(greedy[:, :4], prompt)
    for t in range(4, 12):  # each token is the likeliest after the ones before it
        assert torch.equal(greedy[:, t], model(greedy[:, :t])[:, -1].argmax(-1))
    assert torch.equal(model.generate(prompt, 8, generator=gen(5)), model.generate(prompt, 8, generator=gen(5)))
    assert not torch.equal(model.generate(prompt, 8, generator=gen(5)), model.generate(prompt, 8, generator=gen(6)))
    assert torch.equal(model.generate(prompt, 0), prompt)


@torch.no_grad()
def test_sampling_follows_the_softmax():
    model = build(replace(SMALL, vocab=5))
    prompt = torch.tensor([[1, 2]])
    p = (model(prompt)[0, -1] / 0.7).softmax(-1)
    draws = model.generate(prompt.expand(20_000, 2), 1, temperature=0.7, generator=gen())[:, -1]
    counts = torch.bincount(draws, minlength=5)
    assert ((counts / 20_000 - p).abs() < 5 * (p * (1 - p) / 20_000).sqrt()).all()


def test_the_generator_alone_decides_the_weights():
    a, b, c = DecoderLM(SMALL, gen(3)), DecoderLM(SMALL, gen(3)), DecoderLM(SMALL, gen(4))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.embedding.weight, c.embedding.weight)
    assert abs(float(a.embedding.weight.detach().std()) / SMALL.init_std - 1) < 0.1


@torch.no_grad()
def test_bfloat16_autocast():
    model, ids = DecoderLM(replace(SMALL, kv_heads=2), gen()), some_ids(SMALL)
    exact = model(ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(ids)
        cache = model.new_cache(3, dtype=torch.bfloat16)
        cached = torch.cat((model(ids[:, :11], cache), model(ids[:, 11:], cache)), 1)
    assert half.dtype == torch.bfloat16 and cache.keys.dtype == torch.bfloat16
    for logits in (half, cached):  # root mean square, against bfloat16's unit roundoff of 2^-8 through a few roundings
        assert float((logits.float() - exact).square().mean().sqrt() / exact.std()) < 10 * 2**-8


def test_seeds_in_one_batch_with_vmap():
    models = [build(replace(SMALL, kv_heads=2), seed) for seed in range(3)]
    params, _ = torch.func.stack_module_state(models)
    ids = some_ids(SMALL)

    def loss(p):
        return torch.func.functional_call(models[0], p, (ids,)).square().mean()

    with sdpa_kernel(SDPBackend.MATH):
        gradients = torch.func.vmap(torch.func.grad(loss))(params)
    models[1](ids).square().mean().backward()
    torch.testing.assert_close(gradients["blocks.1.mlp.up.weight"][1], models[1].blocks[1].mlp.up.weight.grad)


def test_hessian_vector_product():
    model, ids = build(replace(SMALL, d_model=8, n_heads=2, n_layers=1)), some_ids(SMALL, length=6)
    params = {k: v.detach() for k, v in model.named_parameters()}
    v = {k: torch.randn(p.shape, dtype=p.dtype, generator=gen()) for k, p in params.items()}
    grad = torch.func.grad(lambda p: torch.func.functional_call(model, p, (ids,)).logsumexp(-1).mean())
    with sdpa_kernel(SDPBackend.MATH):
        _, product = torch.func.jvp(grad, (params,), (v,))
        plus, minus = (grad({k: p + s * v[k] for k, p in params.items()}) for s in (1e-5, -1e-5))
    for k in params:
        torch.testing.assert_close(product[k], (plus[k] - minus[k]) / 2e-5, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    "field,value,others",
    [
        ("vocab", 0, {}),
        ("n_layers", -1, {}),
        ("n_layers", True, {}),
        ("d_model", 2.0, {}),
        ("n_heads", 5, {}),
        ("kv_heads", 3, {}),
        ("kv_heads", 2, {"sharing": "q=k"}),
        ("d_ff", 0, {}),
        ("max_len", 0, {}),
        ("sharing", "qk", {}),
        ("positions", "alibi", {}),
        ("mlp", "relu", {}),
        ("causal", 1, {}),
        ("init_std", 0.0, {}),
        ("rotary_base", float("nan"), {}),
        ("d_model", 12, {}),
    ],
)
def test_bad_configuration_is_named(field, value, others):
    with pytest.raises(ValueError, match=f"{field}=.*: must be"):
        replace(SMALL, **{field: value}, **others)


def test_unknown_sharing_lists_the_four():
    with pytest.raises(ValueError, match="'none', 'k=v', 'q=k', 'q=k=v'"):
        replace(SMALL, sharing="mla")


def test_bad_calls():
    model = DecoderLM(SMALL)
    ids = some_ids(SMALL)
    cache = model.new_cache(batch=3, max_len=8)
    with pytest.raises(ValueError, match="ids has shape"):
        model(ids[0])
    with pytest.raises(ValueError, match="max_len=32"):
        model(some_ids(SMALL, length=33))
    with pytest.raises(ValueError, match="max_len=8"):
        model(ids, cache)
    with pytest.raises(ValueError, match="rows"):
        model(ids[:2, :4], cache)
    with pytest.raises(ValueError, match="cached length 0"):
        cache.truncate(1)
    with pytest.raises(ValueError, match="n=-1"):
        cache.truncate(-1)
    with pytest.raises(ValueError, match="temperature=-1"):
        model.generate(ids, 2, temperature=-1)
    with pytest.raises(ValueError, match="max_new=-2"):
        model.generate(ids, -2)
    with pytest.raises(ValueError, match="max_new=13"):
        model.generate(ids, 13)
    with pytest.raises(ValueError, match="causal"):
        DecoderLM(replace(SMALL, causal=False)).generate(ids, 2)
    with pytest.raises(ValueError, match="cache"):
        DecoderLM(replace(SMALL, causal=False))(ids, KVCache(SMALL, 3))
