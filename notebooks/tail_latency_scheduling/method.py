# %% [markdown]
# # Method
#
# Requests arrive at a server, and a scheduler says who is served next. **UniBoost** {cite}`li2026beyond` does not
# predict how long a request will take. It pretends that the request arrived earlier than it did, by a *boost* that
# fades as known or attained work accumulates: the smallest $\Phi_i=a_i-b_\gamma(w_i)$ goes first. The boost comes
# from a queue with one server, where it is optimal for the tail {cite}`yu2024strongly`. Part A is that queue. Part B
# is a simulated LLM server with batches and a KV cache: there the theory motivates, but does not apply.

# %%
import math
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"

# %% [markdown]
# ## The boost
#
# $$b_\gamma(w)=\frac1\gamma\log\frac1{1-e^{-\gamma w}}$$
#
# for $w$ seconds of work and $\gamma$ in 1/s. It is convex and falls from $\infty$ to 0. For $\gamma\to\infty$ it
# vanishes (first come, first served). For $\gamma\to0$ the differences $b(w_i)-b(w_j)\to\frac1\gamma\log(w_j/w_i)$
# outgrow all arrival times (smallest work first).


# %%
def _require(ok, name, value, allowed):
    if not np.all(ok):
        raise ValueError(f"{name} is {value!r}; it must be {allowed}")


SMALLEST_WORK = 1e-12  # seconds: no work at all counts as this, so that its boost is large but finite


def boost(w, gamma):
    """b_gamma(w) in seconds; w >= 0 in seconds of work, any shape; gamma > 0 in 1/s. ValueError otherwise."""
    _require(gamma > 0, "gamma", gamma, "positive (in 1/s)")
    _require(np.asarray(w) >= 0, "w", w, "not negative (seconds of work)")
    x = gamma * np.maximum(w, SMALLEST_WORK)
    near, far = np.minimum(x, 1), np.maximum(x, 1)  # each form of log(1 - e^-x) is exact on its own side
    return -np.where(x < 1, np.log(-np.expm1(-near)), np.log1p(-np.exp(-far))) / gamma


# %% [markdown]
# ## Part A: sizes, and the decay rate of their queue
#
# M/G/1: Poisson arrivals of rate $\lambda$, sizes $S$ with moment generating function $m(\theta)=Ee^{\theta S}$ and
# load $\rho=\lambda ES<1$. If $m$ is finite somewhere to the right of 0 (a *light tail*), response times have
# $P(T>t)\sim Ce^{-\gamma t}$, and the **decay rate** $\gamma>0$ solves $\lambda(m(\gamma)-1)=\gamma$.


# %%
class Hyperexponential(NamedTuple):
    """Mixture of exponentials with probabilities `probs` and means `means` (seconds); one component: exponential."""

    probs: tuple
    means: tuple

    @property
    def mean(self):
        return float(np.dot(self.probs, self.means))

    @property
    def theta_max(self):
        return 1 / max(self.means)

    def mgf(self, theta, order=0):
        """E S^order e^{theta S} for order 0 or 1: analytic in theta, with poles at 1 / means."""
        p, mu = np.asarray(self.probs), np.asarray(self.means)
        return float(np.sum(p * mu**order / (1 - theta * mu) ** (1 + order)))

    def sample(self, n, rng):
        return rng.exponential(np.asarray(self.means)[rng.choice(len(self.probs), size=n, p=self.probs)])

    def nodes(self, gamma, n=2000):
        """Sizes s and weights with E f(S) = weights @ f(s), for f up to e^{gamma s}: a double exponential rule."""
        x = np.linspace(-4.5, 4.5, n)
        scale = 1 / (self.theta_max - gamma)
        s = scale * np.exp(x - np.exp(-x))
        density = sum(p / mu * np.exp(-s / mu) for p, mu in zip(self.probs, self.means, strict=True))
        return s, density * s * (1 + np.exp(-x)) * (x[1] - x[0])


class Empirical(NamedTuple):
    """The sizes of a list, each as likely; of one number: deterministic."""

    sizes: np.ndarray
    theta_max = math.inf

    @property
    def mean(self):
        return float(np.mean(self.sizes))

    def mgf(self, theta, order=0):
        s = np.asarray(self.sizes)
        with np.errstate(over="ignore"):
            return float(np.mean(s**order * np.exp(theta * s)))

    def sample(self, n, rng):
        return rng.choice(self.sizes, size=n)

    def nodes(self, gamma):
        return np.asarray(self.sizes, float), np.full(len(self.sizes), 1 / len(self.sizes))


class Pareto(NamedTuple):
    """P(S > s) = (minimum / s)^alpha: a heavy tail, without a moment generating function."""

    alpha: float
    minimum: float
    theta_max = 0.0

    @property
    def mean(self):
        return self.alpha * self.minimum / (self.alpha - 1)

    def sample(self, n, rng):
        return self.minimum * rng.random(n) ** (-1 / self.alpha)


def exponential(mean):
    return Hyperexponential((1.0,), (mean,))


def deterministic(size):
    return Empirical(np.array([size], float))


def _excess(dist, lam):
    return lambda theta: lam * (dist.mgf(theta) - 1) - theta  # 0 at 0, then negative, and positive beyond the root


def decay_rate(dist, lam):
    """The root gamma > 0 of lam (m(gamma) - 1) = gamma, in 1/s. ValueError if rho >= 1 or the tail is heavy."""
    _require(lam > 0, "lam", lam, "positive")
    _require(lam * dist.mean < 1, "rho", lam * dist.mean, "below 1: more work arrives than can be done")
    _require(dist.theta_max > 0, "dist", dist, "light-tailed: with an infinite mgf no gamma exists")
    excess, bounded = _excess(dist, lam), math.isfinite(dist.theta_max)
    outwards = (dist.theta_max * (1 - 2.0**-k) if bounded else 2.0 ** (k - 40) for k in count(1))
    high = next(theta for theta in outwards if excess(theta) > 0)
    low = next(theta for theta in (high / 2.0**k for k in count(1)) if excess(theta) < 0)
    return brentq(excess, low, high, xtol=1e-15, rtol=1e-14)


def gamma_from_mgf(arrivals, sizes):
    """Decay rate of the queue with the mean rate of `arrivals` and the empirical law of `sizes`: (n,), seconds."""
    _check_arrivals(arrivals)
    return decay_rate(Empirical(np.asarray(sizes, float)), (len(arrivals) - 1) / (arrivals[-1] - arrivals[0]))


# %% [markdown]
# ## The tail constant of any boost
#
# Serve by smallest $a-b(s)$, without preemption. Under the tilt that makes a long wait likely, job $s'$ (arrival
# $a'$) meets the workload $C_We^{-\gamma t}$, $C_W=(1-\rho)/(\lambda m'(\gamma)-1)$. Jobs that come later, but by
# less than $b(s)-b(s')$, overtake it: the Poisson stream of rate $\lambda$ adds their work, a factor
# $\exp\lambda E[(b(S)-b(s'))^+(e^{\gamma S}-1)]$. Jobs that came before it by less than $b(s')-b(S)$ drop out. They
# came at the tilted rate $\lambda e^{\gamma s}$ and take their $e^{\gamma s}$ with them:
# $\exp\lambda E[-(b(s')-b(S))^+(e^{\gamma S}-1)]$. With $\lambda E(e^{\gamma S}-1)=\gamma$ the product is
# $\exp\{\lambda E[b(S)(e^{\gamma S}-1)]-\gamma b(s')\}$, and the mean over the job's own size gives
#
# $$C_b=C_W\,\exp\{\lambda E[b(S)(e^{\gamma S}-1)]\}\;E\,e^{\gamma(S-b(S))}.$$
#
# FCFS is $b=0$. For $b_\gamma$ the last factor is $E(e^{\gamma S}-1)=\gamma/\lambda$. It is the **minimum**: put
# $v(s)=\lambda(e^{\gamma s}-1)/\gamma$, $Ev(S)=1$. By Jensen $E e^{\gamma(S-b)}\ge\exp E[v(\gamma S-\gamma b-\log
# v)]$, where $b$ cancels against the first factor. Equality holds if $e^{\gamma(s-b)}\propto v$, that is for
# $b=b_\gamma$ plus any constant.


# %%
def workload_constant(dist, lam, gamma):
    """C_W of P(W > t) ~ C_W e^{-gamma t} (Cramér-Lundberg)."""
    return (1 - lam * dist.mean) / (lam * dist.mgf(gamma, 1) - 1)


def tail_constant(dist, lam, b):
    """C_b of P(T > t) ~ C_b e^{-gamma t}, served by smallest a - b(s). b: sizes (k,) -> boosts (k,), in seconds."""
    gamma = decay_rate(dist, lam)
    s, weights = dist.nodes(gamma)
    boosts, grown = b(s), np.exp(gamma * s)
    overtaking = np.exp(lam * weights @ (boosts * (grown - 1)))
    return float(workload_constant(dist, lam, gamma) * overtaking * (weights @ (grown * np.exp(-gamma * boosts))))


def optimal_tail_constant(dist, lam):
    """The least C_b of all boosts, that of b_gamma."""
    gamma = decay_rate(dist, lam)
    s, weights = dist.nodes(gamma)
    overtaking = np.exp(lam * weights @ (boost(s, gamma) * np.expm1(gamma * s)))
    return float(workload_constant(dist, lam, gamma) * overtaking * gamma / lam)


def fcfs_tail(dist, lam, t):
    """P(T > t) under FCFS, exactly, for a Hyperexponential: sum of C_i e^{-theta_i t} over all roots theta_i."""
    poles = np.sort(1 / np.asarray(dist.means))
    excess = _excess(dist, lam)
    roots = [decay_rate(dist, lam)]
    roots += [brentq(excess, a * (1 + 1e-9), b * (1 - 1e-9)) for a, b in pairwise(poles)]
    return sum(workload_constant(dist, lam, th) * dist.mgf(th) * np.exp(-th * np.asarray(t, float)) for th in roots)


# %% [markdown]
# ## Policies
#
# A policy is a priority $\Phi$ (smallest first, ties by arrival) of what may be known of a request, all in seconds: its
# arrival, the work of its prompt, its size (or a guess of it), and the decoding it has received. Part A has no prompts.
# `uniboost` never looks at `size`. Nudge {cite}`grosof2021nudge` is FCFS with swaps of neighbours.


# %%
class Policy(NamedTuple):
    """phi(arrival, prompt, size, attained) -> priorities, for arrays or numbers; in a queue without batches `preempts`
    says whether a served job can be interrupted, and `quantum(attained)` when its phi is looked at again."""

    name: str
    phi: Callable
    preempts: bool = False
    quantum: Callable = lambda attained: math.inf
    sigma: float = 0.0  # standard deviation of the log of errors in sizes
    controller: object = None  # of gamma
    swap_below: float = 0.0  # Nudge: jobs up to this size are small


def fcfs():
    return Policy("FCFS", lambda arrival, prompt, size, attained: arrival + 0 * attained)


def sjf():
    return Policy("SJF", lambda arrival, prompt, size, attained: size + 0 * attained)


def srpt():
    return Policy("SRPT", lambda arrival, prompt, size, attained: np.maximum(size - attained, 0), preempts=True)


def noisy_srpt(sigma):
    """SRPT by sizes that are wrong by a factor e^{sigma N(0,1)}."""
    _require(sigma >= 0, "sigma", sigma, "not negative")
    return srpt()._replace(name=f"SRPT, σ={sigma:g}", sigma=sigma)


def las(quantum=0.05):
    """Least attained service first, in slices of `quantum` seconds."""
    return Policy("LAS", lambda arrival, prompt, size, attained: attained, True, lambda attained: attained + quantum)


def mlfq(first=0.5):
    """Queues for attained service up to first, 2 first, 4 first, ... seconds, each by arrival."""

    def level(attained):
        return np.floor(np.log2(np.maximum(attained / first, 0.5))) + 1

    return Policy("MLFQ", lambda arrival, prompt, size, attained: 1e9 * level(attained) + arrival, True,
                  lambda attained: first * 2.0 ** level(attained))  # fmt: skip


def nudge(small):
    """FCFS, but a job of size <= small passes a larger one just before it, which is passed once only."""
    return fcfs()._replace(name="Nudge", swap_below=small)


def boost_full(gamma):
    """gamma-Boost: the size is known."""
    return Policy(f"Boost, γ={gamma:g}", lambda arrival, prompt, size, attained: arrival - boost(size, gamma))


def uniboost(gamma, quantum=0.05):
    """w = work of the prompt + decoding received; gamma in 1/s, or a `GammaAda`."""
    ada = gamma if isinstance(gamma, GammaAda) else None
    name = "UniBoost, γ-Ada" if ada else f"UniBoost, γ={gamma:g}"

    def phi(arrival, prompt, size, attained):
        return arrival - boost(prompt + attained, ada.gamma if ada else gamma)

    return Policy(name, phi, True, lambda attained: max(quantum, 2 * attained), controller=ada)


# %% [markdown]
# ## The queue, simulated
#
# Events are arrivals, completions and, with preemption, the ends of quanta. The waiting jobs are a heap of $(\Phi,i)$.


# %%
def _check_arrivals(arrivals):
    a = np.asarray(arrivals, float)
    _require(a.ndim == 1 and len(a) > 0, "arrivals", a, "a vector of at least one time")
    _require(np.isfinite(a) & (a >= 0), "arrivals", a, "finite and not negative")
    _require(np.diff(a) >= 0, "arrivals", a, "sorted")


def poisson_jobs(dist, lam, n, rng):
    """Arrival times and sizes, (n,) each, in seconds."""
    return np.cumsum(rng.exponential(1 / lam, n)), dist.sample(n, rng)


def simulate_mg1(arrivals, sizes, policy, rng=None):
    """Response times (n,) of jobs with `sizes` under a policy, on one server; all in seconds. rng: for noisy sizes."""
    _check_arrivals(arrivals)
    a, s = np.asarray(arrivals, float), np.asarray(sizes, float)
    _require(s.shape == a.shape, "sizes", s, f"of shape {a.shape}, like arrivals")
    _require(np.isfinite(s) & (s > 0), "sizes", s, "positive and finite")
    guess = _noisy(s, policy, rng)
    key = policy.phi(a, np.zeros(len(a)), guess, np.zeros(len(a))).tolist()
    if policy.preempts:
        return _preemptive(a.tolist(), s.tolist(), guess.tolist(), key, policy) - a
    return _nonpreemptive(a.tolist(), s.tolist(), key, policy.swap_below) - a


def _noisy(sizes, policy, rng):
    if not policy.sigma:
        return sizes
    _require(rng is not None, "rng", rng, "a numpy Generator: this policy guesses sizes")
    return sizes * np.exp(policy.sigma * rng.standard_normal(len(sizes)))


def _nonpreemptive(a, s, key, swap_below):
    n, t, i, waiting, done = len(a), 0.0, 0, [], [None] * len(a)
    back = -1  # Nudge: the last of the queue, while a small job may still pass it
    for _ in range(n):
        if not waiting:
            t = max(t, a[i])
        while i < n and a[i] <= t:
            if swap_below:
                if s[i] <= swap_below and back >= 0 and done[back] is None and s[back] > swap_below:
                    key[i], back = math.nextafter(key[back], -math.inf), -1
                else:
                    back = i
            heappush(waiting, (key[i], i))
            i += 1
        j = heappop(waiting)[1]
        t += s[j]
        done[j] = t
    return np.array(done)


def _preemptive(a, s, guess, key, policy):
    n, t, i, waiting, done, attained = len(a), 0.0, 0, [], [0.0] * len(a), [0.0] * len(a)
    while waiting or i < n:
        if not waiting:
            t = max(t, a[i])
        while i < n and a[i] <= t:
            heappush(waiting, (key[i], i))
            i += 1
        j = heappop(waiting)[1]
        left, quantum = s[j] - attained[j], policy.quantum(attained[j]) - attained[j]
        if i < n and a[i] - t < min(left, quantum):
            attained[j] += a[i] - t
            t = a[i]
        elif quantum < left:
            attained[j] += quantum
            t += quantum
        else:
            t += left
            done[j] = t
            continue
        heappush(waiting, (float(policy.phi(a[j], 0.0, guess[j], attained[j])), j))
    return np.array(done)


# %% [markdown]
# ## Part B: requests and an LLM server
#
# A request has a prompt of $p_i$ tokens and $o_i$ tokens to come, which only an oracle knows. The server works in
# iterations: each resident request decodes one token, and what is left of a budget of tokens goes to prompts. An
# iteration takes $c_0+c_p\cdot\text{prefill tokens}+c_d\cdot\text{decodes}+c_{kv}\cdot\text{resident tokens}$. Work
# in seconds is $w_i=c_p\max(p_i-h_i,0)+\alpha_d\,d_i$, with $h_i$ cached tokens of the prompt and $d_i$ decoded ones.
# Requests are those of the Azure traces of 2023 {cite}`patel2024splitwise`.
#
# **Memory guard.** When the best of the waiting does not fit, a resident $v$ may be *evicted*: its cache is dropped,
# and computed again later. The guards differ in when it may be.
# - `none`: after every token, if its $\Phi_v$ is larger.
# - `geometric`: only when $d_v$ reaches $\theta_0,2\theta_0,4\theta_0,\dots$, if $\Phi_v$ is larger by more than
#   the price of its cache, $\kappa$ seconds a token. Between thresholds $\Phi_v$ stays as it is.
# - `resident_first`: never.
#
# In all of them growing caches can overflow the memory. Then the worst $\Phi_v-\kappa\cdot\text{tokens}$ leaves.


# %%
class Trace(NamedTuple):
    """arrival (seconds), prompt and output (tokens): (n,) each; predicted: outputs as a predictor sees them;
    cached: tokens of each prompt that need no prefill."""

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    predicted: np.ndarray | None = None
    cached: np.ndarray | None = None


def load_azure(kind, n=None, offset=0, scale=1.0):
    """n requests of the Azure LLM inference trace 2023 ("code" or "conv") from number `offset` on; all gaps * scale."""
    _require(kind in ("code", "conv"), "kind", kind, "'code' or 'conv'")
    _require(scale > 0, "scale", scale, "positive")
    path = Path(__file__).parent if "__file__" in globals() else Path.cwd()
    lines = (path / "data" / f"AzureLLMInferenceTrace_{kind}.csv").read_text().splitlines()[1:]
    _require(0 <= offset < len(lines), "offset", offset, f"from 0 to {len(lines) - 1}")
    _require(n is None or 1 <= n <= len(lines) - offset, "n", n, f"from 1 to {len(lines) - offset}, or None for all")
    time, prompt, output = np.array([line.split(",") for line in lines[offset:][:n]]).T
    seconds = (time.astype("datetime64[ns]") - np.datetime64(time[0], "ns")).astype(float) / 1e9
    return Trace(scale * seconds, prompt.astype(int), output.astype(int))


class Server(NamedTuple):
    """Seconds of an iteration (c0), and of each prefill token, decode and resident token; sizes in tokens."""

    c0: float = 12e-3
    c_p: float = 64e-6
    c_d: float = 1e-4
    c_kv: float = 2e-7
    alpha_d: float = 1e-4  # seconds of work that a decoded token counts as in priorities; a prompt token: c_p
    sequences: int = 96
    budget: int = 2048  # tokens of an iteration
    memory: float = 120_000  # tokens of KV cache
    guard: str = "resident_first"
    theta0: int = 16
    kappa: float = 64e-6  # seconds a token that an eviction costs: computing it again


class Result(NamedTuple):
    ttft: np.ndarray  # (n,): arrival to first token, seconds
    ttlt: np.ndarray  # (n,): arrival to last token
    tbt: tuple[np.ndarray, np.ndarray]  # gaps between tokens, and how many tokens had each
    tokens: np.ndarray  # (n,): tokens served
    updates: np.ndarray  # (n,): times that a request's priority was looked at again
    evictions: int
    recomputed_tokens: int
    iterations: int
    peak_memory: int
    utilisation: float  # busy time / time until the last request is done


def _check_trace(trace, server):
    _check_arrivals(trace.arrival)
    for name in ("prompt", "output"):
        tokens = np.asarray(getattr(trace, name))
        _require(tokens.shape == np.shape(trace.arrival), name, tokens, "of the shape of arrival")
        _require((tokens >= 1) & (tokens == np.round(tokens)), name, tokens, "whole numbers of at least 1")
    _require(server.guard in ("none", "geometric", "resident_first"), "guard", server.guard,
             "'none', 'geometric' or 'resident_first'")  # fmt: skip
    _require(min(server.sequences, server.budget, server.theta0) >= 1, "server", server, "of positive sizes")
    _require(server.budget > server.sequences, "budget", server.budget, "above sequences, or prompts can starve")
    largest = int(np.max(trace.prompt + trace.output))
    _require(largest <= server.memory, "memory", server.memory, f"at least the largest request, {largest} tokens")


def simulate(trace, policy, server=Server(), rng=None):  # noqa: B008, an immutable default
    """Serve a trace. rng: for noisy sizes. Returns a `Result`; ValueError for what can't be served."""
    _check_trace(trace, server)
    return _Batches(trace, policy, server, rng).run()


class _Batches:
    """One run of `simulate`. D counts iterations: a decoding request j has offset[j] + D tokens, so that a batch of any
    size moves on in O(1). Heaps of events hold (D, j, stint); an event of an earlier stint is void."""

    def __init__(self, trace, policy, server, rng):
        n, self.server, self.policy = len(trace.arrival), server, policy
        self.a, self.p, self.o = (np.asarray(x).tolist() for x in trace[:3])
        prefill = np.maximum(trace.prompt - (0 if trace.cached is None else trace.cached), 0)
        guess = _noisy(trace.output if trace.predicted is None else trace.predicted, policy, rng)
        self.known = trace.arrival, server.c_p * prefill, server.c_p * prefill + server.alpha_d * guess
        self.prefill, self.phi = np.maximum(prefill, 1).tolist(), [0.0] * n
        self.waiting, self.prefilling, self.decoding = [], {}, {}  # prefilling: tokens left; decoding: an ordered set
        self.ends, self.thresholds = [], []
        self.d, self.offset, self.stint, self.updates = [0] * n, [0] * n, [0] * n, [0] * n
        self.ttft, self.ttlt, self.last_token, self.gaps = np.zeros(n), np.zeros(n), [0.0] * n, []
        self.t = self.busy = 0.0
        self.D = self.memory = self.arrived = self.done = self.evictions = self.recomputed = self.peak = 0
        self.prioritise(range(n))

    def run(self):
        while self.done < len(self.a):
            self.arrive()
            if self.waiting or self.prefilling or self.decoding:
                self.renegotiate()
                self.make_room()
                self.iterate()
            else:
                self.t = self.a[self.arrived]
        return Result(self.ttft, self.ttlt, tuple(np.array(self.gaps).T), np.array(self.d), np.array(self.updates),
                      self.evictions, self.recomputed, self.D, self.peak, self.busy / self.t)  # fmt: skip

    def decoded(self, j):
        return self.offset[j] + self.D if j in self.decoding else self.d[j]

    def counted(self, j):
        """The decoded tokens that j's priority knows of: with a guard, the last threshold."""
        d, theta0 = self.decoded(j), self.server.theta0
        if self.server.guard == "none" or d == 0:
            return d
        return theta0 << ((d // theta0).bit_length() - 1) if d >= theta0 else 0

    def prioritise(self, jobs):
        index, work = np.array(jobs), self.server.alpha_d * np.array([self.counted(j) for j in jobs])
        for j, phi in zip(jobs, self.policy.phi(*(known[index] for known in self.known), work).tolist(), strict=True):
            self.phi[j] = phi

    def badness(self, j):
        """phi, less what it costs to bring a resident back."""
        price = 0 if self.server.guard == "none" else self.server.kappa
        return self.phi[j] - price * (self.p[j] + self.decoded(j))

    def arrive(self):
        ada, first = self.policy.controller, self.arrived
        if ada and ada.maybe_update(self.t) and self.waiting:
            jobs = [j for _, j in self.waiting]
            self.prioritise(jobs)
            self.waiting = [(self.phi[j], j) for j in jobs]
            heapify(self.waiting)
        while self.arrived < len(self.a) and self.a[self.arrived] <= self.t:
            self.arrived += 1
        new = range(first, self.arrived)
        if ada and new:
            self.prioritise(new)
        for j in new:
            heappush(self.waiting, (self.phi[j], j))

    def fits(self, j, leaving=()):
        """Is there room for the waiting request j, once some residents have left?"""
        tokens = self.memory + len(self.decoding) + self.p[j] + self.d[j] + 1
        tokens -= sum(self.p[k] + self.decoded(k) + 1 for k in leaving)
        residents = len(self.prefilling) + len(self.decoding) - len(leaving)
        return tokens <= self.server.memory and residents < self.server.sequences

    def admit(self):
        j = heappop(self.waiting)[1]
        self.prefilling[j] = self.prefill[j] + self.d[j]
        self.memory += self.p[j] + self.d[j] + 1  # with the token that the prefill ends in
        return j

    def evict(self, j):
        self.d[j] = self.decoded(j)
        self.memory -= self.p[j] + self.d[j] + (j in self.prefilling)
        self.recomputed += self.prefill[j] + self.d[j] - self.prefilling.pop(j, 0)
        if j in self.decoding:
            del self.decoding[j]
            self.last_token[j] = self.t
        self.stint[j] += 1
        self.evictions += 1
        heappush(self.waiting, (self.phi[j], j))

    def renegotiate(self):
        """Residents whose priority is due for a look can lose their place to the best of the waiting."""
        guard = self.server.guard
        due = list(self.decoding) if guard == "none" else self.pop_due(self.thresholds)
        for j in due:
            self.updates[j] += 1
            if guard != "none":
                heappush(self.thresholds, (self.D + self.counted(j), j, self.stint[j]))  # where the count has doubled
        if guard == "resident_first" or not due or not self.waiting or self.fits(self.waiting[0][1]):
            return
        self.prioritise(due)
        due.sort(key=self.badness)
        while due and self.waiting and not self.fits(best := self.waiting[0][1]):
            leaving = []
            while due and self.badness(due[-1]) > self.phi[best] and not self.fits(best, leaving):
                leaving.append(due.pop())
            if not self.fits(best, leaving):
                return
            self.admit()
            for j in leaving:
                self.evict(j)

    def make_room(self):
        """The tokens of this iteration must fit."""
        while self.memory + len(self.decoding) > self.server.memory:
            residents = [*self.decoding, *self.prefilling]
            self.prioritise(residents)
            self.evict(max(residents, key=self.badness))

    def iterate(self):
        server, decodes = self.server, len(self.decoding)
        budget, finished, started = server.budget - decodes, [], list(self.prefilling)
        while budget > 0:
            if started:
                j = started.pop(0)
            elif self.waiting and self.fits(self.waiting[0][1]):
                j = self.admit()
            else:
                break
            tokens = min(self.prefilling[j], budget)
            budget -= tokens
            self.prefilling[j] -= tokens
            if self.prefilling[j] == 0:
                finished.append(j)
        used = server.budget - decodes - budget
        seconds = server.c0 + server.c_p * used + server.c_d * decodes + server.c_kv * self.memory
        self.t += seconds
        self.busy += seconds
        self.D += 1
        self.memory += decodes
        self.peak = max(self.peak, self.memory)
        self.gaps.append((seconds, decodes))
        for j in self.pop_due(self.ends):
            self.complete(j)
        for j in finished:
            self.start_decoding(j)

    def pop_due(self, events):
        jobs = []
        while events and events[0][0] <= self.D:
            _, j, stint = heappop(events)
            if stint == self.stint[j]:
                jobs.append(j)
        return jobs

    def start_decoding(self, j):
        """The end of a prefill, which is one token more."""
        del self.prefilling[j]
        if self.d[j]:
            self.gaps.append((self.t - self.last_token[j], 1))
        else:
            self.ttft[j] = self.t - self.a[j]
        self.offset[j] = self.d[j] + 1 - self.D
        self.decoding[j] = None
        if self.decoded(j) == self.o[j]:
            self.complete(j)
            return
        theta0 = self.server.theta0
        theta = theta0 << (max(self.decoded(j) - 1, 0) // theta0).bit_length()  # the first threshold not passed yet
        heappush(self.ends, (self.o[j] - self.offset[j], j, self.stint[j]))
        heappush(self.thresholds, (theta - self.offset[j], j, self.stint[j]))

    def complete(self, j):
        self.d[j] = self.decoded(j)
        self.memory -= self.p[j] + self.d[j]
        del self.decoding[j]
        self.stint[j] += 1
        self.done += 1
        self.ttlt[j] = self.t - self.a[j]
        if self.policy.controller:
            self.policy.controller.record(self.ttlt[j])


# %% [markdown]
# **γ-Ada** watches the completed requests. Let $r=t_{99}/t_{95}$ of their last 2000 times. Every 5 s $\gamma$ moves
# by the fraction $\beta=0.3$ towards $\gamma_{\max}/(1+4\max(r-1,0))$: a heavy tail calls for small $\gamma$.


# %%
class GammaAda:
    """Adapts gamma in [low, high] (1/s); latencies and times in seconds."""

    def __init__(self, gamma=10.0, low=1.0, high=200.0, beta=0.3, interval=5.0, window=2000, least=200):
        _require(0 < low <= gamma <= high, "gamma", gamma, f"positive and within [low, high] = [{low}, {high}]")
        _require(0 < beta <= 1, "beta", beta, "in (0, 1]")
        self.gamma, self.low, self.high, self.beta = gamma, low, high, beta
        self.interval, self.least, self.latencies = interval, least, deque(maxlen=window)
        self.updated, self.history = 0.0, [(0.0, gamma)]

    def record(self, latency):
        self.latencies.append(latency)

    def target(self, ratio):
        """Where gamma should go when t99 / t95 is `ratio`."""
        return self.high / (1 + 4 * max(ratio - 1, 0))

    def maybe_update(self, now):
        """Adapt gamma if it is time; returns whether it did."""
        if now - self.updated < self.interval or len(self.latencies) < self.least:
            return False
        t95, t99 = np.quantile(self.latencies, (0.95, 0.99))
        self.gamma += self.beta * (min(max(self.target(t99 / t95), self.low), self.high) - self.gamma)
        self.updated = now
        self.history.append((now, self.gamma))
        return True


# %% [markdown]
# ## A small demonstration

# %%
if __name__ == "__main__":
    queue = exponential(1.0), 0.8
    jobs = poisson_jobs(*queue, 50_000, np.random.default_rng(seed))
    for policy in (fcfs(), boost_full(decay_rate(*queue)), nudge(1.0), mlfq(), srpt()):
        times = simulate_mg1(*jobs, policy)
        print(f"{policy.name:15} mean {times.mean():5.2f} s, 99.9 % {np.quantile(times, 0.999):5.1f} s")
