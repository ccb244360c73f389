"""Oracles for the chapter nonexpansive_denoiser: a dense construction by loops, symmetries, certificates, bad input."""

import math

import numpy as np
import pytest
import torch

from companion.imaging import Blur, Downsample, Inpaint, gaussian_kernel, motion_kernel
from companion.testing import load_method, load_notebook

method = load_method("nonexpansive_denoiser")
F64 = torch.float64


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def image(*shape, seed=0):
    return torch.rand(*shape, generator=generator(seed), dtype=F64)


def network(**options):
    return method.NECTR(method.PairWeights(generator=generator(3), **options)).double()


def matrix_by_loops(weights, h, w):
    """K and W, (N, N), entry by entry from {pi: (h, w)} of the half set, with the paper's normalisation."""
    K = np.zeros((h * w, h * w))
    for (dx, dy), weight in weights.items():
        for y in range(h):
            for x in range(w):
                if 0 <= y + dy < h and 0 <= x + dx < w:
                    i, j = y * w + x, (y + dy) * w + x + dx
                    K[i, j] += weight[y, x]
                    if i != j:
                        K[j, i] += weight[y, x]
    root = np.diag(1 / np.sqrt(K.sum(1)))
    hat = root @ K @ root
    total = hat.sum(1)
    return K, hat / total.max() + np.diag(1 - total / total.max())


# --- the lattice


def test_half_set_has_one_of_each_pair():
    for R in range(4):
        whole, half = method.lattice_translations(R), method.half_set(R)
        assert len(set(whole)) == (2 * R + 1) ** 2 and len(half) == 2 * R * (R + 1) + 1
        assert set(half) | {method.inverse(pi) for pi in half} == set(whole)
        assert half[0] == (0, 0) and all(dy > 0 or (dy == 0 and dx >= 0) for dx, dy in half)
    assert len(method.lattice_translations(7)) == 225


def test_permutation_reads_the_pixel_it_points_to():
    x = torch.arange(12).view(3, 4)
    moved = method.permute(x, (1, 2))
    assert all(moved[i, j] == x[(i + 2) % 3, (j + 1) % 4] for i in range(3) for j in range(4))
    assert torch.equal(method.permute(moved, (-1, -2)), x)
    inside = method.stays_inside((1, -2), 3, 4)
    assert inside.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0]]


# --- the matrix


@pytest.mark.parametrize("pair", ["concat", "difference"])
@pytest.mark.parametrize(("shape", "R"), [((8, 8), 3), ((5, 9), 2), ((7, 4), 3), ((6, 5), 1)])
def test_denoiser_is_the_matrix_built_by_loops(shape, R, pair):
    model, guide = network(R=R, channels=2, pair=pair), image(1, 2, *shape)
    weights = model.pair_weights(guide, 0.1)
    W, x = model.freeze(guide, 0.1), image(3, 2, *shape, seed=5)
    for c in range(2):
        K, expected = matrix_by_loops({pi: w[0, c].detach().numpy() for pi, w in weights.items()}, *shape)
        applied = method.kernel_apply(W.K, x)[:, c].flatten(1).numpy()
        np.testing.assert_allclose(applied, x[:, c].flatten(1).numpy() @ K, atol=1e-12 * K.max())
        np.testing.assert_allclose(W.dense()[c].numpy(), expected, atol=1e-12)
        np.testing.assert_allclose(W(x)[:, c].flatten(1).numpy(), x[:, c].flatten(1).numpy() @ expected, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3])
def test_norm_is_one_for_any_guide(scale):
    guide = scale * torch.randn(1, 1, 9, 7, generator=generator(), dtype=F64)
    W = network(R=2).freeze(guide, 0.2)
    (dense,) = W.dense()
    assert dense.min() >= 0 and torch.allclose(dense, dense.T, atol=1e-15, rtol=0)
    assert torch.allclose(dense.sum(0), torch.ones(63, dtype=F64), atol=1e-13)
    eigenvalues = torch.linalg.eigvalsh(dense)
    assert eigenvalues[-1] == pytest.approx(1, abs=1e-13) and eigenvalues[0] > -1
    assert W.lambda2() == pytest.approx(float(eigenvalues[:-1].abs().max()), abs=1e-8)
    x, y = image(2, 1, 9, 7, seed=1)
    assert (W(x[None]) * y).sum() == pytest.approx(float((x * W(y[None])).sum()), abs=1e-12)
    assert W(x[None]).min() >= 0 and W(x[None]).max() <= 1
    assert W(x[None]).mean() == pytest.approx(float(x.mean()), abs=1e-14)


def test_weights_are_those_of_the_formula():
    pair = method.PairWeights(4, 1, pair="concat", generator=generator()).double()
    guide = image(1, 1, 5, 6)
    phi, weights = pair.features(guide, 0.3), pair(guide, 0.3)
    for (dx, dy), w in weights.items():
        for y, x in ((0, 0), (2, 3), (4, 5)):
            inside = 0 <= y + dy < 5 and 0 <= x + dx < 6
            both = torch.cat([phi[0, y, x], phi[0, (y + dy) % 5, (x + dx) % 6]])
            here, there = pair.split.weight.chunk(2)
            z = torch.cat([here, there], 1) @ both + pair.split.bias.chunk(2)[0] + pair.split.bias.chunk(2)[1]
            k, a, beta = pair.N_theta(z)
            expected = math.log1p(a.exp()) / (1 + (-beta.sigmoid() * k).exp()) + 1e-8
            assert w[0, 0, y, x].item() == pytest.approx(float(expected) * inside, rel=1e-10)


def test_weights_do_not_depend_on_the_block_of_translations():
    guide, a, b = image(2, 1, 8, 8), *(method.PairWeights(at_once=n, generator=generator()).double() for n in (None, 5))
    whole, parts = a(guide, torch.tensor([0.1, 0.2])), b(guide, torch.tensor([0.1, 0.2]))
    assert list(whole) == list(parts) == method.half_set(3)
    assert all(torch.allclose(whole[pi], parts[pi], atol=1e-14) for pi in whole)


def test_images_of_a_batch_and_noise_levels_do_not_mix():
    model, x, sigma = network(), image(3, 1, 8, 9), torch.tensor([0.05, 0.1, 0.2], dtype=F64)
    together = model(x, sigma)
    for i in range(3):
        assert torch.allclose(together[i : i + 1], model(x[i : i + 1], sigma[i : i + 1]), atol=1e-12)
    assert not torch.allclose(model(x[:1], 0.05), model(x[:1], 0.2), atol=1e-4)


def test_frozen_is_the_model_with_that_guide_and_the_cache_changes_nothing():
    model, x, guide = network(), image(2, 1, 8, 8), image(2, 1, 8, 8, seed=1)
    W = model.freeze(guide, 0.1)
    assert torch.allclose(W(x), model(x, 0.1, guide), atol=1e-14)
    assert torch.equal(W(x), method.doubly_stochastic_apply(W.K, x))
    assert torch.allclose(model(x, 0.1), model(x, 0.1, x), atol=0)


def test_matrix_is_invariant_to_the_scale_of_the_weights():
    weights = network().pair_weights(image(1, 1, 8, 8), 0.1)
    one, seven = (method.LinearDenoiser(method.mirror({pi: c * w for pi, w in weights.items()})) for c in (1, 7))
    assert torch.allclose(one.dense(), seven.dense(), atol=1e-14)


def test_identity_translation_alone_is_the_identity():
    x = image(1, 1, 4, 5)
    K = method.mirror({(0, 0): image(1, 1, 4, 5, seed=2) + 0.1})
    assert torch.allclose(method.LinearDenoiser(K)(x), x, atol=1e-15)


def test_normalisation_has_the_right_gradient():
    weights = {pi: image(1, 1, 4, 3, seed=k) + 0.5 for k, pi in enumerate(method.half_set(1))}
    weights = {pi: w * method.stays_inside(pi, 4, 3) for pi, w in weights.items()}
    K, x = method.mirror(weights).requires_grad_(), image(1, 1, 4, 3).requires_grad_()
    assert torch.autograd.gradcheck(method.doubly_stochastic_apply, (K, x))


def test_fixed_weights_are_non_local_means():
    guide, tau = image(1, 1, 9, 9), 0.3
    weights = method.GaussianWeights(R=2, patch=1, bandwidth=tau / 0.1)(guide, 0.1)
    p = guide[0, 0]
    for (dx, dy), (y, x) in (((1, 0), (4, 4)), ((-2, 1), (3, 5)), ((0, 2), (5, 2))):
        here, there = p[y - 1 : y + 2, x - 1 : x + 2], p[y + dy - 1 : y + dy + 2, x + dx - 1 : x + dx + 2]
        expected = math.exp(-float((here - there).square().mean()) / (2 * tau**2))
        assert weights[dx, dy][0, 0, y, x].item() == pytest.approx(expected, rel=1e-6)
    assert torch.linalg.matrix_norm(
        method.NECTR(method.GaussianWeights()).freeze(guide, 0.1).dense()[0], 2
    ).item() == pytest.approx(1, abs=1e-12)


def test_initial_weights_come_from_the_generator():
    first, again = (method.PairWeights(generator=generator(7)).state_dict() for _ in range(2))
    other = method.PairWeights(generator=generator(8)).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["first.weight"], other["first.weight"])


def test_training_improves_the_loss():
    from companion.training import train

    model = method.NECTR(method.PairWeights(8, R=2, generator=generator()))
    batches = method.noisy_batches("train", 16, 4, np.random.default_rng(0), generator(1), pool=64)
    clean, noisy, sigma = next(batches)
    assert clean.shape == noisy.shape == (4, 1, 16, 16) and sigma.min() >= 0 and sigma.max() <= 50 / 255
    level = ((noisy - clean).flatten(1).std(dim=1) / sigma).mean()
    assert level.item() == pytest.approx(1, abs=0.1)
    history = train(model, batches, method.denoising_loss, steps=60, lr=1e-2, optimizer=torch.optim.Adam)
    assert history.loss[-20:].mean() < 0.8 * history.loss[:5].mean()


# --- reconstruction and certificates

SHAPE = (8, 8)
OPERATORS = {
    "blur": Blur(SHAPE, gaussian_kernel(5, 1.2)),
    "motion": Blur(SHAPE, motion_kernel(5, np.random.default_rng(0))),
    "average": Downsample(SHAPE, 2),
    "inpaint": Inpaint(torch.rand(SHAPE, generator=generator()) < 0.4),
}
STEPS = [{"gamma": 0.5}, {"gamma": 1.9}, {"mu": 0.5}, {"mu": 20.0}]


def dense_step(A, gamma=None, mu=None):
    basis = torch.eye(64, dtype=F64).view(-1, 1, *SHAPE)
    ATA = A.AT(A.A(basis)).flatten(1)
    identity = torch.eye(64, dtype=F64)
    return identity - gamma / A.norm_sq * ATA if mu is None else torch.linalg.inv(identity + mu * ATA)


@pytest.mark.parametrize("A", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_contraction_factor_and_bound_against_dense_matrices(A, step):
    W = network(R=2).freeze(image(1, 1, *SHAPE), 0.1)
    exact = float(torch.linalg.matrix_norm(W.dense()[0] @ dense_step(A, **step), 2))
    step = {name: value / A.norm_sq if name == "gamma" else value for name, value in step.items()}
    assert method.contraction_factor(W, A, **step) == pytest.approx(exact, abs=1e-8) and exact < 1
    assert exact <= method.contraction_bound(W.lambda2(), A, SHAPE, **step) < 1


def test_bound_is_the_formula():
    A = OPERATORS["blur"]
    assert method.contraction_bound(0.6, A, SHAPE, gamma=0.3) == pytest.approx(math.sqrt(0.36 + 0.64 * 0.49))
    assert method.contraction_bound(0.6, A, SHAPE, mu=3.0) == pytest.approx(math.sqrt(0.36 + 0.64 / 16))


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_iterations_reach_the_fixed_point_of_the_linear_system(step):
    A, x = OPERATORS["blur"], image(1, 1, *SHAPE, seed=4)
    W, b = network(R=2).freeze(x, 0.1), A.A(x)
    G, kept = dense_step(A, **step), []
    if "gamma" in step:
        gamma = step["gamma"] / A.norm_sq
        end, constant = method.pnp_fbs(W, A, b, gamma, 0 * x, 400, kept.append), gamma * A.AT(b).flatten()
    else:
        end, constant = method.pnp_hqs(W, A, b, step["mu"], 0 * x, 400, kept.append), step["mu"] * G @ A.AT(b).flatten()
    dense = W.dense()[0]
    expected = torch.linalg.solve(torch.eye(64, dtype=F64) - dense @ G, dense @ constant)
    assert len(kept) == 400 and torch.equal(kept[-1], end)
    assert torch.allclose(end.flatten(), expected, atol=1e-8)


def test_two_phases_end_with_a_frozen_guide():
    A, x = OPERATORS["average"], image(1, 1, *SHAPE, seed=4)
    model, b, path = network(R=2), A.A(x), []
    end = method.reconstruct(model, A, b, 0.1, 2.0, 0 * x, warmup=3, iterations=5, watch=path.append)
    guide = 0 * x
    for _ in range(3):
        guide = model(A.prox(guide, b, 2.0), 0.1)
    assert len(path) == 5
    assert torch.allclose(end, method.pnp_hqs(model.freeze(guide, 0.1), A, b, 2.0, 0 * x, 5), atol=1e-12)


def test_jacobian_norm_of_each_image_is_that_of_the_dense_jacobian():
    model, x = network(R=1, features=4), image(2, 1, 5, 5)
    f = lambda y: model(y, 0.1)  # noqa: E731
    found = method.jacobian_norm(f, x, 300, generator()).detach()
    for i in range(2):
        jacobian = torch.func.jacrev(f)(x[i : i + 1]).reshape(25, 25)
        assert found[i].item() == pytest.approx(float(torch.linalg.matrix_norm(jacobian, 2)), rel=1e-3)
    frozen = method.jacobian_norm(model.freeze(x, 0.1), x, 300, generator())
    assert torch.allclose(frozen, torch.ones(2, dtype=F64), atol=1e-4)
    assert method.jacobian_norm(f, x, 2, generator()).requires_grad  # so that it can be penalised


# --- bad input

GUIDE = image(1, 1, 8, 8)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: method.lattice_translations(-1), "R=-1"),
        (lambda: method.PairWeights(features=2, layers=2, generator=generator()), "features"),
        (lambda: method.PairWeights(pair="product", generator=generator()), "pair='product'"),
        (lambda: network().freeze(image(1, 2, 8, 8), 0.1), r"guide.shape=\(1, 2, 8, 8\)"),
        (lambda: network().freeze(GUIDE[0], 0.1), "guide.shape"),
        (lambda: network().freeze(image(1, 1, 3, 8), 0.1), "larger than the window"),
        (lambda: network().freeze(GUIDE, -0.1), "sigma=-0.1"),
        (lambda: network().freeze(GUIDE, 0.1)(image(1, 1, 8, 7)), "x.shape"),
        (lambda: network().freeze(image(2, 1, 8, 8), 0.1)(image(3, 1, 8, 8)), "x.shape"),
        (lambda: network().freeze(image(2, 1, 8, 8), 0.1).lambda2(), "guides=2"),
        (lambda: method.GaussianWeights(bandwidth=0.0), "bandwidth=0.0"),
        (lambda: method.pnp_fbs(lambda x: x, OPERATORS["blur"], GUIDE, 2.0, GUIDE, 3), r"gamma=2.0: must be in \(0, 2"),
        (lambda: method.pnp_fbs(lambda x: x, OPERATORS["blur"], GUIDE, 0.0, GUIDE, 3), "gamma=0.0"),
        (lambda: method.pnp_hqs(lambda x: x, OPERATORS["blur"], GUIDE, 0.0, GUIDE, 3), "mu=0.0"),
        (lambda: method.contraction_bound(0.5, OPERATORS["blur"], SHAPE), "gamma, mu"),
        (lambda: method.jacobian_norm(lambda x: x, GUIDE, 0, generator()), "iterations=0"),
    ],
)
def test_bad_input_is_named(call, names):
    with pytest.raises(ValueError, match=names):
        call()


# --- the notebooks' path for a GPU, with small sizes on a CPU


def run_small(label, capsys, **sizes):
    """The printed verdicts; claims that need training may fail at these sizes."""
    from companion.run import ClaimsFailed

    try:
        load_notebook(f"nonexpansive_denoiser/{label}", preset="gpu", device="cpu", **sizes)
    except ClaimsFailed as failed:
        assert "void" not in str(failed) or label == "experiments"
    return capsys.readouterr().out


def test_theory_runs_its_gpu_preset_on_a_cpu(capsys):
    text = run_small("theory", capsys, side=12, small_side=8, nets=4, steps=3, attack=4, pairs=2)
    for claim_id in ("symmetric-kernel", "doubly-stochastic", "globally-nonexpansive", "contractive"):
        assert f"HOLDS {claim_id}" in text
