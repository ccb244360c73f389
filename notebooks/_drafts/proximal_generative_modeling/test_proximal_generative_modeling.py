"""Oracles for proximal_generative_modeling: closed forms, cvxpy, pyproximal, Monte Carlo, invariances, bad input."""

import math
from functools import partial

import cvxpy as cp
import numpy as np
import pyproximal
import pytest
import torch
from scipy.stats import kstest

from companion.imaging import Blur, Downsample, Inpaint, gaussian_kernel
from companion.run import ClaimsFailed
from companion.testing import load_method, load_notebook

method = load_method("proximal_generative_modeling")
NONE = lambda x: 0 * x  # noqa: E731


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# Proximal maps


@pytest.mark.parametrize("lambda_", [0.3, 1.7])
def test_prox_maps_agree_with_pyproximal(lambda_):
    x = 3 * np.random.default_rng(0).standard_normal(50)
    np.testing.assert_allclose(method.prox_l1(x, lambda_, 2.0), pyproximal.L1(sigma=2.0).prox(x, lambda_), atol=1e-14)
    np.testing.assert_allclose(
        method.prox_box(x, lambda_, -0.5, 2), pyproximal.Box(-0.5, 2).prox(x, lambda_), atol=1e-14
    )
    expected = (pyproximal.L2(b=np.full(50, 0.7), sigma=1 / 1.3).prox(x, lambda_)).ravel()
    np.testing.assert_allclose(method.prox_quadratic(x, lambda_, 0.7, 1.3), expected, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 17, 40])
def test_prox_tv1d_agrees_with_cvxpy(n):
    x = 2 * np.random.default_rng(n).standard_normal(n)
    u = cp.Variable(n)
    tight = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    cp.Problem(cp.Minimize(cp.sum_squares(u - x) / 2 + 0.7 * cp.tv(u))).solve(solver="CLARABEL", **tight)
    np.testing.assert_allclose(method.prox_tv1d(x, 0.7), u.value, atol=1e-6)


def test_prox_tv1d_edge_cases():
    x = np.random.default_rng(0).standard_normal((2, 3, 9))
    np.testing.assert_allclose(method.prox_tv1d(x, 1e3), np.broadcast_to(x.mean(-1, keepdims=True), x.shape), atol=1e-9)
    np.testing.assert_allclose(method.prox_tv1d(x, 1e-12), x, atol=1e-10)
    np.testing.assert_array_equal(method.prox_tv1d(np.array([4.0]), 1.0), [4.0])
    assert method.prox_tv1d(np.zeros((0, 5)), 1.0).shape == (0, 5)
    with pytest.raises(ValueError, match="x: must be finite"):
        method.prox_tv1d(np.array([0, math.nan]), 1.0)


def test_moreau_identity():
    """The prox of lambda |.|_1 plus lambda times that of its conjugate, a projection onto a box, is the identity."""
    x, lambda_ = 3 * torch.randn(100, generator=generator(), dtype=torch.float64), 0.8
    conjugate = method.prox_box(x / lambda_, 1 / lambda_)
    torch.testing.assert_close(method.prox_l1(x, lambda_) + lambda_ * conjugate, x, atol=1e-10, rtol=0)
    torch.testing.assert_close(method.moreau_score(method.prox_l1, x, lambda_), -conjugate, atol=1e-10, rtol=0)
    assert method.moreau_envelope(lambda u: u.abs().sum(-1), method.prox_l1, x[:1], lambda_) <= x[0].abs()


# Steps


def test_schemes_agree_to_second_order():
    for a, delta in ((3.0, 1e-4), (0.5, 1e-3)):
        em, exp, imp = (method.coefficients(scheme, a, delta) for scheme in ("em", "exp", "imp"))
        for other in (exp, imp):
            assert abs(em.w - other.w) < 1.1 * (a * delta) ** 2
            assert abs(em.h - other.h) < 1.1 * a * delta**2
            assert abs(em.s**2 - other.s**2) < 2.2 * 2 * a * delta**2


def test_exponential_scheme_is_exact_without_forcing():
    w, _, s = method.coefficients("exp", 2.5, 0.7)
    assert s**2 / (1 - w**2) == pytest.approx(1 / 2.5)
    assert method.coefficients("imp", 2.0, 0.5) == pytest.approx((0.5, 0.25, 0.5))


def test_step_sizes():
    assert method.step_size("lambda", 0.2) == 0.2
    assert method.step_size("quad", 0.2) == pytest.approx(0.02)
    assert method.step_size("ad", 0.5, 0.4) == pytest.approx(0.16)
    assert method.step_size("lambda", 5.0) == 0.3


# Exact laws


def laplace_step(lambda_=0.2, scheme="exp"):
    return method.partial_step(method.prox_l1, lambda x: 2 * (x - 1.2), lambda_, lambda_ / 2, scheme)


def test_transfer_matrix_conserves_mass_and_moments():
    x = np.linspace(-6, 6, 601)
    image, s = 0.8 * x + 0.1, 0.03
    matrix = method.transfer_matrix(x, image, s)
    np.testing.assert_allclose(matrix.sum(0), 1, atol=1e-12)
    inside = np.abs(image) < 5
    mean = x @ matrix
    np.testing.assert_allclose(mean[inside], image[inside], atol=1e-7)
    np.testing.assert_allclose(((x**2) @ matrix - mean**2)[inside], s**2, rtol=1e-5)


def test_exact_law_agrees_with_the_sampler():
    start, lambdas = torch.zeros(200_000, dtype=torch.float64), [1.0, 0.3]

    def grad_f(x):
        return 2 * (x - 1.2)

    x, trace = method.sample_partial(method.prox_l1, grad_f, lambdas, 6, "quad", "exp", start, generator(), cap=0.1)
    grid = np.linspace(-6, 8, 2801)
    law = method.annealed_law_1d(method.prox_l1, grad_f, lambdas, 6, "quad", "exp", method.dirac(grid, 0.0))

    def cdf(at):
        return np.interp(at, grid + (grid[1] - grid[0]) / 2, np.cumsum(law.p))

    assert kstest(x.numpy(), cdf).pvalue > 1e-3
    assert trace.nfe == 12 and trace.delta == pytest.approx([0.1, 0.045])
    assert trace.mean_square[-1] == pytest.approx(law.variance + (law.p @ law.x) ** 2, rel=0.02)


def test_coarse_grids_do_not_change_a_law():
    x = np.linspace(-5, 7, 1201)
    coarse, fine = (method.exact_law_1d(laplace_step(), method.dirac(x, 0.0), 7, r) for r in (3, 1e9))
    assert method.total_variation(coarse, fine) < 1e-3
    assert coarse.p.sum() == pytest.approx(1, abs=1e-12)


def test_stationary_law_is_the_limit():
    x = np.linspace(-5, 7, 601)
    limit = method.exact_law_1d(laplace_step(), method.dirac(x, 3.0), 400, 1e9)
    assert method.total_variation(method.stationary_law_1d(laplace_step(), x), limit) < 1e-9


def test_a_grid_that_ends_at_a_constraint_projects():
    x = np.linspace(-1, 1, 201)
    law = method.exact_law_1d(lambda x: (x, 1.0), method.dirac(x, 0.0))
    assert law.p[-1] == pytest.approx(0.5 - math.erf(0.995 / math.sqrt(2)) / 2, abs=1e-5)  # P(Z > 1 - half a cell)


def test_distances_and_smoothing():
    x = np.linspace(-8, 8, 1601)
    a, b = method.law_of(x, x**2 / 2), method.law_of(x, (x - 0.5) ** 2 / 2)
    assert method.wasserstein1(a, b) == pytest.approx(0.5, abs=1e-6)
    assert method.total_variation(a, b) == pytest.approx(math.erf(0.25 / math.sqrt(2)), abs=1e-4)
    assert method.gauss_smoothed(a, 0.44).variance == pytest.approx(1.44, abs=1e-3)


# Samplers


@pytest.mark.parametrize("joint", [False, True])
def test_a_gaussian_posterior_is_sampled(joint):
    """In Fourier space the chain is x <- (1 - delta k) x + sqrt(2 delta) z, with k from the operator's power."""
    operator, sigma_n, variance, lambda_, c = Blur((8, 8), gaussian_kernel(5, 1.0)), 0.5, 0.3, 0.02, 0.5
    data = operator._spectrum.abs() ** 2 / sigma_n**2
    shrink = variance / (variance + lambda_)
    k = (1 - shrink * (1 - lambda_ * data)) / lambda_ if joint else (1 - shrink) / lambda_ + lambda_ + data
    grad_f = method.grad_least_squares(operator, operator.A(torch.ones(8, 8, dtype=torch.float64)), sigma_n)
    prox = partial(method.prox_quadratic, mean=0.5, variance=variance)
    x0 = torch.zeros(600, 8, 8, dtype=torch.float64)
    sampler = method.sample_joint if joint else method.sample_partial
    x, _ = sampler(prox, grad_f, [0.1, lambda_], [20, 150], "lambda", "em", x0, generator(), c=c)
    assert x.var(0).mean() == pytest.approx(float((1 / (k * (1 - k * c * lambda_ / 2))).mean()), rel=0.02)
    pull = (1 - shrink) * 0.5 / lambda_ + (shrink if joint else 1) * data[0, 0]  # the constant image: A 1 = 1
    assert x.mean() == pytest.approx(float(pull / k[0, 0]), abs=0.01)


def test_without_data_the_prior_is_sampled():
    operator = Inpaint(torch.eye(4))

    def grad_f(x):
        return 0 * operator.AT(x)

    x, _ = method.sample_partial(
        method.prox_quadratic, grad_f, [0.01], 300, "lambda", "em", torch.zeros(5000, 4, 4), generator()
    )
    assert x.var() == pytest.approx(1 / (1 / 1.01 + 0.01), rel=0.02)


@pytest.mark.parametrize("sampler", [method.sample_partial, method.sample_joint])
def test_samplers_are_reproducible_and_confined(sampler):
    def draw(seed, lambdas):
        return sampler(method.prox_l1, NONE, lambdas, 30, "quad", "exp", torch.full((50,), 9.0), generator(seed), 0.1)

    assert torch.equal(draw(0, [5.0, 1.0])[0], draw(0, [5.0, 1.0])[0])
    assert not torch.equal(draw(0, [5.0, 1.0])[0], draw(1, [5.0, 1.0])[0])
    assert draw(0, [5.0])[1].nfe == 31


def test_the_confining_term_confines():
    """Where the prior does nothing, the chain at level 5 is drawn to 0 by lambda |x|^2 / 2, and only by that."""
    arguments = (lambda x, lambda_: x, NONE, [5.0], 200, "quad", "exp", torch.full((20_000,), 9.0), generator())
    confined, free = (method.sample_partial(*arguments, confine=confine)[0] for confine in (True, False))
    a, delta = 5.2, 0.3  # the step is w x + (h / 5) x + s z
    w, h, s = method.coefficients("exp", a, delta)
    assert confined.var() == pytest.approx(s**2 / (1 - (w + h / 5) ** 2), rel=0.05)
    assert confined.mean().abs() < 0.02
    assert free.mean() == pytest.approx(9, abs=0.3)


def test_gamma_weighs_the_likelihood():
    arguments = (method.prox_l1, lambda x: x - 3, [0.5, 0.1], 40, "lambda", "em", torch.zeros(1000), generator())
    weak, strong = (
        method.sample_partial(*arguments, gamma=gamma, c=0.3)[0].mean() for gamma in ([1.0, 0.1], [0.1, 4.0])
    )
    assert weak < 1 < 2.5 < strong


BAD = {
    "lambdas": ([], [0.1, 0.1], [0.1, 0.2], [0.1, 0.0], [math.nan]),
    "K": (0, [1]), "delta_mode": ("cube",), "scheme": ("rk4",), "gamma": (-1.0,), "c": (0.0,),
    "x0": (torch.tensor([math.nan]),),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
@pytest.mark.parametrize("sampler", [method.sample_partial, method.sample_joint])
def test_samplers_refuse(sampler, name, value):
    arguments = {"lambdas": [0.2, 0.1], "K": 2, "delta_mode": "lambda", "scheme": "em", "x0": torch.zeros(3)} | {
        name: value
    }
    with pytest.raises(ValueError, match=name):
        sampler(method.prox_l1, NONE, generator=generator(), **arguments)


def test_bad_numbers_are_refused():
    x, grid, net = np.zeros(2), np.linspace(0, 1, 5), method.ProxNet((1,))
    for call in (
        lambda: method.prox_l1(x, 0.0),
        lambda: method.prox_box(x, 1.0, 1, 1),
        lambda: method.coefficients("em", 1.0, 0.0),
        lambda: method.moreau_score(method.prox_l1, x, -1.0),
        lambda: method.transfer_matrix(grid, np.zeros(5), 0.1),
        lambda: method.transfer_matrix(grid, np.full(5, math.nan), 0.5),
        lambda: method.moreau_matching_loss(torch.zeros(2, 1), torch.zeros(2, 1), 0.0),
        lambda: method.moreau_matching_loss(torch.zeros(2, 1), torch.zeros(2), 1.0),
        lambda: method.grad_least_squares(Inpaint(torch.eye(2)), torch.zeros(2, 2), 0.0),
        lambda: method.train_prox(net, None, (0.0, 1.0), 1, generator()),
        lambda: method.train_prox(net, None, (0.1, 1.0), 1, generator(), zeta=(1.0, 0.0)),
    ):
        with pytest.raises(ValueError, match=r"must be"):
            call()


# Networks


def test_matching_loss():
    pred, x0 = torch.randn(2, 5, 3, 2, generator=generator(), dtype=torch.float64)
    error = (pred - x0).square().mean()
    assert method.moreau_matching_loss(pred, x0, 1e4) * 1e8 == pytest.approx(error.item(), rel=1e-6)
    zeta = torch.linspace(0.5, 2, 5, dtype=torch.float64)
    by_hand = 1 - torch.exp(-((pred - x0) ** 2).sum((1, 2)) / (6 * zeta**2))
    assert method.moreau_matching_loss(pred, x0, zeta) == pytest.approx(by_hand.mean().item())


@pytest.mark.parametrize("conv", [False, True])
def test_network_shapes_levels_and_batching(conv):
    torch.manual_seed(0)
    net, x = method.ProxNet((8, 8), 16, 2, sigma=0.7, conv=conv), torch.randn(2, 3, 8, 8, generator=generator())
    out = net(x, 0.3)
    assert out.shape == x.shape
    torch.testing.assert_close(net(x, torch.full((2, 3, 1, 1), 0.3)), out)
    torch.testing.assert_close(net(x[0, 1], 0.3), out[0, 1])
    torch.testing.assert_close(net(x, 1e-10), x, atol=1e-3, rtol=0)


@pytest.mark.parametrize("lambda_", [0.01, 5.0])
def test_network_sees_inputs_of_variance_one(lambda_):
    net, seen = method.ProxNet((4,), 8, 1, sigma=0.6), []
    net.layers[0].register_forward_hook(lambda layer, inputs, out: seen.append(inputs[0].std().item()))
    net(math.sqrt(0.36 + lambda_) * torch.randn(20_000, 4, generator=generator()), lambda_)
    assert seen == pytest.approx([1], rel=0.02)


def test_training_on_a_gaussian_finds_its_prox():
    g = generator()
    torch.manual_seed(0)
    net = method.ProxNet((1,), 32, 1, sigma=2.0)  # the true deviation is 1: the network has to learn that
    method.train_prox(net, lambda n: torch.randn((n, 1), generator=g), (0.1, 1.0), 400, g, batch=256, lr=5e-3)
    x = torch.linspace(-2, 2, 21)[:, None]
    for lambda_ in (0.2, 0.8):
        assert (net(x, lambda_) - method.prox_quadratic(x, lambda_)).abs().max() < 0.15


# Rivals, with the exact denoiser of a Gaussian prior


@pytest.mark.parametrize(
    "operator", [Blur((8, 8), gaussian_kernel(3, 1.0)), Downsample((8, 8), 2), Inpaint(torch.eye(8))]
)
def test_rivals_fit_the_data(operator):
    truth = torch.randn(4, 8, 8, generator=generator())
    y, lambdas = operator.A(truth), list(np.geomspace(10, 1e-3, 60))
    x0 = math.sqrt(10) * torch.randn(4, 8, 8, generator=generator(1))

    def residual(x):
        return (operator.A(x) - y).square().mean().sqrt()

    free = method.sample_dps(method.prox_quadratic, operator, y, lambdas, x0, generator(), weight=0.0)
    guided = method.sample_dps(method.prox_quadratic, operator, y, lambdas, x0, generator(), weight=0.5)
    pulled = method.sample_diffpir(
        method.prox_quadratic, operator, y, 0.05, lambdas, x0, generator(), weight=1.0, fresh=0.5
    )
    assert residual(guided) < 0.5 * residual(free)
    assert residual(pulled) < 0.1 * residual(free)
    assert free.std() == pytest.approx(1, abs=0.15)  # without guidance: the prior


# Notebooks


def test_gpu_preset_runs_on_a_cpu():
    """The same code path with small sizes; after so short a training only that each verdict is given matters."""
    # enough training that tuning finds an optimum inside its grid, which the notebook asserts
    sizes = {"reverse_steps": 40, "toy_steps": 6, "images": "photographs", "size": 12, "width": 8, "depth": 2,
             "train_steps": 60, "batch": 16, "valid_images": 4, "test_images": 4, "samples": 2, "nfe": 22}  # fmt: skip
    try:
        load_notebook("proximal_generative_modeling/experiments", preset="gpu", device="cpu", **sizes)
    except ClaimsFailed as error:
        assert "no verdict was given" not in str(error)


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds 0 PNG or JPG files"):
        load_notebook("proximal_generative_modeling/experiments", images=str(tmp_path), toy_steps=3, reverse_steps=40)
