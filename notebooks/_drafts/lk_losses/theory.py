# %% [markdown]
# # Theory, checked
#
# Each section measures one statement, and once more with its mechanism broken, to see that the check would notice.
# Identities are checked in float64. The training runs here are small enough to have a known answer; language models
# follow in [Experiments](experiments).

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"
draws = None  # draws a pair, and sampled sequences
pairs = None  # random pairs (p, q) for identities; 50 times as many for bounds
seeds = None  # repetitions of the training runs
steps = None  # training steps of the low-rank drafts
ranks = None  # their ranks; the target's is 32

# %%
from functools import partial
from unittest.mock import patch

import matplotlib.pyplot as plt
import method
import numpy as np
import torch
from method import LOSSES, acceptance_rate, kl_loss, lk_alpha_loss, lk_lambda_loss, speculative_sample, tune, tv_loss
from scipy import optimize, stats
from torch.nn import functional as F

from companion import claim, report, start
from companion.plotting import band, rate_plot, show
from companion.stats import binomial_interval, loglog_slope, paired_difference

PRESETS = {
    "quick": {"draws": 200_000, "pairs": 200, "seeds": 5, "steps": 200, "ranks": [2, 4, 8, 16, 32]},
    "full": {"draws": 1_000_000, "pairs": 2000, "seeds": 20, "steps": 1000, "ranks": [1, 2, 4, 8, 16, 32]},
    "gpu": {"draws": 4_000_000, "pairs": 20_000, "seeds": 100, "steps": 3000, "ranks": [1, 2, 4, 8, 16, 32]},
}
sizes = {"draws": draws, "pairs": pairs, "seeds": seeds, "steps": steps, "ranks": ranks}
run = start("theory", PRESETS, preset=preset, seed=seed, device=device, **sizes)
torch.set_flush_denormal(True)  # sharp laws are full of numbers below 1e-38, which are 20 times slower


def normal(stream: str, *shape: int) -> torch.Tensor:
    """Standard normal draws of the stream, float64 on the run's device."""
    return torch.randn(*shape, generator=run.torch_generator(stream), device=run.device, dtype=torch.float64)


# %% [markdown]
# ## Acceptance is overlap
# Draw $y \sim q$, keep it with probability $\min(1, p_y/q_y)$, count. The frequency has to be $\sum_v \min(p_v, q_v)$.

# %%
check = claim("acceptance-is-overlap")
p_logits, q_logits = normal("pairs of laws", 2, 20, 50).float()
overlap = acceptance_rate(p_logits, q_logits).double().cpu().numpy()


def acceptance_frequency(swapped: bool) -> tuple[float, float]:
    """Largest distance to the overlap in standard errors, and share of exact 95 % intervals that cover it."""
    generator = run.torch_generator("acceptance")
    kept = []
    for p, q in zip(p_logits.softmax(-1), q_logits.softmax(-1), strict=True):
        y = torch.multinomial(q, run.draws, replacement=True, generator=generator)[:, None]
        top, bottom = (law.expand(run.draws, 1, -1) for law in ((q, p) if swapped else (p, q)))
        kept.append(int(method.accept(top, bottom, y, generator).sum()))
    estimate = binomial_interval(np.array(kept), run.draws)
    z = (estimate.value - overlap) / np.sqrt(overlap * (1 - overlap) / run.draws)
    return abs(z).max(), ((estimate.low <= overlap) & (overlap <= estimate.high)).mean()


(far, covered), (far_swapped, covered_swapped) = acceptance_frequency(False), acceptance_frequency(True)
swap = "accepted with min(1, q/p)"
check.that(
    "largest distance to the overlap, in standard errors", far, within=(None, 4), control=far_swapped, broken=swap
)
check.that("share of intervals that cover it", covered, within=(0.8, None), control=covered_swapped, broken=swap)
check.verdict()

# %% [markdown]
# ## The output has the target's law
# A Markov target over 6 tokens, an unrelated Markov draft, all 216 sequences of length 3, $\chi^2$ against their exact
# probabilities. Broken: after a rejection the next token is drawn from $p$ instead of the residual.

# %%
check = claim("output-distribution-exact")
p_table, q_table = normal("Markov target and draft", 2, 6, 6).float()


def sequence_test(K: int) -> float:
    """p-value of the sampled sequences under the target's law; cells that expect fewer than 5 are pooled."""
    prompt = torch.zeros(run.draws, 1, dtype=torch.long, device=run.device)
    tables, generator = (p_table.__getitem__, q_table.__getitem__), run.torch_generator(f"{K=}")
    tokens, _ = speculative_sample(*tables, prompt, K, 3 + K, generator)  # K more, or the last calls would draft fewer
    p = p_table.double().softmax(-1)
    expected = torch.einsum("a,ab,bc->abc", p[0], p, p).flatten().cpu().numpy() * run.draws
    seen = torch.bincount(tokens[:, 1] * 36 + tokens[:, 2] * 6 + tokens[:, 3], minlength=216).cpu().numpy()
    rare = expected < 5
    seen, expected = (np.append(x[~rare], x[rare].sum()) for x in (seen, expected))
    return stats.chisquare(seen[expected > 0], expected[expected > 0]).pvalue


def redraw_from_p(p, q, kept, generator):
    return torch.multinomial(p[torch.arange(len(p), device=p.device), kept], 1, generator=generator)[:, 0]


smallest = 3 * min(sequence_test(K) for K in (1, 2, 4))  # times 3, the number of tests
with patch("method.resample", redraw_from_p):
    broken = 3 * sequence_test(2)
redrawn = "drawn from p after a rejection"
check.that("smallest p-value, K = 1, 2, 4, times 3", smallest, within=(0.01, None), control=broken, broken=redrawn)
check.verdict()

# %% [markdown]
# ## The gradients
# Closed forms of the method page against autograd. TV's gradient is at most $2\alpha$ long because $Q_a \le \alpha$.

# %%
check = claim("gradient-identities")
p_logits = 2 * normal("targets of the identities", run.pairs, 50)
q_logits = (2 * normal("drafts of the identities", run.pairs, 50)).requires_grad_()


def gradient(loss, p=p_logits, z=q_logits) -> torch.Tensor:
    return torch.autograd.grad(loss(p, z, reduction="sum"), z)[0]


def largest(x: torch.Tensor) -> float:
    return float(x.abs().max())


p, q = p_logits.softmax(-1), q_logits.detach().softmax(-1)
alpha = torch.minimum(p, q).sum(-1, keepdim=True)
a, a_flipped = (q < p).double(), (q > p).double()
Q_a, Q_flipped = ((mask * q).sum(-1, keepdim=True) for mask in (a, a_flipped))
grad_tv, grad_lk, grad_kl = (gradient(loss) for loss in (tv_loss, lk_alpha_loss, kl_loss))
length_tv, length_kl = (x.abs().sum(-1, keepdim=True) for x in (grad_tv, grad_kl))
exact, flipped = (None, 1e-12), "a flipped: a = 1 where q > p"
identities = {  # name: (autograd, closed form, broken closed form, what was broken)
    "TV: -q (a - Q_a)": (grad_tv, -q * (a - Q_a), -q * (a_flipped - Q_flipped), flipped),
    "LK-alpha: TV's gradient over alpha": (grad_lk, grad_tv / alpha, grad_tv, "not divided by alpha"),
    "TV: length 2 Q_a (1 - Q_a)": (length_tv, 2 * Q_a * (1 - Q_a), 2 * Q_a, "factor 1 - Q_a left out"),
    "KL: length 2 (1 - alpha)": (length_kl, 2 * (1 - alpha), 1 - alpha, "factor 2 left out"),
}
for name, (measured, closed, wrong, broken) in identities.items():
    error, control = largest(measured - closed), largest(measured - wrong)
    check.that(f"{name}, largest error", error, within=exact, control=control, broken=broken)
excess, control = float((Q_a - alpha).max()), float((Q_flipped - alpha).max())
check.that("largest Q_a - alpha", excess, within=(None, 0), control=control, broken=flipped)
check.verdict()

# %% [markdown]
# **The stop-gradient matters.** Without it, LK$_\lambda$'s gradient gains $(\mathrm{KL} -
# \mathrm{TV})\,\nabla\lambda$. KL is larger than TV where the draft is bad, so the loss would also fall by raising
# $\bar\alpha$ only to shrink KL's weight.

# %%
honest = gradient(lk_lambda_loss)
with patch("torch.Tensor.detach", lambda x: x):  # inside kl_weight; p is a constant here anyway
    leaky = gradient(lk_lambda_loss)
report("LK-lambda gradient without stop-gradient, relative length", float(leaky.norm() / honest.norm()))

# %% [markdown]
# ## TV's gradient vanishes, LK's doesn't
# Targets with 8 likely tokens, $q$ uniform, vocabularies of growing size. Then 300 steps of plain SGD, rate 1.

# %%
check = claim("vanishing-tv-gradient")
main_losses = {name: LOSSES[name] for name in ("KL", "TV", "LK-alpha")}
main_losses["LK-lambda"] = partial(lk_lambda_loss, group_dims=1)
vocabularies = [128, 1024, 8192]


def peaked(V: int) -> torch.Tensor:
    """(seeds, V) logits, float32: 8 random ones, the others -inf."""
    return F.pad(normal("peaked", run.seeds, 8).float(), (0, V - 8), value=-torch.inf)


def descend(loss, p_logits: torch.Tensor, z: torch.Tensor) -> float:
    """Mean acceptance after 300 steps of SGD from logits z."""
    for _ in range(300):
        z = z.detach().requires_grad_()
        z = z - gradient(loss, p_logits, z)
    return float(acceptance_rate(p_logits, z.detach()).mean())


def lengths(loss) -> np.ndarray:
    """Gradient lengths at uniform q, (seeds, vocabularies)."""
    starts = [torch.zeros(run.seeds, V, device=run.device, requires_grad=True) for V in vocabularies]
    rows = [gradient(loss, peaked(z.shape[1]), z).abs().sum(-1) for z in starts]
    return torch.stack(rows, 1).cpu().numpy()


fits = {name: loglog_slope(vocabularies, lengths(loss), rng=run.rng("slopes")) for name, loss in main_losses.items()}
tv, lk = fits["TV"], fits["LK-alpha"]
name = "slope of log gradient length against log V"
check.that(
    f"TV: {name}", tv.slope, within=(-1.1, -0.9), interval=tv.interval, control=lk.slope, broken="divided by alpha"
)
divided = "not divided by alpha"
check.that(f"LK-alpha: {name}", lk.slope, within=(-0.05, 0.05), interval=lk.interval, control=tv.slope, broken=divided)

p_peaked = peaked(8192)[:3]
near = p_peaked.clamp_min(-5.0) + normal("near start", *p_peaked.shape).float()
after = {name: descend(loss, p_peaked, torch.zeros_like(p_peaked)) for name, loss in main_losses.items()}
name, control = "alpha after SGD, V = 8192", descend(tv_loss, p_peaked, near)
check.that(f"TV: {name}", after["TV"], within=(None, 0.05), control=control, broken="started near the target")
for loss in ("LK-alpha", "LK-lambda"):
    check.that(f"{loss}: {name}", after[loss], within=(0.75, None), control=after["TV"], broken="TV alone")
check.note(f"KL: {name}", after["KL"])
check.verdict()

# %%
fig, ax = plt.subplots()
for name, loss in main_losses.items():
    rate_plot(ax, vocabularies, lengths(loss), label=name)
ax.set(xlabel="vocabulary V", ylabel=r"length of the gradient, $\|\nabla_z L\|_1$")
ax.legend()
alt = "Gradient length at a uniform draft against vocabulary size: TV falls like 1/V, the other losses stay near 2."
show(fig, alt=alt, caption="Gradient of each loss at a uniform draft; the target has 8 likely tokens.")

# %% [markdown]
# **Not from everywhere.** $\|\nabla L_\alpha\|_1 = 2\frac{Q_a}{\alpha}(1 - Q_a)$ is small if $\alpha \gg Q_a$: when
# $q$ sits on a token that $p$ gives a little mass, that mass alone makes up $\alpha$. From a confidently wrong draft
# LK$_\alpha$ stalls as TV does, and KL doesn't. LK$_\lambda$ keeps a part of KL, which is a reason to prefer it.

# %%
p_logits = torch.tensor([[0.0] * 8 + [-4.0]], dtype=torch.float64)
wrong = torch.tensor([[0.0] * 8 + [20.0]], dtype=torch.float64, requires_grad=True)
for name, loss in main_losses.items():
    report(
        f"gradient length from a confidently wrong draft: {name}", float(gradient(loss, p_logits, wrong).abs().sum())
    )

# %% [markdown]
# ## KL bounds acceptance, loosely
# Valid, and close to equality somewhere? The largest ratio of the smaller side to the larger says both: above 1 the
# bound is violated, near 0 it says nothing. Pairs range from nearly equal to nearly disjoint. The third bound:
# $-\log\alpha \le \sum_v p_v (\log\frac{p_v}{q_v})_+ = \mathrm{KL} + \sum_v p_v (\log\frac{q_v}{p_v})_+$, and $\log x
# \le x - 1$.

# %%
check = claim("bounds")
spread, distance = (10 ** normal(x, 50 * run.pairs, 1).clamp(-2, 1.3) for x in ("spread", "distance"))
p_logits = spread * normal("targets of the bounds", 50 * run.pairs, 20)
q_logits = p_logits + distance * normal("drafts of the bounds", 50 * run.pairs, 20)
alpha, kl = acceptance_rate(p_logits, q_logits), kl_loss(p_logits, q_logits, reduction="none")
keep = (alpha < 1 - 1e-3) & (alpha > 1e-12)  # elsewhere rounding decides
alpha, kl = alpha[keep], kl[keep]
tv, bretagnolle_huber = 1 - alpha, -torch.expm1(-kl)
bounds = {  # name: (smaller side, larger side, the same with a piece left out, which piece)
    "TV <= sqrt(KL / 2)": (tv, (kl / 2).sqrt(), kl / 2, "the square root"),
    "TV <= sqrt(1 - exp(-KL))": (tv, bretagnolle_huber.sqrt(), bretagnolle_huber, "the square root"),
    "-log alpha <= KL + TV": (-alpha.log(), kl + tv, kl, "TV"),
    "exp(-KL) / 2 <= alpha": ((-kl).exp() / 2, alpha, alpha / 2, "the factor 1/2"),
}
for name, (smaller, larger, weaker, piece) in bounds.items():
    ratio, control = (float((smaller / side).max()) for side in (larger, weaker))
    check.that(f"{name}: largest ratio", ratio, within=(0.3, 1 + 1e-9), control=control, broken=f"without {piece}")
check.note("random pairs", len(alpha))
check.verdict()

# %% [markdown]
# ## With capacity, one optimum
# A table of free logits for each of 16 contexts. Broken: one row of logits for all contexts.

# %%
check = claim("same-optimum-with-capacity")
p_logits = 2 * normal("table of targets", 16, 64).float()


def minimise(loss, p_logits: torch.Tensor, parameters: list, logits, lr: float, n: int, overlap=acceptance_rate):
    """alpha (...) of the draft logits() (..., V) after n steps of Adam with a cosine schedule."""
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n)
    for _ in range(n):
        optimizer.zero_grad()
        loss(p_logits, logits(), reduction="none").mean(-1).sum().backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return overlap(p_logits, logits())


def table_alpha(loss, rows: int) -> float:
    z = normal("table of drafts", rows, 64).float().requires_grad_()
    return float(minimise(loss, p_logits, [z], lambda: z.expand(16, 64), lr=0.2, n=300).mean())


for name, loss in main_losses.items():
    free, tied = table_alpha(loss, rows=16), table_alpha(loss, rows=1)
    check.that(f"{name}: alpha", free, within=(0.99, None), control=tied, broken="one row for all contexts")
check.verdict()

# %% [markdown]
# ## Without capacity, two
# The target is a mixture of unit Gaussians at $\pm m$ on a grid, 0.7 of it on the left; the draft is one Gaussian. KL
# has a known optimum: it matches mean and variance. TV, and LK$_\alpha$ with it, would rather cover one mode well.

# %%
check = claim("kl-optimum-is-not-alpha-optimum")
grid = torch.linspace(-14, 14, 2801, dtype=torch.float64)


def gaussian(mean: float, sd: float) -> torch.Tensor:
    return -0.5 * ((grid - mean) / sd) ** 2


def mixture(m: float, w: float = 0.7) -> torch.Tensor:
    return torch.logaddexp(gaussian(-m, 1) + np.log(w), gaussian(m, 1) + np.log(1 - w))


def best_gaussian(loss, p_logits: torch.Tensor) -> tuple[float, float, float]:
    """Mean, standard deviation and alpha of the Gaussian that minimises the loss, from several starts."""

    def objective(x):
        return float(loss(p_logits, gaussian(x[0], np.exp(x[1]))))

    options = {"xatol": 1e-7, "fatol": 1e-13, "maxiter": 1000}
    starts = [(-2.0, 0.0), (0.0, 0.7), (2.0, 0.0)]
    runs = [optimize.minimize(objective, x, method="Nelder-Mead", options=options) for x in starts]
    mean, log_sd = min(runs, key=lambda result: result.fun).x
    return float(mean), float(np.exp(log_sd)), float(acceptance_rate(p_logits, gaussian(mean, np.exp(log_sd))))


best = {(m, loss): best_gaussian(loss, mixture(m)) for m in (0.0, 0.5, 3.0) for loss in (kl_loss, tv_loss)}
gap = {m: best[m, tv_loss][2] - best[m, kl_loss][2] for m in (0.0, 0.5, 3.0)}
law = mixture(3.0).softmax(-1)
mean = float((law * grid).sum())
moments = {"mean": mean, "standard deviation": float((law * (grid - mean) ** 2).sum().sqrt())}
for i, (name, moment) in enumerate(moments.items()):
    error, control = (abs(best[3.0, loss][i] - moment) for loss in (kl_loss, tv_loss))
    check.that(f"KL optimum: error of its {name}", error, within=(None, 0.01), control=control, broken="TV's optimum")
one_mode = "m = 0: the draft can be the target"
check.that("gap in alpha, m = 3", gap[3.0], within=(0.11, 0.13), control=gap[0.0], broken=one_mode)
opening, control = gap[3.0] - gap[0.5], gap[0.5] - gap[0.0]
check.that("growth of the gap, m = 0.5 to 3", opening, within=(0.1, None), control=control, broken="m = 0 to 0.5")
check.note("alpha of KL's optimum, m = 3", best[3.0, kl_loss][2]).note(
    "alpha of TV's optimum, m = 3", best[3.0, tv_loss][2]
)
check.note("gap in alpha, m = 0.5", gap[0.5])
check.verdict()

# %%
fig, axes = plt.subplots(2, 1, sharex=True, figsize=(6.4, 5.2))
p = law.numpy() / 0.01  # densities: the grid's step is 0.01
for ax, (name, loss), color in zip(axes, (("KL", kl_loss), ("acceptance", tv_loss)), ("C1", "C2"), strict=True):
    mean, sd, alpha = best[3.0, loss]
    q = gaussian(mean, sd).softmax(-1).numpy() / 0.01
    ax.plot(grid, p, color="0.3", label="target p")
    ax.plot(grid, q, color=color, label=f"draft q, best for {name}")
    ax.fill_between(grid, np.minimum(p, q), color=color, alpha=0.3, label=f"overlap: acceptance {alpha:.2f}")
    ax.set(ylabel="density")
    ax.legend(loc="upper right")
axes[1].set(xlabel="x", xlim=(-8, 8))
alt = "The Gaussian best for KL is wide and covers both peaks; the one best for acceptance sits on the larger peak."
show(fig, alt=alt, caption="The best single Gaussian for KL (top) and for acceptance (bottom).", headline=True)

# %% [markdown]
# ## How the gain depends on capacity
# Softmax drafts of rank $r$ for 64 contexts and 128 tokens; the target has rank 32. Adam, each loss at its best rate
# for each rank (at least three, chosen on another target), paired over targets.

# %%
check = claim("capacity-sweep")
sweep = {name: LOSSES[name] for name in ("KL", "TV", "LK-alpha", "Jensen-Shannon")}
sweep["LK-lambda"] = partial(lk_lambda_loss, group_dims=2)


def low_rank(stream: str, loss, rates: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """alpha and KL, (count, ranks, n), of drafts of each rank on `count` targets, trained at rates (ranks, n)."""
    draw = partial(torch.randn, generator=run.torch_generator(stream), device=run.device)
    p_logits = (2 * draw(count, 64, 32) @ draw(count, 32, 128) / 32**0.5)[:, None]
    groups = []  # the factors of each rank and rate; the rates of one rank start alike
    for r, row in zip(run.ranks, rates, strict=True):
        left, right = draw(count, 64, r), 0.3 * draw(count, r, 128)
        groups += [{"params": [x.clone().requires_grad_() for x in (left, right)], "lr": float(rate)} for rate in row]

    def logits():
        return torch.stack([u @ w for u, w in (group["params"] for group in groups)], 1)

    p_logits = p_logits.expand(-1, len(groups), -1, -1)
    alpha = minimise(loss, p_logits, groups, logits, lr=0.1, n=run.steps)
    kl = kl_loss(p_logits, logits().detach(), reduction="none")
    return tuple(x.mean(-1).view(count, *rates.shape).cpu().numpy() for x in (alpha, kl))


def tuned_rates(loss) -> np.ndarray:
    """(ranks, 1)"""

    def score(rates):
        return low_rank("tuning", loss, np.tile(rates, (len(run.ranks), 1)), 1)[0][0].T

    return np.array(tune(score, [0.1, 0.3, 0.9]))[:, None]


rates = {name: tuned_rates(loss) for name, loss in sweep.items()}
trained = {name: low_rank("capacity", loss, rates[name], run.seeds) for name, loss in sweep.items()}
alphas, kls = ({name: pair[i][..., 0] for name, pair in trained.items()} for i in (0, 1))  # (seeds, ranks)
placebo = low_rank("capacity", partial(lk_lambda_loss, eta=0.0), rates["LK-lambda"], run.seeds)[0][..., 0]
gain, no_gain = (paired_difference(x, alphas["KL"]) for x in (alphas["LK-lambda"], placebo))
below = [i for i, r in enumerate(run.ranks) if 1 < r < 32]
for i in below:
    measured, control = ((x.value[i], (x.low[i], x.high[i])) for x in (gain, no_gain))
    name, broken = f"LK-lambda minus KL in alpha, rank {run.ranks[i]}", "eta = 0, at LK-lambda's rates"
    intervals = {"interval": measured[1], "interval_within": (0, None), "control_interval": control[1]}
    check.that(name, measured[0], within=(0, None), control=control[0], broken=broken, **intervals)
end, middle = abs(gain.value[-1]), abs(gain.value[below[-1]])
check.that("the same at full rank, absolute", end, within=(None, 0.003), control=middle, broken="half the rank")
most, least = (run.ranks[int(pick(gain.value))] for pick in (np.argmax, np.argmin))
check.that("rank of the largest gain", most, within=(3, 31), control=least, broken="the smallest gain instead")
i = min(below, key=lambda i: abs(run.ranks[i] - 8))
for name in ("KL", "LK-lambda"):
    check.note(f"KL of the {name} draft, rank {run.ranks[i]}", kls[name][:, i].mean())
check.verdict()

# %%
fig, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(6.4, 6.4), height_ratios=(3, 2))
for name in sweep:
    band(top, run.ranks, alphas[name], label=name, marker="o", markersize=4)
band(bottom, run.ranks, alphas["LK-lambda"] - alphas["KL"], color="C3", marker="o", markersize=4)
bottom.axhline(0, color="0.3", linewidth=1)
top.set(ylabel=r"acceptance $\alpha$", xscale="log")
top.legend()
bottom.set(xlabel="rank r of the draft (target: 32)", ylabel="LK-lambda minus KL")
bottom.set_xticks(run.ranks, run.ranks)
alt = "Acceptance against draft rank for five losses; LK-lambda's gain over KL peaks at middle rank and ends at zero."
show(fig, alt=alt, caption="Acceptance of low-rank drafts, 95 % bands over targets.")

# %% [markdown]
# ## A smaller draft vocabulary
# Zipf-like targets over 512 tokens, 32 contexts; the draft knows the 64 most frequent tokens. With full rank KL
# reaches the bound as well: its optimum $p_v / \sum_S p$ lies above $p$ everywhere on $S$. With rank 4 they part.

# %%
check = claim("vocab-truncation")
S = torch.arange(64, device=run.device)
zipf = -torch.log(torch.arange(1, 513, device=run.device, dtype=torch.float64))
p_logits = (zipf + normal("Zipf targets", 32, 512)).float()
mass = p_logits.softmax(-1)[:, S].sum(-1)


def share_of_bound(loss, rank: int, vocab: torch.Tensor = S) -> np.ndarray:
    """alpha over its bound, (contexts,), of a draft of that rank trained on the draft vocabulary."""
    left, right = normal("left", 32, rank).float() / rank**0.5, normal("right", rank, 64).float()
    pair = [left.requires_grad_(), right.requires_grad_()]
    loss, overlap = partial(loss, draft_vocab=vocab), partial(acceptance_rate, draft_vocab=S)
    return (minimise(loss, p_logits, pair, lambda: left @ right, 0.1, 300, overlap) / mass).cpu().numpy()


mixed = torch.tensor([0.0, 0.5, 0.9, 0.99, 1.0], device=run.device)[:, None, None]  # from random drafts to p itself
drafts = (1 - mixed) * 3 * normal("random drafts", 5, 32, 64).float() + mixed * p_logits[:, S]
over = float((acceptance_rate(p_logits.expand(5, -1, -1), drafts, draft_vocab=S) / mass).max())
control = float((acceptance_rate(p_logits[:, S].expand(5, -1, -1), drafts) / mass).max())
check.that("largest alpha over mass on S", over, within=(None, 1 + 1e-5), control=control, broken="p renormalised on S")
lk = ("LK-alpha", "LK-lambda")
for name in lk:
    free, control = (share_of_bound(LOSSES[name], 64, vocab).min() for vocab in (S, S.roll(1)))
    check.that(
        f"{name}, full rank: smallest share of the bound",
        free,
        within=(0.99, None),
        control=control,
        broken="S shifted by one",
    )
check.note("KL, full rank: smallest share of the bound", share_of_bound(kl_loss, 64).min())
kl = share_of_bound(kl_loss, 4)
no_gain = paired_difference(share_of_bound(partial(lk_lambda_loss, eta=0.0), 4), kl)
for name in lk:
    gain = paired_difference(share_of_bound(LOSSES[name], 4), kl)
    intervals = {"interval": gain.interval, "interval_within": (0, None), "control_interval": no_gain.interval}
    title = f"{name} minus KL, rank 4: share of the bound"
    check.that(title, gain.value, within=(0, None), control=no_gain.value, broken="eta = 0", **intervals)
check.verdict()

# %% [markdown]
# ## One-hot targets
# If $p$ is one-hot at $y$, $\min(p_v, q_v)$ is $q_y$ at $y$ and 0 elsewhere. LK$_\alpha$ then is cross-entropy: it
# gains nothing on greedy labels. Broken: a label smoothed by 1 %.

# %%
check = claim("one-hot-degenerate")
q_logits = (2 * normal("drafts of one-hot targets", run.pairs, 50)).requires_grad_()
y = torch.randint(50, (run.pairs,), generator=run.torch_generator("labels"), device=run.device)
one_hot = F.one_hot(y, 50).double()


def differences(p: torch.Tensor) -> tuple[float, float]:
    """Largest difference of LK-alpha to -log q_y in value, and to KL in gradient."""
    value = lk_alpha_loss(p.log(), q_logits, reduction="none") - F.cross_entropy(q_logits, y, reduction="none")
    slope = gradient(lk_alpha_loss, p.log(), q_logits) - gradient(kl_loss, p.log(), q_logits)
    return largest(value.detach()), largest(slope)


hard, smooth = differences(one_hot), differences(0.99 * one_hot + 0.01 / 50)
for name, value, control in zip(("-log q_y in value", "KL in gradient"), hard, smooth, strict=True):
    check.that(f"largest difference to {name}", value, within=exact, control=control, broken="label smoothed by 1 %")
check.verdict()

# %% [markdown]
# ## TV reweights contexts
# Token by token, TV's gradient is LK$_\alpha$'s times $\alpha$. A draft too small to serve two contexts, here one row
# of logits for both, is torn between them: TV follows the one that is already good. Adam rescales the sum of both
# gradients, not their ratio.

# %%
check = claim("tv-reweights")
p_logits, q_logits = (2 * normal(f"{x} of the weights", run.pairs, 50) for x in ("targets", "drafts"))
q_logits.requires_grad_()
grad_tv, grad_lk = (gradient(loss, p_logits, q_logits) for loss in (tv_loss, lk_alpha_loss))
error = largest(grad_tv - acceptance_rate(p_logits, q_logits.detach())[:, None] * grad_lk)
name, control = "largest error of TV's gradient against alpha times LK-alpha's", largest(grad_tv - grad_lk)
check.that(name, error, within=exact, control=control, broken="alpha left out")


def rescue(peak: float) -> float:
    """LK-alpha minus TV in alpha of the worse of two contexts on disjoint tokens; the first has mass `peak` on one."""
    p = torch.zeros(2, 32, device=run.device)
    p[0, 0], p[0, 1:16], p[1, 16:] = peak, (1 - peak) / 15, 1 / 16
    worse = []
    for loss in (lk_alpha_loss, tv_loss):
        z = torch.zeros(1, 32, device=run.device, requires_grad=True)
        worse.append(minimise(loss, p.log(), [z], lambda z=z: z.expand(2, 32), lr=0.05, n=400).min())
    return float(worse[0] - worse[1])


unequal, equal = rescue(0.9), rescue(1 / 16)
name, broken = "alpha in the worse context after Adam, LK-alpha minus TV", "two contexts that are equally easy"
check.that(name, unequal, within=(0.05, None), control=equal, broken=broken)
check.verdict()

# %%
run.finish()
