# %% [markdown]
# # Experiments
#
# The paper's toy of a hard constraint, with exact laws; the learned prox against the exact one; and images.

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"
reverse_steps = None
toy_steps = None
images = None
size = None
width = None
depth = None
train_steps = None
batch = None
valid_images = None
test_images = None
samples = None
nfe = None

# %%
import copy
import math
import time
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import method as pgm
import numpy as np
import pandas as pd
import pylops
import pyproximal
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import t as student
from skimage.io import imread
from skimage.metrics import structural_similarity
from skimage.transform import resize
from sklearn.datasets import load_digits

from companion import claim, report, start
from companion.imaging import Blur, Downsample, Inpaint, gaussian_kernel, patches
from companion.plotting import show
from companion.stats import loglog_slope, mean_interval, paired_difference
from companion.timing import speed_ratio

PRESETS = {
    # images: "digits" (8 x 8), "photographs", or a folder of them; train_steps: in common, then half as many apart
    "quick": {"reverse_steps": 200, "toy_steps": 900, "images": "digits", "size": 8, "width": 192, "depth": 2,
              "train_steps": 1000, "batch": 128, "valid_images": 24, "test_images": 64, "samples": 6, "nfe": 100},
    "full": {"reverse_steps": 1000, "toy_steps": 4000, "images": "photographs", "size": 24, "width": 32, "depth": 4,
             "train_steps": 1500, "batch": 16, "valid_images": 6, "test_images": 64, "samples": 3, "nfe": 100},
    "gpu": {"reverse_steps": 1000, "toy_steps": 4000, "images": "photographs", "size": 64, "width": 192, "depth": 9,
            "train_steps": 6000, "batch": 64, "valid_images": 32, "test_images": 128, "samples": 8, "nfe": 100},
}  # fmt: skip
run = start("experiments", PRESETS, preset=preset, seed=seed, device=device, reverse_steps=reverse_steps,
            toy_steps=toy_steps, images=images, size=size, width=width, depth=depth, train_steps=train_steps,
            batch=batch, valid_images=valid_images, test_images=test_images, samples=samples, nfe=nfe)  # fmt: skip

# %% [markdown]
# Images come first, so that a folder without them is found out before anything else runs.


# %%
def load_images(source, size, counts, rng):
    """Training, validation and test images in [-1, 1] by `counts`, (n, size, size) each, split by image.

    Raises FileNotFoundError if source is a folder without enough images, ValueError for digits of another size.
    """
    held_out = counts[1] + counts[2]
    if source == "photographs":
        return [2 * patches(name, size, n, rng) - 1 for name, n in zip(("train", "valid", "test"), counts, strict=True)]
    if source == "digits":
        if size != 8 or held_out > 600:
            raise ValueError(f"size={size}: digits have 8 x 8 pixels, and at most 600 are held out, not {held_out}")
        crops = torch.tensor(load_digits().images / 16, dtype=torch.float32)
    else:
        files = sorted(path for path in Path(source).glob("*") if path.suffix.lower() in (".png", ".jpg", ".jpeg"))
        if len(files) <= held_out:
            raise FileNotFoundError(f"images={source!r}: holds {len(files)} PNG or JPG files, needs over {held_out}; "
                                    "put some there (of FFHQ, say), or use 'digits' or 'photographs'")  # fmt: skip
        greys = [imread(file, as_gray=True) for file in files]
        greys = [grey / (255 if grey.dtype == np.uint8 else 1) for grey in greys]  # grey files stay as they are
        crops = torch.tensor(np.stack([resize(grey, (size, size), anti_aliasing=True) for grey in greys])).float()
    crops = 2 * crops[rng.permutation(len(crops))] - 1
    return crops[held_out:], crops[: counts[1]], crops[counts[1] : held_out]


counts, shape, LEVELS, SIGMA_N = (20_000, run.valid_images, run.test_images), (run.size, run.size), (1e-3, 10.0), 0.1
train_set, valid_set, test_set = (
    x.to(run.device) for x in load_images(run.images, run.size, counts, run.rng("images"))
)

# %% [markdown]
# ## Hard constraints
#
# The truncated normal on $[-1,1]$ (mean .5, deviation 1) of the paper's toy. Its envelope lets mass leak out to a
# distance of $\sqrt\lambda$; Gaussian smoothing leaks as far, but loses inside what it gains outside, so that its
# Wasserstein distance is of higher order.


# %%
def centred(low, high, per_unit):
    """Centres of even cells that fill [low, high]: no cell straddles an integer."""
    return low + (np.arange((high - low) * per_unit) + 0.5) / per_unit


def prox_truncated(x, lambda_):
    return pgm.prox_quadratic(x, lambda_, 0.5, 1.0).clip(-1, 1)


def truncated(x):
    return pgm.law_of(x, np.where(np.abs(x) < 1, (x - 0.5) ** 2 / 2, np.inf))


def projected(law):
    """What lies outside [-1, 1] moves to the first and the last cell inside."""
    inside = np.flatnonzero(np.abs(law.x) < 1)
    return pgm.Law(law.x, np.bincount(np.arange(len(law.x)).clip(inside[0], inside[-1]), law.p, len(law.x)))


check = claim("hard-constraint-bias")
x, small, w1 = centred(-4, 4, 4000), np.array([0.025, 0.0125, 0.00625, 0.003]), {}
exact = truncated(x)
for lambda_ in small:
    u = prox_truncated(x, lambda_)
    envelope = pgm.law_of(x, (u - 0.5) ** 2 / 2 + (u - x) ** 2 / (2 * lambda_))
    for name, law in {"envelope": envelope, "Gaussian": pgm.gauss_smoothed(exact, lambda_)}.items():
        w1.setdefault(name, []).append(pgm.wasserstein1(law, exact))
        w1.setdefault(name + ", projected", []).append(pgm.wasserstein1(projected(law), exact))
        if lambda_ == small[2]:
            check.note(f"mass outside the support, level {lambda_}, {name}", law.p[np.abs(x) > 1].sum())
orders = {name: loglog_slope(small, values).slope for name, values in w1.items()}
check.that("order of W1 of the envelope", orders["envelope"], within=(0.42, 0.58), control=orders["Gaussian"],
           broken="Gaussian smoothing in the place of the envelope")  # fmt: skip
for name, other in (("", ", projected"), (", projected", "")):
    check.that(f"W1 of the envelope / W1 of Gaussian smoothing, level {small[2]}{name}",
               w1["envelope" + name][2] / w1["Gaussian" + name][2], within=(3, None),
               control=w1["Gaussian" + other][2] / w1["Gaussian" + name][2],
               broken="Gaussian smoothing in the place of the envelope")  # fmt: skip
check.verdict()

# %% [markdown]
# ## At the boundary
#
# A VP reverse diffusion that knows only the unconstrained normal and is projected onto $[-1,1]$ after every step, as
# in the released toy, against the annealed sampler with the exact prox. We compare the mass within .01 of the
# boundary with the true one.


# %%
def vp_reverse(x):
    """Law of the VP reverse process, beta from .1 to 10, for the prior N(.5, 1), projected onto the grid."""
    law, n = pgm.law_of(x, x**2 / 2), run.reverse_steps
    for t in np.arange(n, 0, -1) / n:
        beta, mean = 0.1 + 9.9 * t, 0.5 * np.exp(-(0.1 * t + 4.95 * t**2) / 2)  # VP noise keeps a variance of 1
        law = pgm.exact_law_1d(lambda x, b=beta / n, m=mean: (x + b * (x / 2 - (x - m)), np.sqrt(b)), law)
    return law


def at_boundary(law):
    return law.p[np.abs(np.abs(law.x) - 0.995) < 0.005].sum()


check = claim("boundary-accumulation")
narrow, wide, levels = centred(-1, 1, 400), centred(-5, 5, 400), np.geomspace(5, 0.01, 12)
raw = pgm.annealed_law_1d(prox_truncated, np.zeros_like, levels, 40, "quad", "exp", pgm.dirac(wide, 0.0))
piled, free = vp_reverse(narrow), vp_reverse(wide)
laws = piled, raw, projected(raw), free
piled_up, leaked, forced, untouched = (at_boundary(law) / at_boundary(truncated(wide)) for law in laws)
broken = "the sampler is the projected diffusion"
check.that("mass at the boundary / true mass, diffusion projected at every step", piled_up, within=(2, None),
           control=untouched, broken="no projection")  # fmt: skip
check.that("mass at the boundary / true mass, proximal", leaked, within=(0.8, 1.25), control=piled_up, broken=broken)
check.that("mass outside the support, proximal", raw.p[np.abs(wide) > 1].sum(), within=(0, 0.01), beyond=True,
           control=free.p[np.abs(wide) > 1].sum(), broken="a diffusion that does not know the constraint")  # fmt: skip
check.that("mass at the boundary / true mass, proximal and then projected", forced, within=(0.8, 1.25),
           control=piled_up, broken=broken, beyond=True)  # fmt: skip
check.verdict()

# %%
fig, ax = plt.subplots()
for name, law in {"proximal": raw, "diffusion, projected at every step": piled}.items():
    ax.plot(law.x, law.p / (law.x[1] - law.x[0]), label=name)
ax.plot(wide, truncated(wide).p * 400, "k:", label="truth")
ax.set(xlim=(-1.6, 1.6), ylim=(0, 1.6), xlabel="x", ylabel="density")
ax.legend()
show(fig, alt="Two samplers of a truncated normal: the projected diffusion has spikes at both ends, the other leaks",
     caption="The projected diffusion piles up at the boundary; the proximal sampler leaks through it.")  # fmt: skip

# %% [markdown]
# ## Does matching find the mode?
#
# First the population minimiser in one dimension, by quadrature, for a Laplace prior at $x=.8$, $\lambda=.5$: from
# the mean to the prox as $\zeta$ falls. Then a network trained on samples of that prior. At the kink even the
# population minimiser is off by about $\zeta$, so we judge the mean error over $p_\lambda$. Last the uniform prior on
# a ball in ten dimensions, whose prox is the projection. The control of each is the network of the mean.

# %%
check = claim("matching-gives-mode")
generator = run.torch_generator("toys", device="cpu")
torch.manual_seed(run.seed)  # of the networks' initial weights
u = np.linspace(-12, 12, 24_001)
density = np.exp(-np.abs(u) - (u - 0.8) ** 2)
density /= density.sum()


def minimiser(zeta):
    loss = lambda d: density @ -np.expm1(-(((d - u) / zeta) ** 2))  # noqa: E731
    return minimize_scalar(loss, (0, 1), (-0.5, 1.5), method="bounded").x


check.that("population minimiser at zeta 0.1 - prox", minimiser(0.1) - 0.3, within=(-0.01, 0.01),
           control=minimiser(2.0) - 0.3, broken="zeta is 2")  # fmt: skip
check.note("posterior mean - prox", density @ u - 0.3)


def laplace(n):
    sign = torch.randint(0, 2, (n, 1), generator=generator) * 2 - 1
    return -sign * torch.rand((n, 1), generator=generator).clamp_min(1e-9).log()


def in_ball(n):
    direction = torch.nn.functional.normalize(torch.randn((n, 10), generator=generator))
    return direction * torch.rand((n, 1), generator=generator) ** (1 / 10)


def toy_nets(draw, dim, sigma, lambda_, zeta, batch):
    """Networks of the mode and of the mean, and that of the mean from which both began; noisy inputs to judge them."""
    begun = pgm.ProxNet((dim,), width=48, depth=2, sigma=sigma)
    pgm.train_prox(begun, draw, (lambda_, lambda_), run.toy_steps // 3, generator, batch=batch, lr=3e-3)
    mode, mean = copy.deepcopy(begun), copy.deepcopy(begun)
    pgm.train_prox(mode, draw, (lambda_, lambda_), run.toy_steps, generator, batch=batch, lr=5e-3, zeta=zeta)
    pgm.train_prox(mean, draw, (lambda_, lambda_), run.toy_steps // 2, generator, batch=batch)
    x = draw(20_000)
    return mode, mean, begun, x + math.sqrt(lambda_) * torch.randn(x.shape, generator=generator)


line = torch.linspace(-4, 4, 401)[:, None]
with torch.no_grad():
    with torch.enable_grad():
        mode, mean, begun, x = toy_nets(laplace, 1, math.sqrt(2), 0.5, (0.4, 0.12), 2048)
        *balls, z = toy_nets(in_ball, 10, 1 / math.sqrt(12), 0.02, (1.0, 0.3), 256)
    off, off_mean = ((net(x, 0.5) - pgm.prox_l1(x, 0.5)).abs().mean() for net in (mode, mean))
    sup, sup_mean = ((net(line, 0.5) - pgm.prox_l1(line, 0.5)).abs().max() for net in (mode, mean))
    apart, apart_begun = ((net(line, 0.5) - mean(line, 0.5)).abs().max() for net in (mode, begun))
    projection = z / z.norm(dim=1, keepdim=True).clamp_min(1)
    ball, ball_mean, ball_begun = ((net(z, 0.02) - projection).norm(dim=1).mean() for net in balls)
    curves = [net(line, 0.5) for net in (mode, mean)]
broken = "trained with the squared error"
check.that("Laplace prior: mean |network - soft threshold|", off, within=(0, 0.06), control=off_mean, broken=broken)
check.that("Laplace prior: largest |network - network of the mean| on [-4, 4]", apart, within=(0.1, None),
           control=apart_begun, broken=broken + ", for fewer steps")  # fmt: skip
check.that("Laplace prior: largest |network - soft threshold| on [-4, 4]", sup, within=(0, 0.05), control=sup_mean,
           broken=broken, beyond=True)  # fmt: skip
check.that("ball: mean distance to the projection / before matching", ball / ball_begun, within=(0, 0.8),
           control=ball_mean / ball_begun, broken=broken)  # fmt: skip
check.verdict()

# %%
fig, ax = plt.subplots()
ax.plot(line, pgm.prox_l1(line, 0.5), "k:", label="prox (soft threshold)")
ax.plot(line, curves[0], label="trained by Moreau score matching")
ax.plot(line, curves[1], "--", label="trained with the squared error: the mean")
ax.set(xlabel="x", ylabel="network")
ax.legend()
show(fig, alt="The matched network follows the soft threshold, with rounded kinks; the other the posterior mean",
     caption="Two losses, one network: Laplace prior at the level 0.5.")  # fmt: skip

# %% [markdown]
# ## Images
#
# One network of the mean and one of the mode, which begin as one and are trained for as long, on images scaled to
# $[-1,1]$. Three tasks: half of the pixels missing, Gaussian blur, and averages of 2 x 2 pixels, all with noise of
# $\sigma_n=.1$. The proximal samplers use the mode, the rivals the mean, for which they are made; all get the same
# number of evaluations. TV-MAP (pyproximal) has no network. One parameter of each is tuned by PSNR on validation
# images, on a grid that grows until the optimum is inside.


# %%
generator = run.torch_generator("networks")


def draw(n):
    return train_set[torch.randint(len(train_set), (n,), generator=generator, device=run.device)]


torch.manual_seed(run.seed)
mean = pgm.ProxNet(shape, run.width, run.depth, sigma=train_set.std().item(), conv=run.size > 8).to(run.device)
untrained, bf16 = copy.deepcopy(mean).eval(), run.device == "cuda"
pgm.train_prox(mean, draw, LEVELS, run.train_steps, generator, batch=run.batch, bf16=bf16)
mode = copy.deepcopy(mean)
for net, zeta in ((mean, None), (mode, (1.0, 0.25))):  # both for as long, or a gain may be that of more training
    pgm.train_prox(net, draw, LEVELS, run.train_steps // 2, generator, batch=run.batch, lr=1e-3, zeta=zeta, bf16=bf16)

mask = torch.from_numpy(run.rng("mask").permutation(np.arange(run.size**2) % 2).reshape(shape)).to(run.device)
tasks = {
    "inpainting": Inpaint(mask),
    "blur": Blur(shape, gaussian_kernel(5, 1.0)),
    "2x super-resolution": Downsample(shape, 2),
}


def measure(operator, x, name):
    """Noisy measurements; what a mask hides is zero."""
    noise = torch.randn(operator.A(x).shape, generator=run.torch_generator(name), device=run.device)
    return operator.A(x) + SIGMA_N * (operator.A(noise) if isinstance(operator, Inpaint) else noise)


# %% [markdown]
# The proximal samplers take Euler-Maruyama steps $\delta=.3\lambda$, a choice of the released code, over eleven
# levels, and end with a prox. Their parameter is the paper's main knob, the likelihood's weight $\gamma$: with any
# value but 1 they are *tuned*. The joint sampler's inner gradient step is stable only with
# $\gamma_i\le\sigma_n^2/\lambda_i\|A\|^2$.


# %%
K = np.full(11, (run.nfe - 1) // 11) + (np.arange(11) < (run.nfe - 1) % 11)
STAGES = np.geomspace(0.1, 0.003, 11), K.tolist(), "lambda", "em"
REVERSE, START = np.geomspace(LEVELS[1], 0.002, run.nfe).tolist(), LEVELS[1] ** 0.5


def pgm_partial(op, y, z, generator, gamma, net=None):
    cap = 0.8 * SIGMA_N**2 / (gamma * op.norm_sq)  # the likelihood's step is stable below twice 1 / Lipschitz
    return pgm.sample_partial(net or mode, pgm.grad_least_squares(op, y, SIGMA_N), *STAGES, op.AT(y), generator, 0.01,
                              gamma=gamma, c=0.3, cap=cap)[0]  # fmt: skip


def pgm_joint(op, y, z, generator, gamma):
    gammas = [min(gamma, SIGMA_N**2 / (lambda_ * op.norm_sq)) for lambda_ in STAGES[0]]
    return pgm.sample_joint(mode, pgm.grad_least_squares(op, y, SIGMA_N), *STAGES, z, generator, 0.01, gamma=gammas,
                            c=0.3)[0]  # fmt: skip


def pnp_ula(op, y, z, generator, level):
    grad_f, cap = pgm.grad_least_squares(op, y, SIGMA_N), 0.8 * SIGMA_N**2 / op.norm_sq
    return pgm.sample_partial(mean, grad_f, [level], run.nfe - 1, "lambda", "em", op.AT(y), generator, level, c=0.3,
                              cap=cap, confine=False)[0]  # fmt: skip


def dps(op, y, z, generator, weight, net=None):
    return pgm.sample_dps(net or mean, op, y, REVERSE, START * z, generator, weight=weight)


def diffpir(op, y, z, generator, weight):
    return pgm.sample_diffpir(mean, op, y, SIGMA_N, REVERSE, START * z, generator, weight=weight, fresh=1.0)


class DataTerm(pyproximal.ProxOperator):
    """|A x - y|^2 / 2 sigma_n^2 for pyproximal, for all images at once."""

    def __init__(self, operator, y):
        super().__init__(None, False)
        self.operator, self.y = operator, y

    def __call__(self, x):
        return 0.0  # its value is only for display

    def prox(self, x, tau):
        x = torch.as_tensor(x, device=run.device).view(len(self.y), *shape)
        return self.operator.prox(x, self.y, tau / SIGMA_N**2).flatten().cpu().numpy()


def tv_map(operator, y, z, generator, weight):
    y = y[0].double()  # the same for all samples
    slopes = pylops.VStack([pylops.FirstDerivative((len(y), *shape), axis=axis, kind="forward") for axis in (1, 2)])
    prior, x0 = pyproximal.L21(ndim=2, sigma=weight), operator.AT(y).flatten().cpu().numpy()
    solve = pyproximal.optimization.primaldual.PrimalDual
    x = solve(DataTerm(operator, y), prior, slopes, x0, tau=0.05, mu=2.0, niter=150)  # tau mu |slopes|^2 < 1
    return torch.as_tensor(x, device=run.device).view(1, len(y), *shape).float()


methods = {  # with a first guess of the parameter
    "PGM, partial": (pgm_partial, 1.0), "PGM, joint": (pgm_joint, 1.0), "DPS": (dps, 0.5), "DiffPIR": (diffpir, 0.5),
    "PnP-ULA": (pnp_ula, 0.03), "TV-MAP": (tv_map, 3.0),
}  # fmt: skip


def reconstruct(method, parameter, operator, y, samples, name, **options):
    """Samples (samples, n, h, w) for measurements y: (n, ...)."""
    generator = run.torch_generator(name)
    z = torch.randn((samples, len(y), *shape), generator=generator, device=run.device)
    return method(operator, y.expand(samples, *y.shape), z, generator, parameter, **options)


def quality(x, truth):
    """PSNR of the posterior mean, (n,), for images in [-1, 1]; the variance of a mean of few samples is taken off."""
    excess = x.var(0).mean((-2, -1)) / len(x) if len(x) > 1 else 0.0
    error = (x.mean(0) - truth).square().mean((-2, -1)) - excess
    return (-10 * (error.clamp_min(1e-6) / 4).log10()).nan_to_num(-99.0, neginf=-99.0).cpu().numpy()


def tune(method, guess, operator, y, truth):
    """Best parameter on the validation images, on a grid of ratio 2 with the optimum inside."""
    scores = {}

    def score(k):
        if k not in scores:
            scores[k] = quality(reconstruct(method, guess * 2.0**k, operator, y, 3, "tuning"), truth).mean()
        return scores[k]

    best = max((-1, 0, 1), key=score)
    while best in (min(scores), max(scores)) and len(scores) < 12:
        best = max((best - 1, best, best + 1), key=score)
    assert min(scores) < best < max(scores), f"{method.__name__}: optimum on the edge of the grid {scores}"
    return guess * 2.0**best


# %% [markdown]
# PSNR is that of the posterior mean. The mean of $S$ samples carries $1/S$ of the posterior's variance, which would
# punish a sampler that spreads as it should; that part is subtracted. A single sample has a lower PSNR by nature.
# *Coverage* says how many true pixels lie in the samples' 90 % intervals. The abstract of the paper gives no figure
# to put beside ours.

# %%
results, rows = {}, []
for task, operator in tasks.items():
    y_valid, y = measure(operator, valid_set, f"valid {task}"), measure(operator, test_set, f"test {task}")
    for name, (method, guess) in methods.items():
        parameter = tune(method, guess, operator, y_valid, valid_set)
        began = time.perf_counter()
        x = reconstruct(method, parameter, operator, y, run.samples, f"test {task}")
        seconds, covered = time.perf_counter() - began, math.nan
        if len(x) > 1:
            reach = student.ppf(0.95, len(x) - 1) * x.std(0) * math.sqrt(1 + 1 / len(x))
            covered = ((x.mean(0) - test_set).abs() <= reach).float().mean().item()
        pairs = zip(x.mean(0).cpu().numpy(), test_set.cpu().numpy(), strict=True)
        ssim = np.mean([structural_similarity(a, b, data_range=2, win_size=7) for a, b in pairs])
        results[task, name] = {"x": x, "psnr": quality(x, test_set), "parameter": parameter, "y": y}
        rows.append({"task": task, "method": name, "PSNR, mean": quality(x, test_set).mean(), "tuned": parameter,
                     "PSNR, a sample": quality(x[:1], test_set).mean(), "SSIM": ssim, "coverage": covered,
                     "seconds": seconds})  # fmt: skip
table = pd.DataFrame(rows).set_index(["task", "method"])
print(table.round(3).to_string())

# %% [markdown]
# ## Who is ahead?
#
# Differences of PSNR are paired by image and averaged over the tasks. To be ahead, the partial sampler, the paper's
# main algorithm, has to beat each rival. The control puts the prox of a Gaussian prior in the place of the network.

# %%
check = claim("quality-time")
rivals = [name for name in methods if "PGM" not in name]
gaussian = partial(pgm.prox_quadratic, mean=train_set.mean().item(), variance=train_set.var().item())
mine = {task: results[task, "PGM, partial"] for task in tasks}
psnr = {name: np.mean([results[task, name]["psnr"] for task in tasks], axis=0) for name in methods}
broken = [
    quality(reconstruct(pgm_partial, m["parameter"], tasks[task], m["y"], 6, f"test {task}", net=gaussian), test_set)
    for task, m in mine.items()
]  # fmt: skip
gains = {rival: paired_difference(psnr["PGM, partial"], psnr[rival]) for rival in rivals}
best = min(gains, key=lambda rival: gains[rival].value)
check.that("PSNR, proximal - best rival, mean over the tasks", gains[best].value, within=(0, None), unit="dB",
           interval=gains[best].interval, interval_within=(0, None), control=np.mean(broken) - psnr[best].mean(),
           broken="the prior is a Gaussian")  # fmt: skip
for rival in rivals:
    check.note(
        f"PSNR, proximal - {rival}, mean over the tasks", gains[rival].value, interval=gains[rival].interval, unit="dB"
    )


def timed(name):
    return partial(
        reconstruct, methods[name][0], results["blur", name]["parameter"], tasks["blur"], mine["blur"]["y"], 2, "speed"
    )


repeats = 5 if run.size == 8 else 3
versus = {
    name: speed_ratio(timed("PGM, partial"), timed(name), repeats=repeats, warmup=1) for name in ("DPS", "DiffPIR")
}
itself = speed_ratio(timed("DPS"), timed("DPS"), repeats=repeats, warmup=1)
check.that("seconds, proximal / DPS", versus["DPS"].value, within=(0, 0.85), interval=versus["DPS"].interval,
           control=itself.value, broken="the sampler is DPS", timing=True)  # fmt: skip
check.note("seconds, proximal / DiffPIR", versus["DiffPIR"].value, interval=versus["DiffPIR"].interval, timing=True)
check.verdict()
for name in methods:
    report(f"PSNR, {name}", psnr[name].mean(), interval=mean_interval(psnr[name]).interval, unit="dB")
    if name != "TV-MAP":
        report(f"coverage of 90 % intervals, {name}", table.xs(name, level="method")["coverage"].mean())

# %%
fig, ax = plt.subplots()
for name in methods:
    scores = table.xs(name, level="method")
    estimate = mean_interval(psnr[name])
    ax.errorbar(
        scores["seconds"].mean(), estimate.value, estimate.value - estimate.low, marker="o", label=name, capsize=3
    )
ax.set(xscale="log", xlabel=f"seconds for {run.samples} samples of {run.test_images} images", ylabel="PSNR (dB)")
ax.legend(fontsize=8)
show(fig, alt="Quality against seconds: network methods lie close together, DPS takes longest, total variation is poor",
     caption=f"Means over the three tasks, with 95 % intervals over {run.test_images} images.")  # fmt: skip

# %%
fig, axes = plt.subplots(3, 6, figsize=(8.4, 4.6))
for row, task in zip(axes, tasks, strict=True):
    x, y = mine[task]["x"], mine[task]["y"][0]
    rival = results[task, "DiffPIR"]["x"].mean(0)[0]
    panels = {"truth": test_set[0], "measured": y, "PGM, mean": x.mean(0)[0], "PGM, a sample": x[0, 0],
              "PGM, deviation": 2 * x.std(0)[0] - 1, "DiffPIR, mean": rival}  # fmt: skip
    for ax, (title, image) in zip(row, panels.items(), strict=True):
        ax.imshow(image.cpu(), cmap="gray", vmin=-1, vmax=1)
        ax.set(xticks=[], yticks=[], title=title if task == "inpainting" else "")
        ax.title.set_fontsize(10)
    row[0].set_ylabel(task, fontsize=8)
show(fig, alt="Truth, measurement, the proximal sampler's mean, a sample and deviation, DiffPIR's mean, in three tasks",
     caption="One test image in three tasks; deviation: black 0, white 1.")  # fmt: skip

# %% [markdown]
# ## One network, three operators
#
# We count gradients taken through the network, compare what it makes of each operator with an untrained network of
# the same shape, and time a run beside one of DPS with as many evaluations.

# %%
check = claim("likelihood-free")


def count(method, net, parameter):
    """Evaluations of the network in one run, and gradients taken through it."""
    passes = {"forward": 0, "backward": 0}

    def counted(x, lambda_):
        passes["forward"] += 1
        out = net(x, lambda_)
        if x.requires_grad:
            out.register_hook(lambda gradient: passes.update(backward=passes["backward"] + 1))
        return out

    reconstruct(method, parameter, tasks["blur"], mine["blur"]["y"], 1, "count", net=counted)
    return passes


ours, theirs = count(pgm_partial, mode, 1.0), count(dps, mean, 0.5)
check.that("gradients through the network per evaluation", ours["backward"] / ours["forward"], within=(0, 0),
           control=theirs["backward"] / theirs["forward"], broken="the sampler is DPS")  # fmt: skip
check.note("evaluations, proximal", ours["forward"])
check.note("evaluations, DPS", theirs["forward"])
gains = {"trained": [], "untrained": []}
for task, operator in tasks.items():
    y, parameter = mine[task]["y"], mine[task]["parameter"]
    x = reconstruct(pgm_partial, parameter, operator, y, 2, f"test {task}", net=untrained)
    adjoint = quality(operator.AT(y)[None] / operator.norm_sq, test_set)
    gains["trained"].append((mine[task]["psnr"] - adjoint).mean())
    gains["untrained"].append((quality(x, test_set) - adjoint).mean())
check.that("seconds, proximal / DPS, for as many evaluations", versus["DPS"].value, within=(0, 0.85), timing=True,
           interval=versus["DPS"].interval, control=itself.value, broken="the sampler is DPS")  # fmt: skip
check.that("smallest gain over the scaled adjoint, three operators", min(gains["trained"]), within=(2, None), unit="dB",
           control=min(gains["untrained"]), broken="the network is not trained")  # fmt: skip
check.verdict()

# %%
run.finish()
