# %% [markdown]
# # Method
#
# An inverse problem asks for samples of a posterior $\pi(x)\propto e^{-f(x)-g(x)}$, where
# $f(x)=\|Ax-y\|^2/2\sigma_n^2$ is the likelihood's potential and $g$ the prior's, which is known through samples of
# $e^{-g}$ only. Diffusion models smooth the prior's *density* with a Gaussian, $p_\lambda=e^{-g}*N(0,\lambda I)$.
# Proximal generative modelling {cite}`zhang2026proximal` smooths its *potential* with a parabola
# {cite}`moreau1965proximite`:
#
# $$M_g^\lambda(x)=\min_u\;g(u)+\frac{\|u-x\|^2}{2\lambda},\qquad
#   \mathrm{prox}_{\lambda g}(x)=\arg\min_u\;g(u)+\frac{\|u-x\|^2}{2\lambda}.$$

# %%
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse
import torch
from scipy.signal import fftconvolve
from scipy.sparse.linalg import spsolve
from torch import Tensor, nn

from companion.imaging import LinearOperator
from companion.training import train

Prox = Callable[[Tensor, float], Tensor]  # (x, lambda) -> prox of lambda g at x, or a network that imitates it

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"


# %%
def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value}: must be positive and finite")


# %% [markdown]
# ## Proximal maps
#
# Four in closed form, for NumPy arrays and tensors alike: soft thresholding for $\|u\|_1$, projection for a box,
# shrinkage for $(u-m)^2/2v$, and the total variation $\sum_i|u_{i+1}-u_i|$. The last is solved exactly by dynamic
# programming over the derivative of the cost-to-come, which is piecewise linear and increasing
# {cite}`johnson2013dynamic`: at each step the derivative is clipped to $[-\lambda,\lambda]$, and the line $u-x_i$ is
# added.


# %%
def prox_l1(x, lambda_: float, weight: float = 1.0):
    """Prox of lambda weight |u|_1: soft thresholding. Any shape; ValueError unless lambda, weight > 0."""
    _positive(lambda_=lambda_, weight=weight)
    return x - x.clip(-lambda_ * weight, lambda_ * weight)


def prox_box(x, lambda_: float, low: float = -1.0, high: float = 1.0):
    """Prox of the indicator of low <= u <= high: the projection, whatever lambda > 0. Any shape."""
    _positive(lambda_=lambda_, width=high - low)
    return x.clip(low, high)


def prox_quadratic(x, lambda_: float, mean: float = 0.0, variance: float = 1.0):
    """Prox of lambda (u - mean)^2 / (2 variance), the potential of a Gaussian prior. Any shape."""
    _positive(lambda_=lambda_, variance=variance)
    return (variance * x + lambda_ * mean) / (variance + lambda_)


def prox_tv1d(x: np.ndarray, lambda_: float) -> np.ndarray:
    """Prox of lambda sum |u_{i+1} - u_i| along the last axis, exactly. x: (..., n), finite."""
    _positive(lambda_=lambda_)
    x = np.asarray(x, dtype=float)
    if not np.isfinite(x).all():
        raise ValueError("x: must be finite")
    if x.ndim > 1:
        return np.stack([prox_tv1d(row, lambda_) for row in x]) if len(x) else x

    def where(level: float) -> float:  # the derivative takes this level at one point
        piece = np.searchsorted(slope[:-1] * start[1:] + offset[:-1], level)
        return (level - offset[piece]) / slope[piece]

    start, slope, offset = np.array([-np.inf]), np.array([1.0]), -x[:1]  # derivative: slope u + offset from start on
    bounds = []
    for x_next in x[1:]:
        low, high = where(-lambda_), where(lambda_)
        bounds.append((low, high))
        keep = (start < high) & (np.append(start[1:], np.inf) > low)
        start = np.concatenate([[-np.inf], np.maximum(start[keep], low), [high]])
        slope = 1 + np.concatenate([[0.0], slope[keep], [0.0]])
        offset = np.concatenate([[-lambda_], offset[keep], [lambda_]]) - x_next
    u = np.empty_like(x)
    u[-1] = where(0.0)
    for i in reversed(range(len(bounds))):
        u[i] = np.clip(u[i + 1], *bounds[i])
    return u


# %% [markdown]
# ## The Moreau score
#
# Whatever the prox is, $\nabla M_g^\lambda(x)=(x-\mathrm{prox}_{\lambda g}(x))/\lambda$. So the smoothed prior
# $e^{-M_g^\lambda}$ has a score in closed form, and the likelihood is left as it is:


# %%
def moreau_envelope(g: Callable, prox: Prox, x, lambda_: float):
    """M_g^lambda(x), summed over the last axis: (..., d) -> (...). g: (..., d) -> (...)."""
    u = prox(x, lambda_)
    return g(u) + ((u - x) ** 2).sum(-1) / (2 * lambda_)


def moreau_score(prox: Prox, x, lambda_: float):
    """-grad M_g^lambda(x) = -(x - prox(x)) / lambda, of the shape of x."""
    _positive(lambda_=lambda_)
    return -(x - prox(x, lambda_)) / lambda_


# %% [markdown]
# ## One step of Langevin's equation
#
# The **partial** target at level $\lambda$ adds a confining term,
# $\pi_\lambda\propto\exp\{-f-\frac\lambda2\|x\|^2-M_g^\lambda\}$. Its Langevin drift is $-ax+F(x)$, with
#
# $$a=\tfrac1\lambda+\lambda,\qquad F(x)=\tfrac1\lambda\mathrm{prox}_{\lambda g}(x)-\gamma\nabla f(x).$$
#
# A step of length $\delta$ is $x\leftarrow wx+hF(x)+sz$. Euler-Maruyama (`em`) is the scheme of the released code;
# `exp` solves the linear part exactly with $F$ frozen; `imp` treats it implicitly.


# %%
class Coefficients(NamedTuple):
    w: float  # of x
    h: float  # of F(x)
    s: float  # of the noise z


def coefficients(scheme: str, a: float, delta: float) -> Coefficients:
    """w, h, s of a step of dx = (-a x + F) dt + sqrt(2) dW, for scheme "em", "exp" or "imp"; a, delta > 0."""
    _positive(a=a, delta=delta)
    if scheme == "em":
        return Coefficients(1 - a * delta, delta, math.sqrt(2 * delta))
    if scheme == "exp":
        decay = math.exp(-a * delta)
        return Coefficients(decay, (1 - decay) / a, math.sqrt((1 - decay**2) / a))
    if scheme == "imp":
        return Coefficients(1 / (1 + a * delta), delta / (1 + a * delta), math.sqrt(2 * delta) / (1 + a * delta))
    raise ValueError(f"scheme={scheme!r}: must be 'em', 'exp' or 'imp'")


def step_size(mode: str, lambda_: float, c: float | None = None, cap: float = 0.3) -> float:
    """delta for mode "lambda": c lambda (c = 1); "quad": c lambda^2 (c = .5); "ad": c / (lambda + 1/lambda) (c = 1)."""
    _positive(lambda_=lambda_, cap=cap, c=1.0 if c is None else c)
    rules = {"lambda": (1.0, lambda_), "quad": (0.5, lambda_**2), "ad": (1.0, 1 / (lambda_ + 1 / lambda_))}
    if mode not in rules:
        raise ValueError(f"delta_mode={mode!r}: must be one of {', '.join(map(repr, rules))}")
    default, unit = rules[mode]
    return min((default if c is None else c) * unit, cap)


# %% [markdown]
# ## Annealed samplers
#
# Stages $\lambda_0>\dots>\lambda_T$ of $K_t$ steps each. At the largest level the confining term leaves hardly more
# than a point. The **joint** sampler targets $e^{-M_{f+g}^\lambda}$ instead, without confinement, with the prox of
# the sum to first order:
# $\mathrm{prox}_{\lambda(f+g)}(x)\approx\mathrm{prox}_{\lambda g}(x-\gamma\lambda\nabla f(x))$, hence $a=1/\lambda$.
# Each step costs one evaluation of the prox (NFE). With $\gamma$ other than 1 a run no longer targets $\pi$; we call
# it *tuned*.


# %%
class Trace(NamedTuple):
    lambda_: list[float]  # per stage
    delta: list[float]
    mean_square: list[float]  # of x at the end of the stage
    nfe: int  # evaluations of the prox in all


def _stages(lambdas, K, gamma, x0) -> list[tuple[float, int, float]]:
    """One (lambda, K, gamma) a stage, checked."""
    n = len(lambdas)
    steps, weights = ([value] * n if np.ndim(value) == 0 else list(value) for value in (K, gamma))
    if n == 0 or not all(0 < b < a < math.inf for a, b in zip([1e300, *lambdas], lambdas, strict=False)):
        raise ValueError(f"lambdas={lambdas}: must be positive, finite and strictly decreasing")
    if len(steps) != n or min(steps) < 1:
        raise ValueError(f"K={K}: must be at least 1, one number or one for each of the {n} levels")
    if len(weights) != n or not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(f"gamma={gamma}: must not be negative, one number or one for each of the {n} levels")
    if not x0.isfinite().all():
        raise ValueError("x0: must be finite")
    return list(zip(map(float, lambdas), steps, map(float, weights), strict=True))


@torch.no_grad()
def _anneal(forcing, prox, stages, x0, generator, delta_mode, c, cap, scheme, confine, final_lambda):
    x, trace = x0, Trace([], [], [], sum(K for _, K, _ in stages) + (final_lambda is not None))
    for lambda_, K, gamma in stages:
        delta = step_size(delta_mode, lambda_, c, cap)
        w, h, s = coefficients(scheme, 1 / lambda_ + (lambda_ if confine else 0.0), delta)
        for _ in range(K):
            z = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
            x = w * x + h * forcing(x, lambda_, gamma) + s * z
        for record, value in zip(trace, (lambda_, delta, float((x**2).mean())), strict=False):
            record.append(value)
    if final_lambda is not None:
        x = prox(x, final_lambda)
    return x, trace


def sample_partial(
    prox: Prox, grad_f: Callable[[Tensor], Tensor], lambdas: Sequence[float], K: int | Sequence[int], delta_mode: str,
    scheme: str, x0: Tensor, generator: torch.Generator, final_lambda: float | None = None, *,
    gamma: float | Sequence[float] = 1.0, c: float | None = None, cap: float = 0.3, confine: bool = True,
) -> tuple[Tensor, Trace]:  # fmt: skip
    """Annealed proximal Langevin for e^{-f - lambda |x|^2 / 2 - M_g^lambda}; x0: any number of chains at once.

    K: steps a stage; delta_mode, c, cap: see `step_size`; final_lambda: level of a last prox without noise, or None.
    confine=False drops lambda |x|^2 / 2. Raises ValueError for bad levels, steps, weights, schemes or x0.
    """

    def forcing(x, lambda_, gamma):
        return prox(x, lambda_) / lambda_ - gamma * grad_f(x)

    stages = _stages(lambdas, K, gamma, x0)
    return _anneal(forcing, prox, stages, x0, generator, delta_mode, c, cap, scheme, confine, final_lambda)


def sample_joint(
    prox: Prox, grad_f: Callable[[Tensor], Tensor], lambdas: Sequence[float], K: int | Sequence[int], delta_mode: str,
    scheme: str, x0: Tensor, generator: torch.Generator, final_lambda: float | None = None, *,
    gamma: float | Sequence[float] = 1.0, c: float | None = None, cap: float = 0.3,
) -> tuple[Tensor, Trace]:  # fmt: skip
    """Annealed proximal Langevin for e^{-M_{f+g}^lambda}, the prox of f + g to first order. As `sample_partial`."""

    def forcing(x, lambda_, gamma):
        return prox(x - gamma * lambda_ * grad_f(x), lambda_) / lambda_

    stages = _stages(lambdas, K, gamma, x0)
    return _anneal(forcing, prox, stages, x0, generator, delta_mode, c, cap, scheme, False, final_lambda)


def grad_least_squares(operator: LinearOperator, y: Tensor, sigma_n: float) -> Callable[[Tensor], Tensor]:
    """Gradient A^T(A x - y) / sigma_n^2 of f."""
    _positive(sigma_n=sigma_n)
    return lambda x: operator.grad(x, y) / sigma_n**2


# %% [markdown]
# ## Exact laws in one dimension
#
# In one dimension we need no samples. A law is a vector of masses on an even grid, and a step $x\leftarrow m(x)+sz$
# is a sparse matrix whose column $j$ is the Gaussian around $m(x_j)$, sampled on the grid. For $s\ge dx$ such a
# Gaussian has the mean and the variance of the continuous one up to $10^{-7}$; binning $m(x_j)$ first would add
# $dx^2/6$ to the variance. What would leave the grid stays at its ends, so a grid that ends at a constraint projects
# onto it. As a law is as smooth as its last noise, a stage with large $s$ runs on a coarser grid.


# %%
class Law(NamedTuple):
    x: np.ndarray  # (n,) even grid
    p: np.ndarray  # (n,) masses that sum to 1

    @property
    def variance(self) -> float:
        return float(self.p @ (self.x - self.p @ self.x) ** 2)


Step1D = Callable[[np.ndarray], tuple[np.ndarray, float]]  # grid (n,) -> m(grid) (n,) and s


def law_of(x: np.ndarray, potential: np.ndarray) -> Law:
    """The law with density e^{-potential} on the grid, both (n,); a potential of +inf means no mass."""
    p = np.exp(-(potential - potential.min()))
    return Law(x, p / p.sum())


def dirac(x: np.ndarray, at: float) -> Law:
    """All mass at the grid point next to `at`."""
    return Law(x, (np.arange(len(x)) == np.abs(x - at).argmin()).astype(float))


def transfer_matrix(x: np.ndarray, image: np.ndarray, s: float) -> scipy.sparse.csc_array:
    """Column j: the law of image[j] + s z on the even grid x. (n,), (m,) -> (n, m). ValueError if s < dx or for NaN."""
    dx = x[1] - x[0]
    if not dx <= s < math.inf:
        raise ValueError(f"s={s}: must be finite and at least the grid's spacing {dx}")
    if not np.isfinite(image).all():
        raise ValueError("image: must be finite")
    reach = math.ceil(7.5 * s / dx)
    rows = np.rint((image - x[0]) / dx).astype(np.int32)[:, None] + np.arange(-reach, reach + 1, dtype=np.int32)
    weights = np.exp(-((x[0] + rows * dx - image[:, None]) ** 2) / (2 * s**2))
    weights /= weights.sum(1, keepdims=True)
    starts = np.arange(len(image) + 1) * (2 * reach + 1)
    rows = rows.clip(0, len(x) - 1)
    return scipy.sparse.csc_array((weights.ravel(), rows.ravel(), starts), shape=(len(x), len(image)))


def partial_step(prox: Prox, grad_f: Callable, lambda_: float, delta: float, scheme: str, confine=True) -> Step1D:
    """One step of `sample_partial` as a map of the line and its noise."""
    w, h, s = coefficients(scheme, 1 / lambda_ + (lambda_ if confine else 0.0), delta)
    return lambda x: (w * x + h * (prox(x, lambda_) / lambda_ - grad_f(x)), s)


def exact_law_1d(step: Step1D, start: Law, K: int = 1, resolution: float = 3.0) -> Law:
    """The law after K steps, on the grid of `start`; in between, on a grid with spacing at most s / resolution."""
    fine, p = start
    s = step(fine)[1]
    points = min(len(fine), max(3, math.ceil((fine[-1] - fine[0]) * resolution / s) + 1))
    coarse = np.linspace(fine[0], fine[-1], points)
    if K > 1:
        p = transfer_matrix(coarse, step(fine)[0], s) @ p
        inner = transfer_matrix(coarse, step(coarse)[0], s)
        for _ in range(K - 2):
            p = inner @ p
    return Law(fine, transfer_matrix(fine, step(coarse if K > 1 else fine)[0], s) @ p)


def stationary_law_1d(step: Step1D, x: np.ndarray) -> Law:
    """The law that a step leaves as it is: a linear system instead of many steps."""
    image, s = step(x)
    matrix = transfer_matrix(x, image, s) - scipy.sparse.eye_array(len(x), format="csc")
    fixed = np.abs(image - x).argmin()  # near a fixed point of m there is mass: set it to 1, drop its equation
    rest = np.arange(len(x)) != fixed
    p = np.ones(len(x))
    p[rest] = spsolve(matrix[rest][:, rest].tocsc(), -matrix[rest][:, [fixed]].toarray().ravel())
    return Law(x, p / p.sum())


def annealed_law_1d(
    prox: Prox, grad_f: Callable, lambdas: Sequence[float], K: int, delta_mode: str, scheme: str, start: Law,
    *, c: float | None = None, cap: float = 0.1, confine: bool = True,
) -> Law:  # fmt: skip
    """Law of `sample_partial` from the law `start`, on its grid. ValueError as there."""
    for lambda_, steps, _ in _stages(lambdas, K, 1.0, torch.zeros(1)):
        delta = step_size(delta_mode, lambda_, c, cap)
        start = exact_law_1d(partial_step(prox, grad_f, lambda_, delta, scheme, confine), start, steps)
    return start


def gauss_smoothed(law: Law, lambda_: float) -> Law:
    """The law of X + sqrt(lambda) Z, on the grid of X."""
    dx = law.x[1] - law.x[0]
    offsets = dx * np.arange(-int(9 * math.sqrt(lambda_) / dx), int(9 * math.sqrt(lambda_) / dx) + 1)
    kernel = np.exp(-(offsets**2) / (2 * lambda_))
    return Law(law.x, fftconvolve(law.p, kernel / kernel.sum(), mode="same"))


def total_variation(a: Law, b: Law) -> float:
    """Half the l1 distance of two laws on one grid."""
    return float(np.abs(a.p - b.p).sum() / 2)


def wasserstein1(a: Law, b: Law) -> float:
    """The integral of |F_a - F_b|, on one grid."""
    return float(np.abs(np.cumsum(a.p - b.p)).sum() * (a.x[1] - a.x[0]))


# %% [markdown]
# ## Moreau score matching
#
# A denoiser trained with the squared error returns the posterior *mean* $E[X_0\mid x]$, the score of the smoothed
# density. The prox is the posterior *mode*. A loss that forgives all large errors equally has the mode as its
# minimiser when $\zeta\to0$ {cite}`fang2024whats`:
#
# $$E\Big[1-\exp\Big(-\tfrac1d\|D_\theta(\mu_tX_0+s_tZ,t)-X_0\|^2/\zeta^2\Big)\Big],\qquad
#   \mathrm{prox}_{\lambda g}(x)\approx D_\theta(\mu_tx,t),\quad \lambda=s_t^2/\mu_t^2 .$$
#
# `ProxNet` takes $x=x_t/\mu_t$ and $\lambda$: divided by its deviation, either input is the same. The network's part
# is the correction to the prox of $N(0,\sigma^2I)$, in units of that Gaussian's posterior deviation (the
# parametrisation of {cite}`karras2022elucidating`).


# %%
def moreau_matching_loss(pred: Tensor, x0: Tensor, zeta: float | Tensor) -> Tensor:
    """Mean of 1 - exp(-|pred - x0|^2 / (d zeta^2)) over B. pred, x0: (B, ...) of d numbers; zeta: scalar or (B,)."""
    zeta = torch.as_tensor(zeta, device=pred.device, dtype=pred.dtype)
    if not (zeta > 0).all():
        raise ValueError(f"zeta={zeta}: must be positive")
    if pred.shape != x0.shape:
        raise ValueError(f"pred has shape {tuple(pred.shape)}: must be that of x0, {tuple(x0.shape)}")
    error = (pred - x0).square().flatten(1).mean(1)
    return -torch.expm1(-error / zeta**2).mean()  # expm1: for large zeta the loss is tiny


class ProxNet(nn.Module):
    """D(x, lambda), (..., *shape) -> (..., *shape): an MLP for vectors and tiny images, or convolutional."""

    def __init__(
        self, shape: tuple[int, ...], width: int = 128, depth: int = 3, sigma: float = 1.0, conv: bool = False
    ):
        super().__init__()
        _positive(sigma=sigma)
        self.shape, self.sigma, self.conv = tuple(shape), sigma, conv
        if conv:
            sizes = [1, *[width] * (depth + 1), 1]
            dilations = [1, *(2 ** min(i, depth - 1 - i) for i in range(depth)), 1]  # 1 1 2 4 ... 4 2 1 1: sees far
            self.layers = nn.ModuleList(
                nn.Conv2d(a, b, 3, padding=k, dilation=k) for a, b, k in zip(sizes, sizes[1:], dilations, strict=False)
            )
        else:
            sizes = [math.prod(shape), *[width] * (depth + 1), math.prod(shape)]
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.embed = nn.Sequential(nn.Linear(5, width), nn.SiLU(), nn.Linear(width, width * depth))

    def forward(self, x: Tensor, lambda_: float | Tensor) -> Tensor:
        """lambda_: one number, or a tensor that broadcasts against x."""
        lambda_ = torch.as_tensor(lambda_, device=x.device, dtype=x.dtype)
        shrink = self.sigma**2 / (self.sigma**2 + lambda_)  # the prox of N(0, sigma^2) is shrink x
        inputs = x / (self.sigma**2 + lambda_).sqrt()  # of variance 1
        if lambda_.numel() == 1:  # one level for all: one code for all
            level = lambda_.log().reshape(1, 1) / 4
        else:
            level = lambda_.log().expand(x.shape).reshape(-1, math.prod(self.shape))[:, :1] / 4
        code = self.embed(torch.cat([level, *(f(k * level) for k in (2, 6) for f in (torch.sin, torch.cos))], 1))
        hidden = inputs.reshape(-1, 1, *self.shape) if self.conv else inputs.reshape(-1, math.prod(self.shape))
        hidden = self.layers[0](hidden)
        for layer, shift in zip(self.layers[1:-1], code.chunk(len(self.layers) - 2, 1), strict=True):
            hidden = hidden + layer(nn.functional.silu(hidden + (shift[..., None, None] if self.conv else shift)))
        return shrink * x + (shrink * lambda_).sqrt() * self.layers[-1](nn.functional.silu(hidden)).reshape(x.shape)


def train_prox(
    net: ProxNet, draw: Callable[[int], Tensor], levels: tuple[float, float], steps: int, generator: torch.Generator,
    *, zeta: tuple[float, float] | None = None, batch: int = 256, lr: float = 2e-3, bf16: bool = False,
) -> ProxNet:  # fmt: skip
    """Train in place by Moreau score matching; lambda is log-uniform in `levels`, draw(n) gives n prior samples.

    zeta: from where to where it falls (linearly), in units of sqrt(shrink lambda), the error of a Gaussian prior; None
    (infinite) is the squared error in those units, whose minimiser is the mean. ValueError for levels, zeta <= 0.
    """
    _positive(level=min(levels), **({} if zeta is None else {"zeta": min(zeta)}))
    low, high = math.log(levels[0]), math.log(levels[1])
    device = next(net.parameters()).device
    progress = iter(np.linspace(0, 1, steps))

    def batches():
        while True:
            yield draw(batch).to(device)

    def loss(net: ProxNet, x0: Tensor) -> Tensor:
        u = (
            torch.rand((batch,) + (1,) * (x0.ndim - 1), generator=generator, device=device)
            if high > low
            else torch.zeros((1,) * x0.ndim, device=device)
        )
        lambda_ = (low + (high - low) * u).exp()
        pred = net(x0 + lambda_.sqrt() * torch.randn(x0.shape, generator=generator, device=device), lambda_)
        unit = (lambda_ * net.sigma**2 / (net.sigma**2 + lambda_)).sqrt()
        if zeta is None:
            return ((pred - x0) / unit).square().mean()
        now = zeta[0] + (zeta[1] - zeta[0]) * next(progress)
        return moreau_matching_loss(pred, x0, now * unit.flatten()) * now**2

    train(net, batches(), loss, steps=steps, lr=lr, optimizer=torch.optim.Adam, bf16=bf16)
    return net.eval()


# %% [markdown]
# ## Rivals
#
# All start from the same denoiser with $x=x_t/\mu_t$, levels $\lambda$ and one evaluation a step. **DPS**
# {cite}`chung2023diffusion` differentiates the residual of the denoised image through the network. **DiffPIR**
# {cite}`zhu2023denoising` replaces the denoised image by a data-consistent one. **PnP-ULA**
# {cite}`laumont2022bayesian` is `sample_partial` at one level with the mean instead of the mode. `deepinv`, which has
# all three, needs a torchvision that does not exist for this torch; these are our own short versions.


# %%
def sample_dps(net, operator, y, lambdas, x0, generator, *, weight: float) -> Tensor:
    """Ancestral steps of the reverse process, each minus weight grad_x |A D(x) - y|. x0: (..., h, w) at lambdas[0]."""
    x = x0
    for lambda_, lower in zip(lambdas, [*lambdas[1:], 0.0], strict=True):
        x = x.detach().requires_grad_()
        clean = net(x, lambda_)
        residual = (operator.A(clean) - y).square().sum((-2, -1)).sqrt()
        (slope,) = torch.autograd.grad(residual.sum(), x)
        z = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        with torch.no_grad():
            x = clean + lower / lambda_ * (x - clean) + math.sqrt(lower * (1 - lower / lambda_)) * z - weight * slope
    return x.detach()


@torch.no_grad()
def sample_diffpir(net, operator, y, sigma_n, lambdas, x0, generator, *, weight: float, fresh: float) -> Tensor:
    """Denoise, pull towards the data by a prox, renew the share `fresh` of the noise. x0: (..., h, w) at lambdas[0]."""
    x = x0
    for lambda_, lower in zip(lambdas, [*lambdas[1:], 0.0], strict=True):
        clean = operator.prox(net(x, lambda_), y, lambda_ / (weight * sigma_n**2))
        noise = (x - clean) / math.sqrt(lambda_)
        z = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        x = clean + math.sqrt(lower) * (math.sqrt(1 - fresh) * noise + math.sqrt(fresh) * z)
    return x


# %% [markdown]
# ## A small demonstration
#
# The posterior of $x\sim e^{-|x|}$ given $y=1.2$ with noise of variance .5: samples against the sampler's exact law.

# %%
if __name__ == "__main__":
    schedule = (np.geomspace(5, 0.05, 8), 10, "quad", "exp")
    x, trace = sample_partial(
        prox_l1, lambda x: 2 * (x - 1.2), *schedule, torch.zeros(10_000), torch.Generator().manual_seed(seed), cap=0.1
    )
    law = annealed_law_1d(prox_l1, lambda x: 2 * (x - 1.2), *schedule, dirac(np.linspace(-4, 6, 501), 0.0))
    print(f"after {trace.nfe} steps: mean {x.mean():.3f}, exact {law.p @ law.x:.3f}")
    print(f"variance {x.var():.3f}, exact {law.variance:.3f}")
