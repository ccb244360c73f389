# %% [markdown]
# # Theory, checked
#
# One section for each statement, on dense matrices in float64. Networks are random or, where a section says so,
# trained for a few steps. Four guides stand for "any guide": a noisy photograph, white noise, noise of size $10^3$
# and a constant image.

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"
side = None
small_side = None
nets = None
steps = None
attack = None
pairs = None

# %%
from itertools import combinations
from unittest.mock import patch

import matplotlib.pyplot as plt
import method
import numpy as np
import torch
from method import NECTR, LinearDenoiser, PairWeights, contraction_bound, contraction_factor, mirror

from companion import claim, start
from companion.imaging import Blur, Downsample, Inpaint, LinearOperator, gaussian_kernel, patches
from companion.plotting import show
from companion.stats import mean_interval
from companion.training import train

PRESETS = {
    # side: of the images; small_side: where many networks are tried; attack: power iterations; pairs: of starts
    "quick": {"side": 24, "small_side": 12, "nets": 50, "steps": 60, "attack": 12, "pairs": 10},
    "full": {"side": 48, "small_side": 20, "nets": 200, "steps": 1000, "attack": 60, "pairs": 45},
    "gpu": {"side": 64, "small_side": 32, "nets": 200, "steps": 5000, "attack": 100, "pairs": 45},
}
run = start("theory", PRESETS, preset=preset, seed=seed, device=device, side=side, small_side=small_side, nets=nets,
            steps=steps, attack=attack, pairs=pairs)  # fmt: skip
SIGMA = 25 / 255
F64 = {"dtype": torch.float64, "device": run.device}


def network(name: str, **options) -> NECTR:
    """An untrained denoiser in float64."""
    weights = PairWeights(**options, generator=run.torch_generator(name, "cpu"))
    return NECTR(weights).to(**F64)


def guides(size: int) -> dict[str, torch.Tensor]:
    """The four guides, each (1, 1, size, size)."""
    clean = patches("test", size, 1, run.rng("photograph"))[None].to(**F64)
    noise = torch.randn(3, 1, size, size, generator=run.torch_generator("guides"), **F64)
    return {
        "noisy photograph": clean + SIGMA * noise[:1],
        "white noise": noise[1:2],
        "noise of size 1000": 1000 * noise[2:],
        "constant": torch.full_like(clean, 0.5),
    }


trained = NECTR(PairWeights(generator=run.torch_generator("trained", "cpu"))).to(run.device)
batches = method.noisy_batches("train", 32, 4, run.rng("patches"), run.torch_generator("batches"))
train(trained, batches, method.denoising_loss, steps=run.steps, lr=1e-2, optimizer=torch.optim.Adam)
trained = trained.to(**F64).requires_grad_(False)
photograph = guides(run.side)["noisy photograph"]
W = trained.freeze(photograph, SIGMA)
cases = [(net, guide) for net in (network("random", pair="concat"), trained) for guide in guides(run.side).values()]


def dense_kernel(K: torch.Tensor) -> torch.Tensor:
    """K as a matrix (N, N), by applying it to each unit vector."""
    return LinearDenoiser(K).dense(lambda x: method.kernel_apply(K, x))[0]


def asymmetry(M: torch.Tensor) -> float:
    """Largest entry of |M - M^T| over the largest of |M|."""
    return float((M - M.T).abs().max() / M.abs().max())


# %% [markdown]
# ## A symmetric kernel
#
# A random and a trained network on four guides. Broken: the weight of the inverse translation is not shifted along with
# it, the mistake that is easiest to make; and the raw output $a$ without $\mathrm{softplus}$.


# %%
def unshifted(weights: dict) -> torch.Tensor:
    """Rows of a kernel with w_pi(i) for both pi(i) and its inverse."""
    return method.stack_window({method.inverse(pi): w for pi, w in weights.items()} | weights)


check = claim("symmetric-kernel")
weights = [net.pair_weights(guide, SIGMA) for net, guide in cases]
kernels = [dense_kernel(mirror(w)) for w in weights]
check.that("largest asymmetry", max(map(asymmetry, kernels)), within=(0, 1e-14),
           control=max(asymmetry(dense_kernel(unshifted(w))) for w in weights),
           broken="weights not shifted to the inverse translation")  # fmt: skip
with patch.object(torch.nn.functional, "softplus", lambda a: a):
    raw = [mirror(net.pair_weights(guide, SIGMA)) for net, guide in cases]
check.that("smallest entry", min(float(K.min()) for K in kernels), within=(0, None),
           control=min(float(K.min()) for K in raw), broken="no softplus")  # fmt: skip
check.verdict()

# %% [markdown]
# ## Doubly stochastic
#
# Broken: only the first pass, $\hat W$; $\alpha=1$ instead of $1/\max h$; and the row normalisation $D^{-1}K$ of plain
# non-local means, which doesn't keep the mean.

# %%
check = claim("doubly-stochastic")
frozen = [net.freeze(guide, SIGMA) for net, guide in cases]
matrices = [D.dense()[0] for D in frozen]


def first_pass(D: LinearDenoiser) -> torch.Tensor:
    q, _, _ = D.cache
    return D.dense(lambda x: q * method.kernel_apply(D.K, q * x))[0]


def without_alpha(D: LinearDenoiser) -> torch.Tensor:
    q, _, h = D.cache
    return D.dense(lambda x: method.doubly_stochastic_apply(D.K, x, (q, 1.0, h)))[0]


def row_normalised(D: LinearDenoiser) -> torch.Tensor:
    return D.dense(lambda x: method.kernel_apply(D.K, x) / D.K.sum((-4, -3)))[0]


def largest(measure, of) -> float:
    return max(float(measure(M)) for M in of)


row_error = lambda M: (M.sum(1) - 1).abs().max()  # noqa: E731
mean_error = lambda M: (M.sum(0) - 1).abs().max()  # noqa: E731
check.that("largest |row sum - 1|", largest(row_error, matrices), within=(0, 1e-13),
           control=largest(row_error, map(first_pass, frozen)), broken="only the first pass")  # fmt: skip
check.that("largest asymmetry", largest(asymmetry, matrices), within=(0, 1e-14),
           control=largest(asymmetry, map(row_normalised, frozen)), broken="rows normalised instead")  # fmt: skip
check.that("smallest entry", min(float(M.min()) for M in matrices), within=(0, None),
           control=min(float(without_alpha(D).min()) for D in frozen), broken="alpha = 1")  # fmt: skip
check.that("largest |column sum - 1|: change of an image's mean", largest(mean_error, matrices), within=(0, 1e-13),
           control=largest(mean_error, map(row_normalised, frozen)), broken="rows normalised instead")  # fmt: skip
check.verdict()

# %% [markdown]
# ## Nonexpansive, for every network and every guide
#
# Many random networks of different scales, and the trained one, on each guide. Broken: $D^{-1}K$. Its rows sum to 1 as
# well, but it isn't symmetric, and its norm is above 1 for every guide.

# %%
check = claim("globally-nonexpansive")
norm = lambda M: float(torch.linalg.matrix_norm(M, 2))  # noqa: E731
variety = [network(f"net {i}", features=(4, 8, 16)[i % 3], pair=("concat", "difference")[i % 2])
           for i in range(run.nets)]  # fmt: skip
for i, net in enumerate(variety):  # scale of the last layer: weights nearly equal, or nearly one for each pixel
    with torch.no_grad():
        net.pair_weights.N_theta[-1].weight.mul_(4.0 ** (i % 4))
for name, guide in guides(run.small_side).items():
    tried = [net.freeze(guide, SIGMA) for net in [*variety, trained]]
    norms = np.array([norm(D.dense()[0]) for D in tried])
    rows = np.array([norm(row_normalised(D)) for D in tried[:10]])
    check.that(f"largest deviation of the norm from 1, {name}", abs(norms - 1).max(), within=(0, 1e-12),
               control=abs(rows - 1).min(), broken="rows normalised instead; the smallest of ten networks")  # fmt: skip
    check.note(f"largest norm of D^-1 K, {name}", rows.max())
check.verdict()

# %%
fig, ax = plt.subplots()
for matrix, label in ((matrices[4], "$W$"), (row_normalised(frozen[4]), "$D^{-1}K$ (plain non-local means)")):
    ax.plot(torch.linalg.svdvals(matrix).cpu(), label=label)
ax.axhline(1, color="0.3", linestyle="--", linewidth=1)
ax.set(xscale="symlog", xlabel="index", ylabel="singular value", ylim=(0, None))
ax.legend()
show(fig, alt="Singular values of W, the first of which is 1, and of the row-normalised kernel, which begin above 1",
     caption="The same weights under two normalisations, guide: a noisy photograph.")  # fmt: skip

# %% [markdown]
# ## Only for a frozen guide
#
# The Jacobian of $x\mapsto W(x)\,x$ also moves the weights. Its norm is found by power iteration, a lower bound, on
# noisy photographs. The control freezes the guide at the same images.

# %%
check = claim("frozen-guide-only")
clean = patches("test", 20, 6, run.rng("self-guided"))[:, None].to(**F64)
x = clean + SIGMA * torch.randn(clean.shape, generator=run.torch_generator("self-guided"), **F64)
self_guided = method.jacobian_norm(lambda y: trained(y, SIGMA), x, run.attack, run.torch_generator("attack"))
guided = method.jacobian_norm(trained.freeze(x, SIGMA), x, run.attack, run.torch_generator("attack"))
check.that("largest norm of the Jacobian", self_guided.max(), within=(1.2, None), control=guided.max(),
           broken="the guide is frozen")  # fmt: skip
check.note("smallest norm among the images", self_guided.min())
check.verdict()

# %% [markdown]
# ## Eigenvalues
#
# The gap $1-\lambda_2$ is positive; a cut (no weight between the left and the right half) closes it. The eigenvalue
# $-1$ needs a bipartite graph. The control has one: equal weights on a closed path through all pixels, and no
# self-weights.

# %%
check = claim("eigen-structure")


def cut(K: torch.Tensor) -> torch.Tensor:
    """K without the weights between the left and the right half of the image."""
    column = torch.arange(K.shape[-1], device=K.device)
    R, half = K.shape[-3] // 2, K.shape[-1] // 2
    other = column + torch.arange(-R, R + 1, device=K.device)[:, None]  # (2R+1, w): column of the other pixel
    return K * ((other < half) == (column < half)).to(K)[:, None, :]


def closed_path(h: int, w: int) -> torch.Tensor:
    """Rows of a kernel: a comb through all pixels and back along the first column; h even."""
    right, down = torch.zeros(2, 1, 1, h, w, **F64)
    right[..., 1:-1] = 1
    right[..., [0, -1], 0] = 1
    down[..., :-1, 0] = 1
    down[..., 0::2, -1] = 1
    down[..., 1:-1:2, 1] = 1
    nothing = torch.zeros_like(right)
    return mirror({(0, 0): nothing, (1, 0): right, (-1, 1): nothing, (0, 1): down, (1, 1): nothing})


spectra = [torch.linalg.eigvalsh(M) for M in matrices]
gaps = [float(1 - s[-2]) for s in spectra]
cut_gaps = [float(1 - torch.linalg.eigvalsh(LinearDenoiser(cut(D.K)).dense()[0])[-2]) for D in frozen]
path = torch.linalg.eigvalsh(LinearDenoiser(closed_path(run.side, run.side)).dense()[0])
check.that("smallest gap 1 - lambda_2", min(gaps), within=(1e-9, None), control=max(cut_gaps),
           broken="no weights across the middle of the image")  # fmt: skip
check.that("smallest 1 + lambda_min", min(float(1 + s[0]) for s in spectra), within=(1e-9, None),
           control=float(1 + path[0]), broken="a closed path without self-weights")  # fmt: skip
check.note("lambda_min", min(float(s[0]) for s in spectra))
check.verdict()

# %% [markdown]
# $W$ has negative eigenvalues. It is nonexpansive but not firmly so, hence not a proximal map.
#
# ## Contraction
#
# Six operators that see constants, FBS and HQS, each with two steps: the exact norm of $WG$ by Lanczos. Broken: the
# blur with its rows centred, $A-A\mathbf1\mathbf1^\top/N$, which maps constants to zero.


# %%
class Centred(LinearOperator):
    """A - A 1 1^T / N: the same operator, blind to constants. Its steps are those of A at x less its mean."""

    def __init__(self, A):
        self.inner, self.norm_sq = A, A.norm_sq

    def A(self, x):
        return self.inner.A(x - x.mean((-2, -1), keepdim=True))

    def AT(self, y):
        x = self.inner.AT(y)
        return x - x.mean((-2, -1), keepdim=True)

    def prox(self, x, b, mu):
        """For b = 0 and a blur, which maps the complement of the constants into itself."""
        mean = x.mean((-2, -1), keepdim=True)
        return mean + self.inner.prox(x - mean, b, mu)


shape = (run.side, run.side)
uniform = torch.rand(shape, generator=run.torch_generator("masks", "cpu"))
operators = {"blur": Blur(shape, gaussian_kernel(9, 1.6)), "averages of 2 x 2": Downsample(shape, 2),
             "averages of 4 x 4": Downsample(shape, 4)}  # fmt: skip
operators |= {f"{share} % of the pixels": Inpaint(uniform < share / 100) for share in (10, 30, 80)}
blind = Centred(operators["blur"])
schemes = {  # the step, from the operator
    "FBS, 1/L": lambda A: {"gamma": 1 / A.norm_sq},
    "FBS, 1.9/L": lambda A: {"gamma": 1.9 / A.norm_sq},
    "HQS, mu = 1": lambda A: {"mu": 1.0},
    "HQS, mu = 6.5": lambda A: {"mu": 6.5},
}
factors = {(scheme, name): contraction_factor(W, A, **step(A))
           for scheme, step in schemes.items() for name, A in operators.items()}  # fmt: skip
check = claim("contractive")
for scheme, step in schemes.items():
    measured = {name: factors[scheme, name] for name in operators}
    check.that(f"largest norm of W G, {scheme}", max(measured.values()), within=(None, 1 - 1e-6),
               control=contraction_factor(W, blind, **step(blind)),
               broken="the operator maps constants to 0")  # fmt: skip
for name in operators:
    check.note(f"norm of W G, FBS, 1/L, {name}", factors["FBS, 1/L", name])
check.verdict()

# %% [markdown]
# ## A bound without the norm
#
# The bound needs one number $\lambda$ of $W$. Broken: a step of $2.5/L$, for which $\|G\|>1$ and the bound is not
# proved; and the operator that is blind to constants, for which the bound says nothing.

# %%
check = claim("contraction-bound")
lambda2 = W.lambda2()
bounds = {key: contraction_bound(lambda2, operators[key[1]], shape, **schemes[key[0]](operators[key[1]]))
          for key in factors}  # fmt: skip
slack = [bounds[key] - factors[key] for key in factors]
A = operators["blur"]
e = torch.full_like(photograph, 1 / run.side)
overshoot = e - 2.5 / A.norm_sq * A.AT(A.A(e))  # = -1.5 e for a blur: an eigenvector of G, and of W
too_far = float(np.sqrt(lambda2**2 + (1 - lambda2**2) * overshoot.square().sum().item()) - W(overshoot).norm())
check.that(f"smallest bound - norm of {len(slack)} cases", min(slack), within=(-1e-9, None), control=too_far,
           broken="a step of 2.5/L")  # fmt: skip
check.that("largest bound", max(bounds.values()), within=(None, 1 - 1e-6),
           control=contraction_bound(lambda2, blind, shape, mu=1.0),
           broken="the operator maps constants to 0")  # fmt: skip
contraction = [(1 - bounds[key]) / (1 - factors[key]) for key in factors]
check.note("median of (1 - bound) / (1 - norm)", np.median(contraction))
check.note("lambda", lambda2)
check.verdict()

# %% [markdown]
# The bound is a certificate, not a prediction: it is far closer to 1 than the norm.
#
# ## Linear convergence
#
# Deblurring by FBS with $\gamma=1/L$ from several starts. Each step brings two runs closer by a factor of at most
# $\|WG\|$, in the end by the spectral radius $\rho(WG)$. The logarithm of the distance is fitted over the six
# decades from $10^{-5}$ to $10^{-11}$. Broken: the operator that is blind to constants.

# %%
check = claim("linear-convergence")
starts = torch.randn(run.pairs, 1, *shape, generator=run.torch_generator("starts"), **F64)
starts = torch.cat([starts, torch.zeros_like(photograph)])
A, gamma = operators["blur"], 1 / operators["blur"].norm_sq
G = W.dense(lambda x: x - gamma * A.AT(A.A(x)))[0]
rho, factor = float(torch.linalg.eigvals(W.dense()[0] @ G).abs().max()), factors["FBS, 1/L", "blur"]
iterations = int(14 / -np.log10(rho))  # from distances of about 30 to below 1e-12


def distances(A) -> tuple[np.ndarray, float]:
    """Distances (iterations + 1, pairs) of each run to the one that starts at 0, and the widest spread of the ends."""
    kept = [starts]
    method.pnp_fbs(W, A, A.A(photograph), gamma, starts, iterations, kept.append)
    spread = max(float((kept[-1][i] - kept[-1][j]).abs().max()) for i, j in combinations(range(len(starts)), 2))
    return torch.stack([(x[:-1] - x[-1:]).flatten(1).norm(dim=1) for x in kept]).cpu().numpy(), spread


def final_factors(d: np.ndarray) -> np.ndarray:
    """exp(slope) of the log distance for each pair, in those decades; if they aren't reached, in the last 50 steps."""
    fits = []
    for line in d.T:
        window = np.flatnonzero((line > 1e-11) & (line < 1e-5))
        window = window if len(window) > 9 else np.arange(len(line))[-50:]
        fits.append(np.polyfit(window, np.log(line[window]), 1)[0])
    return np.exp(fits)


seen, unseen = distances(A), distances(blind)
fitted = mean_interval(final_factors(seen[0]) / rho)
step_factor = lambda d: (d[1:] / d[:-1])[d[:-1] > 1e-9].max() / factor  # noqa: E731
check.that("fitted factor / rho", fitted.value, within=(0.98, 1.02), interval=fitted.interval,
           control=final_factors(unseen[0]).mean() / rho, broken="the operator maps constants to 0")  # fmt: skip
check.that("largest factor of one step / norm of W G", step_factor(seen[0]), within=(None, 1 + 1e-6),
           control=step_factor(unseen[0]), broken="the operator maps constants to 0")  # fmt: skip
check.that("widest spread of the ends", seen[1], within=(0, 1e-8), control=unseen[1],
           broken="the operator maps constants to 0")  # fmt: skip
check.note("rho", rho)
check.note("norm of W G", factor)
check.verdict()

# %%
fig, ax = plt.subplots()
t = np.arange(len(seen[0]))
for (d, _), colour, label in ((seen, "C0", "A sees constants"), (unseen, "C3", "A maps constants to 0")):
    ax.plot(t, np.maximum(d, 1e-14), color=colour, alpha=0.4, linewidth=1)
    ax.plot([], [], color=colour, label=f"{label} ({run.pairs} pairs of starts)")
first = seen[0][0].mean()
for value, style, label in (
    (rho, ":", r"$\rho(WG)$"),
    (factor, "--", r"$\|WG\|$"),
    (bounds["FBS, 1/L", "blur"], "-.", "bound"),
):
    ax.plot(t, first * value**t, style, color="0.2", label=label)
ax.set(yscale="log", ylim=(1e-14, 1e3), xlabel="iteration", ylabel="distance of two runs")
ax.legend()
show(fig, headline=True, caption="Deblurring from different starts with one frozen denoiser.",
     alt="Distance between runs against iterations on a logarithmic axis: straight lines down to rounding at the rate "
         "of the spectral radius, flat when the operator does not see constants")  # fmt: skip

# %%
run.finish()
