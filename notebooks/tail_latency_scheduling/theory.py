# %% [markdown]
# # Theory, checked
#
# The queue with one server, where the boost is provably the best for the tail. Closed forms from the method notebook
# meet simulations of exponential sizes and of the more variable $H_2$: nine in ten sizes have mean 0.5 s, one in ten
# has 5.5 s. Mean size is 1 s, so the arrival rate $\lambda$ is the load $\rho$.

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"
cycles = None
jobs = None
replicates = None
rhos = None

# %%
import matplotlib.pyplot as plt
import numpy as np
from method import (
    Hyperexponential,
    Pareto,
    boost,
    boost_full,
    decay_rate,
    deterministic,
    exponential,
    fcfs,
    fcfs_tail,
    optimal_tail_constant,
    poisson_jobs,
    simulate_mg1,
    sjf,
    srpt,
    tail_constant,
    workload_constant,
)
from scipy import stats
from scipy.optimize import minimize, minimize_scalar

from companion import claim, report, start
from companion.plotting import band, show
from companion.stats import mean_interval

PRESETS = {
    # cycles: busy periods of each queue for the constants; jobs: of each of the replicates that compare SRPT with FCFS
    "quick": {"cycles": 20_000, "jobs": 100_000, "replicates": 8, "rhos": [0.5, 0.8]},
    "full": {"cycles": 60_000, "jobs": 400_000, "replicates": 20, "rhos": [0.5, 0.8, 0.9]},
    "gpu": {"cycles": 60_000, "jobs": 400_000, "replicates": 20, "rhos": [0.5, 0.8, 0.9]},
}
run = start("theory", PRESETS, preset=preset, seed=seed, device=device, cycles=cycles, jobs=jobs,
            replicates=replicates, rhos=rhos)  # fmt: skip
if run.preset == "gpu":
    print("A discrete-event simulation does not gain from a GPU: this preset is `full`, on the CPU.")
laws = {"exponential": exponential(1.0), "H2": Hyperexponential((0.9, 0.1), (0.5, 5.5))}
RHO = 0.8  # where one load is enough


def boosted(constant, law, rho, f=1.0, shift=0.0):
    """constant(law, rho, b) for the boost b with f times the right gamma, plus a shift."""
    gamma = decay_rate(law, rho)
    return constant(law, rho, lambda s: boost(s, f * gamma) + shift)


def fcfs_constant(law, rho):
    return tail_constant(law, rho, np.zeros_like)


def without_second_factor(law, rho, b):
    """tail_constant without E e^{gamma (S - b(S))}: the jobs that drop out are forgotten."""
    gamma = decay_rate(law, rho)
    s, weights = law.nodes(gamma)
    return workload_constant(law, rho, gamma) * np.exp(rho * weights @ (b(s) * np.expm1(gamma * s)))


# %% [markdown]
# ## boost-tail-constant
#
# At $P(T>t)\approx10^{-4}$ a plain simulation sees next to nothing. We tilt as in the derivation: arrivals at rate
# $\lambda m(\gamma)$, sizes with density $\propto e^{\gamma s}$, until the workload $w$ passes a level, and then as
# they are. A busy period gets the weight $e^{\gamma(\text{gaps}-\text{sizes})}$ of the tilted part, times
# $m(\gamma)$ for its first job. With a mean of $1/(1-\rho)$ jobs in a busy period,
# $P(T>t)=(1-\rho)\,E[\text{weight}\times\text{jobs over }t]$. The level is $1.7/\gamma$ below $t$: jobs can wait
# longer than any workload. FCFS in the same busy periods, whose tail is known exactly, takes out most of the noise.


# %%
def busy_periods(law, lam, level, n, rng, chunk=256):
    """n tilted busy periods in a row: arrivals (k,), sizes (k,), index of the first job of each (n,), weights (n,)."""
    gamma = decay_rate(law, lam)
    m, p, mu = law.mgf(gamma), np.asarray(law.probs), np.asarray(law.means)
    tilted = Hyperexponential(tuple(p / (1 - gamma * mu) / m), tuple(mu / (1 - gamma * mu)))
    gaps, sizes, lengths, weights = [], [], [], np.empty(n)
    idle = 0.0
    for i in range(n):
        sizes.append(tilted.sample(1, rng))
        gaps.append([idle])
        length, work, over = 1, sizes[-1][0], False
        while True:
            if not over and work > level:
                over, weights[i] = True, m * np.exp(-gamma * work)
            gap = rng.exponential(1 / (lam if over else lam * m), chunk)
            size = (law if over else tilted).sample(chunk, rng)
            after = work + np.cumsum(size - gap)
            stops = np.flatnonzero((after - size < 0) | ((after > level) & (not over)))
            stop = stops[0] if len(stops) else chunk - 1
            ended = after[stop] < size[stop]
            kept = stop + (not ended)
            gaps.append(gap[:kept])
            sizes.append(size[:kept])
            length += kept
            if ended:
                break
            work = after[stop]
        idle = gap[stop]
        if not over:  # m e^{gamma (gaps - sizes)}, and 1 / m for the gap that ended it
            weights[i] = np.exp(gamma * (size[stop] - after[stop]))
        lengths.append(length)
    return np.cumsum(np.concatenate(gaps)), np.concatenate(sizes), np.cumsum([0, *lengths[:-1]]), weights


def ratio(x, y):
    """mean(x) / mean(y) of paired samples, with its standard error."""
    value = x.mean() / y.mean()
    return value, np.std(x - value * y) / y.mean() / np.sqrt(len(x))


P, cases = 1e-4, {}  # (law, rho, f): simulated C, its standard error, that without FCFS, formula, broken formula
for name, law in laws.items():
    for rho in run.rhos:
        gamma = decay_rate(law, rho)
        t = np.log(fcfs_constant(law, rho) / P) / gamma
        *jobs_in, starts, weights = busy_periods(law, rho, t - 1.7 / gamma, run.cycles, run.rng(f"{name} {rho}"))
        policies = fcfs(), boost_full(gamma), boost_full(2 * gamma)
        first, *boosteds = (weights * np.add.reduceat((simulate_mg1(*jobs_in, p) > t) * 1.0, starts) for p in policies)
        known = np.exp(gamma * t) * fcfs_tail(law, rho, t)
        for f, over in zip((1, 2), boosteds, strict=True):
            C, C_se = known * np.array(ratio(over, first))
            plain_se = over.std() / over.mean() / np.sqrt(run.cycles)
            cases[name, rho, f] = C, C_se, plain_se, *(
                boosted(c, law, rho, f) for c in (tail_constant, without_second_factor))  # fmt: skip
value, se, plain_se, formula, broken_formula = np.array(list(cases.values())).T
z_99 = stats.norm.ppf(0.995)
for (name, rho, f), (C, C_se, _, C_formula, _) in cases.items():
    report(f"C, {name}, load {rho}, boost with {f} gamma", C, interval=(C - z_99 * C_se, C + z_99 * C_se))
    report(f"formula, {name}, load {rho}, boost with {f} gamma", C_formula)

check = claim("boost-tail-constant")
check.that(f"largest deviation from the formula in {len(cases)} cases", np.max(np.abs(value - formula) / se),
           within=(0, stats.norm.ppf(1 - 0.005 / len(cases))), control=np.max(np.abs(value - broken_formula) / se),
           broken="without the second factor, the jobs that drop out", unit="SE")  # fmt: skip
check.that("median half-width of the 99 % intervals, relative", np.median(z_99 * se / formula), within=(0, 0.1),
           control=np.median(z_99 * plain_se), broken="without FCFS in the same busy periods")  # fmt: skip
check.note("largest half-width of the 99 % intervals, relative", np.max(z_99 * se / formula))
check.verdict()

# %% [markdown]
# ## gamma-boost-optimal
#
# Over piecewise linear $b$ with 40 knots, $\log C_b$ is linear plus a log-sum-exp: convex, with a simple gradient. We
# minimise it from random starts. Then we sweep $b_{f\gamma}$ over $f$.

# %%
check = claim("gamma-boost-optimal")
fs, sweeps, rng = np.geomspace(1 / 4, 4, 33), {}, run.rng("optimal")


def optimised_boost(law, start):
    """The least C over the heights of a piecewise linear boost, from a start: (40,)."""
    gamma = decay_rate(law, RHO)
    s, weights = law.nodes(gamma)
    knots = np.geomspace(1e-4, 40 / gamma, len(start))
    hats = np.array([np.interp(s, knots, e) for e in np.eye(len(start))]).T  # b(s) = hats @ heights
    pull, tilted = RHO * hats.T @ (weights * np.expm1(gamma * s)), weights * np.exp(gamma * s)

    def log_constant(heights):
        dropped = tilted * np.exp(-gamma * (hats @ heights))
        return pull @ heights + np.log(dropped.sum()), pull - gamma * hats.T @ dropped / dropped.sum()

    heights = minimize(log_constant, start / gamma, jac=True, method="L-BFGS-B", options={"maxiter": 5000}).x
    return tail_constant(law, RHO, lambda s: np.interp(s, knots, heights))


def best_f(constant, law):
    found = minimize_scalar(
        lambda log_f: boosted(constant, law, RHO, np.exp(log_f)), bounds=np.log([1 / 4, 4]), method="bounded"
    )
    return np.exp(found.x)


for name, law in laws.items():
    best = optimal_tail_constant(law, RHO)
    found = np.array([optimised_boost(law, rng.uniform(0, 5, 40)) for _ in range(5)]) / best
    sweeps[name] = np.array([boosted(tail_constant, law, RHO, f) for f in fs])
    wrong = boosted(tail_constant, law, RHO, 0.5) / best
    dropped = "the second factor left out, and with it the price of a boost"
    for which, value in (("worst", found.max()), ("best", found.min())):
        check.that(f"{which} of 5 optimised boosts over the optimum, {name}", value, within=(1 - 1e-9, 1.005),
                   control=wrong, broken="half the right gamma")  # fmt: skip
    check.that(f"f of the best boost, {name}", best_f(tail_constant, law), within=(0.95, 1.05),
               control=best_f(without_second_factor, law), broken=dropped)  # fmt: skip
    shifts = [abs(boosted(c, law, RHO, shift=3) / boosted(c, law, RHO) - 1)
              for c in (tail_constant, without_second_factor)]  # fmt: skip
    check.that(f"change of C when all are boosted by 3 s more, {name}", shifts[0], within=(0, 1e-10),
               control=shifts[1], broken=dropped)  # fmt: skip
check.verdict()

# %% [markdown]
# ## gain-over-fcfs
#
# How much of the tail constant goes away, by formula and in the simulation above. Deterministic sizes leave nothing
# to gain: every job has the same boost.

# %%
check = claim("gain-over-fcfs")
fixed = deterministic(1.0)
jobs_in = poisson_jobs(fixed, RHO, 50_000, run.rng("deterministic"))
late, late_boosted = (simulate_mg1(*jobs_in, policy) for policy in (fcfs(), boost_full(decay_rate(fixed, RHO))))
no_gain = 1 - (late_boosted > 10).sum() / (late > 10).sum()
gains = {name: 1 - optimal_tail_constant(law, RHO) / fcfs_constant(law, RHO) for name, law in laws.items()}
no_gain_formula = 1 - optimal_tail_constant(fixed, RHO) / fcfs_constant(fixed, RHO)
for name, gain in gains.items():
    C, C_se, *_ = cases[name, RHO, 1] / np.float64(fcfs_constant(laws[name], RHO))
    check.that(f"simulated gain, {name}", 1 - C, within=(gain - 0.1, gain + 0.1),
               interval=(1 - C - z_99 * C_se, 1 - C + z_99 * C_se), interval_within=(0.1, None), control=no_gain,
               broken="deterministic sizes")  # fmt: skip
    check.note(f"gain by formula, {name}", gain)
check.that("gain for H2 over that for exponential sizes, by formula", gains["H2"] / gains["exponential"],
           within=(1.5, None), control=no_gain_formula / gains["exponential"],
           broken="deterministic sizes in the place of H2")  # fmt: skip
check.verdict()

# %% [markdown]
# ## srpt-tail-poor
#
# Shortest remaining time first has the least mean, but for light tails a smaller decay rate than FCFS. So its excess
# $P_{SRPT}/P_{FCFS}$ grows with $t$. We fit the slope of its logarithm against $-\log P_{FCFS}$, over the times
# which 10 % to 0.1 % of FCFS jobs exceed. For heavy tails it is the other way round: SRPT wins by far. (There the
# last points come from the few largest jobs of a finite run.)

# %%
levels = np.array([1e-1, 3e-2, 1e-2, 3e-3, 1e-3])


def compare(law, policy, rng):
    """P_policy(T > t) / P_FCFS(T > t) where FCFS has `levels`: (5,); and the mean time over that of FCFS."""
    jobs_in = poisson_jobs(law, RHO / law.mean, run.jobs, rng)
    first, times = (simulate_mg1(*jobs_in, p) for p in (fcfs(), policy))
    over = [(times > t).mean() for t in np.quantile(first, 1 - levels)]
    return *over / levels, times.mean() / first.mean()


fig, axes = plt.subplots(1, 2, figsize=(6.4, 3.6))
for color, (name, law) in enumerate(laws.items()):
    scale = fcfs_constant(law, RHO)
    axes[0].plot(fs, sweeps[name] / scale, color=f"C{color}", label=name)
    C, C_se, *_ = np.array([cases[name, RHO, f] for f in (1, 2)]).T / scale
    axes[0].errorbar([1, 2], C, z_99 * C_se, fmt="o", color=f"C{color}", capsize=3)
axes[0].axhline(1, color="0.3", linestyle="--")
axes[0].set(xscale="log", ylim=(0, 1.15), xlabel=r"f, for $b_{f\gamma}$", ylabel="tail constant / that of FCFS")
axes[0].set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
axes[0].minorticks_off()
axes[0].legend(loc="lower right")

kinds = {"SRPT": (laws["exponential"], srpt()), "Boost": (laws["exponential"], boost_full(1 - RHO)),
         "SRPT, Pareto": (Pareto(1.5, 1 / 3), srpt())}  # fmt: skip
excess, means = {}, {}
for kind, (law, policy) in kinds.items():
    rows = np.array([compare(law, policy, run.rng(f"{kind} {i}")) for i in range(run.replicates)])
    excess[kind], means[kind] = rows[:, :-1], rows[:, -1].mean()
    band(axes[1], levels, excess[kind], label=kind)
axes[1].axhline(1, color="0.3", linestyle="--")
axes[1].set(xscale="log", yscale="log", xlabel="$P(T>t)$ under FCFS", ylabel="$P(T>t)$ / that under FCFS")
axes[1].invert_xaxis()
axes[1].legend(fontsize=8, loc="center left")
show(fig, alt="Left: the tail constant over that of FCFS against f has its minimum at f = 1 and is lower for H2. "
     "Right: SRPT's tail over that of FCFS grows for exponential sizes, is tiny for Pareto sizes; Boost stays below 1",
     caption="Load 0.8. Left: formula (lines) and simulation (99 % intervals). Right: 95 % bands.")  # fmt: skip

check = claim("srpt-tail-poor")
slopes = {kind: mean_interval(np.polyfit(-np.log(levels), np.log(excess[kind]).T, 1)[0]) for kind in ("SRPT", "Boost")}
check.that("growth exponent of SRPT's tail over FCFS's", slopes["SRPT"].value, within=(0.2, None),
           interval=slopes["SRPT"].interval, interval_within=(0, None), control=slopes["Boost"].value,
           broken="Boost in the place of SRPT")  # fmt: skip
last = {kind: mean_interval(e[:, -1]) for kind, e in excess.items()}
check.that("SRPT's tail over FCFS's, where that is 0.1 %", last["SRPT"].value, within=(2, None),
           interval=last["SRPT"].interval, interval_within=(1, None), control=last["SRPT, Pareto"].value,
           broken="heavy-tailed sizes")  # fmt: skip
check.that("mean time of SRPT over that of Boost", means["SRPT"] / means["Boost"], within=(None, 0.8),
           control=1 / means["Boost"], broken="FCFS in the place of SRPT")  # fmt: skip
for name, law in laws.items():  # a claim at one quantile is not a claim about the tail
    jobs_in = poisson_jobs(law, RHO, 4 * run.jobs, run.rng(f"crossing {name}"))
    q = 1 - np.geomspace(0.3, 3e-4, 60)
    short, early = (np.quantile(simulate_mg1(*jobs_in, p), q) for p in (srpt(), boost_full(decay_rate(law, RHO))))
    check.note(f"percentile from which Boost beats SRPT, {name}", 100 * q[np.flatnonzero(short < early)[-1]], unit="%")
check.verdict()

# %% [markdown]
# ## gamma-limits
#
# Completion orders on 100 traces of 60 jobs.

# %%
check = claim("gamma-limits")
rng, same = run.rng("limits"), {}


def order(policy, arrivals, sizes):
    return np.argsort(arrivals + simulate_mg1(arrivals, sizes, policy))


for _ in range(100):
    jobs_in = poisson_jobs(laws["H2"], 0.9, 60, rng)
    for policy, extreme in ((fcfs(), 1e4), (sjf(), 1e-9)):
        for gamma in (extreme, 0.1):
            equal = (order(policy, *jobs_in) == order(boost_full(gamma), *jobs_in)).all()
            same.setdefault((policy.name, gamma), []).append(equal)
for name, extreme, to in (("FCFS", 1e4, "infinity"), ("SJF", 1e-9, "zero")):
    check.that(f"traces in the order of {name}, gamma to {to}", np.sum(same[name, extreme]), within=(100, 100),
               control=np.sum(same[name, 0.1]), broken="gamma = 0.1 / s")  # fmt: skip
check.verdict()

# %%
run.finish()
