# %% [markdown]
# # Method
#
# Principal component analysis from **two numbers per sample**. Samples $v_t\sim N(0,\Sigma)$ arrive in
# $\mathbb{R}^d$; $\Sigma$ has eigenvalues $\lambda_1>\lambda_2\ge\dots\ge\lambda_d\ge0$, gap
# $\Delta=\lambda_1-\lambda_2$ and leading eigenvector $\bar u$. We choose $A_t\in\mathbb{R}^{2\times d}$ with
# orthonormal rows and read only $x_t=A_tv_t$. *Adaptive* sensing chooses $A_t$ from what was read before. The
# estimate $u_t$ is a unit vector, its alignment is $c_t=\bar u^\top u_t$, and its error is
# $e_t=1-c_t^2=\sin^2\angle(u_t,\bar u)$.

# %%
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"

# %% [markdown]
# ## Samples, and the only door to them
#
# The *spiked model* $\Sigma=\lambda_2I+\Delta\bar u\bar u^\top$ is the default test bed. `AdaptiveSensor.measure` is
# an algorithm's only access to a sample. It refuses a third row: no method can read more than it claims. With
# `TorchNormals` in the place of a NumPy generator the same code runs in torch, on a GPU.


# %%
def _require(ok, name, value, allowed):
    if not np.all(ok):
        raise ValueError(f"{name} is {value}; it must be {allowed}")


def _spectrum(eigvals):
    eigvals = np.asarray(eigvals, float)
    _require(eigvals.size >= 2, "d", eigvals.size, "at least 2")
    _require(np.isfinite(eigvals) & (eigvals >= 0), "eigvals", eigvals, "finite and not negative")
    _require(eigvals[0] > eigvals[1:], "eigvals", eigvals, "led by one strictly largest eigenvalue: lam1 > lam2")
    return eigvals


def spiked(d, lam1, lam2):
    """Eigenvalues of the spiked model: (d,). ValueError unless d >= 2 and lam1 > lam2 >= 0."""
    _require(d >= 2, "d", d, "at least 2")
    return _spectrum([lam1] + [lam2] * (d - 1))


class TorchNormals:
    """A torch.Generator behind the interface that the vector algorithms use; float32, on the generator's device."""

    def __init__(self, generator):
        import torch

        self.array = lambda x: torch.as_tensor(x, dtype=torch.float32, device=generator.device)
        self.standard_normal = lambda shape: torch.randn(shape, generator=generator, device=generator.device)


class GaussianStream:
    """Samples of N(0, basis diag(eigvals) basis^T); eigvals: (d,), the largest first; basis: (d, d), orthogonal."""

    def __init__(self, eigvals, basis=None, *, rng):
        self.eigvals, self.rng, self.array = _spectrum(eigvals), rng, getattr(rng, "array", np.asarray)
        self.root, self.basis = self.array(np.sqrt(self.eigvals)), basis
        self.leading = self.array(np.eye(len(eigvals))[0] if basis is None else basis[:, 0])

    def sample(self, n):
        v = self.root * self.rng.standard_normal((n, len(self.root)))
        return v if self.basis is None else v @ self.basis.T


def SpikedGaussian(d, lam1, lam2, rng):
    return GaussianStream(spiked(d, lam1, lam2), rng=rng)


class DataStream:
    """Rows of a table X: (n, d), centred and drawn with replacement."""

    array = staticmethod(np.asarray)

    def __init__(self, X, rng):
        _require(np.isfinite(X), "X", X, "finite in every entry")
        self.X, self.rng = X - np.mean(X, 0), rng
        eigvals, basis = np.linalg.eigh(self.X.T @ self.X / len(X))
        self.eigvals, self.basis, self.leading = eigvals[::-1], basis[:, ::-1], basis[:, -1]

    def sample(self, n):
        return self.X[self.rng.integers(len(self.X), size=n)]


class AdaptiveSensor:
    """Measures fresh samples, at most two numbers each; `readings` counts the numbers read in each trial."""

    def __init__(self, stream):
        self.stream, self.readings = stream, 0

    def measure(self, A):
        """A: k rows, each (R, d). Returns A v for R fresh samples v, as k columns (R, 1). RuntimeError if k > 2."""
        if len(A) > 2:
            raise RuntimeError(f"{len(A)} measurements of one sample were asked for; the budget is 2")
        self.readings += len(A)
        v = self.stream.sample(len(A[0]))
        return [dot(row, v) for row in A]


# %% [markdown]
# ## Algorithm 1, and its rivals
#
# *Exploit*: the first row of $A_t$ is $u_t$ itself, giving $g=u_t^\top v_t$. *Explore*: the second row $b_t$ is
# uniform on the unit sphere of $u_t^\perp$, giving $h=b_t^\top v_t$. What was **seen** of the sample is $u_tg+b_th$.
# Oja's rule {cite}`oja1982simplified` steps along it, as in Algorithm 1 of {cite}`saadfalcon2026adaptive`:
#
# $$u_{t+1}=\mathrm{Norm}\big(u_t+\eta_t\,(u_tg+b_th)\,g\big).$$
#
# The rivals differ only in what they see: $v_t$ itself, or $A_t^\top A_tv_t$ for a plane drawn without looking at
# $u_t$. Every function runs $R$ independent trials at once; the trial is the leading axis.


# %%
class Trace(NamedTuple):
    u: np.ndarray  # (R, d): final estimates
    t: np.ndarray  # (m,): recorded numbers of samples
    cos2: np.ndarray  # (m, R): squared alignment at those times

    @property
    def sin2(self):
        return 1 - self.cos2


def dot(x, y):
    """Row by row: (R, d), (R, d) -> (R, 1)."""
    return (x * y).sum(-1, keepdims=True)


def normalise(x):
    return x / dot(x, x) ** 0.5


def uniform_directions(trials, d, rng):
    return normalise(rng.standard_normal((trials, d)))


def start_near(cos2, d, trials, rng):
    """Unit vectors (R, d) with squared first coordinate cos2 and a uniform direction otherwise."""
    tail = np.sqrt(1 - cos2) * uniform_directions(trials, d - 1, rng)
    return np.column_stack([np.full(trials, np.sqrt(cos2)), tail])


def orthogonal_direction(u, rng):
    """Uniform unit vectors orthogonal to u: (R, d) -> (R, d). The second pass removes what rounding left of u."""
    b = rng.standard_normal(u.shape)
    for _ in range(2):
        b = normalise(b - dot(b, u) * u)
    return b


def _oja(stream, u0, steps, schedule, record, see):
    """Iterate u <- Norm(u + eta_t seen (seen . u)), seen = see(u); keep cos2 after the numbers of steps in `record`."""
    u, record = stream.array(u0), np.array(record)
    _require(bool((abs(dot(u, u) - 1) < 1e-6).all()), "u0", u0, "made of unit vectors")
    _require((record >= 0) & (record <= steps), "record", record, f"within 0..{steps}")
    cos2 = np.empty((len(record), len(u)))
    for t in range(steps + 1):
        if t in record:
            c = u @ stream.leading
            cos2[record == t] = (c.double().cpu() if hasattr(c, "cpu") else c) ** 2
        if t < steps:
            seen = see(u)
            eta = np.asarray(schedule(t), float)  # one number, or one for each trial
            _require(eta > 0, "eta", eta, f"positive (the schedule gave this at t = {t})")
            u = normalise(u + (eta[:, None] if eta.ndim else float(eta)) * seen * dot(seen, u))
    return Trace(u, record, cos2)


def compressed_oja(sensor, u0, steps, schedule, record, rng, explore=orthogonal_direction):
    """Algorithm 1. u0: (R, d), unit rows; schedule: t -> eta_t; `explore` draws b and is replaced only in ablations."""

    def see(u):
        b = explore(u, rng)
        g, h = sensor.measure((u, b))
        if hasattr(schedule, "observe"):
            schedule.observe(g[:, 0], h[:, 0])
        return u * g + b * h  # so that seen . u = g

    return _oja(sensor.stream, u0, steps, schedule, record, see)


def grouse_adaptive(sensor, u0, steps, record, rng):
    """Greedy adaptive GROUSE, u <- Norm(u g + b h), made for lam2 = 0: Algorithm 1 with eta -> infinity."""
    return compressed_oja(sensor, u0, steps, schedules.constant(1e12), record, rng)


def full_oja(stream, u0, steps, schedule, record):
    """Oja's rule with all d numbers of each sample."""
    return _oja(stream, u0, steps, schedule, record, lambda u: stream.sample(len(u)))


def _see_random_plane(sensor, trials, d, rng):
    """A^T A v for R fresh samples, each with its own Haar plane A: (R, d)."""
    a1 = uniform_directions(trials, d, rng)
    a2 = orthogonal_direction(a1, rng)
    x1, x2 = sensor.measure((a1, a2))
    return a1 * x1 + a2 * x2


def nonadaptive_oja(sensor, u0, steps, schedule, record, rng):
    """Oja's rule with two random orthonormal directions for each sample."""
    return _oja(sensor.stream, u0, steps, schedule, record, lambda u: _see_random_plane(sensor, *u.shape, rng))


def nonadaptive_moment(sensor, d, n, rng, block=2000):
    """Leading eigenvector (d,) of the mean of A^T x x^T A over n samples, each seen through a Haar plane A."""
    moment = np.zeros((d, d))
    for start in range(0, n, block):
        seen = _see_random_plane(sensor, min(block, n - start), d, rng)
        moment += seen.T @ seen
    return np.linalg.eigh(moment)[1][:, -1]


# %% [markdown]
# ## Step sizes
#
# The paper's schedule has a constant warm-up step and then decays like $2/t$, with the scale
# $S=3\lambda_1\lambda_2d^2/\Delta^2+15\lambda_1d/\Delta$. It is an oracle: it needs $\lambda_1$ and $\Delta$. Ours,
# `Estimated`, uses running means of $g^2$ and $h^2$ instead, and has no guarantee.


# %%
class PaperSchedule(NamedTuple):
    """eta = (d-1)/(2 S gap) for `warmup` = (4S+1) log(d/2) steps, then 2(d-1)/(gap (4S + t - warmup)): Theorem 4.1."""

    d: int
    gap: float
    S: float

    @property
    def warmup(self):
        return int(np.ceil((4 * self.S + 1) * np.log(self.d / 2)))

    def __call__(self, t):
        return 2 * (self.d - 1) / (self.gap * (4 * self.S + max(t - self.warmup, 0)))


class Estimated:
    """inverse_t with eigenvalues estimated on the way: means of g^2 and h^2, over about the last quarter of the run."""

    def __init__(self, d, a=2.0):
        self.d, self.a, self.seen, self.lam1, self.tail = d, a, 0, 1.0, 1.0

    def observe(self, g, h):
        self.seen += 1
        self.lam1 = self.lam1 + 4 / (self.seen + 3) * (g**2 - self.lam1)
        self.tail = self.tail + 4 / (self.seen + 3) * (h**2 - self.tail)

    def __call__(self, t):
        gap = np.maximum(self.lam1 - self.tail, self.lam1 / 10)  # before any alignment the two means agree
        t0 = 4 * self.lam1 * self.tail * ((self.d - 1) / gap) ** 2
        return np.minimum(self.a * (self.d - 1) / (gap * (t + t0)), 0.1 / self.lam1)


class schedules:
    """Step sizes t -> eta_t for t = 0, 1, ... (a namespace)."""

    estimated = Estimated

    def paper(lam1, lam2, d):
        gap = spiked(d, lam1, lam2)[0] - lam2
        return PaperSchedule(d, gap, S=3 * lam1 * lam2 * d**2 / gap**2 + 15 * lam1 * d / gap)

    def inverse_t(a, d, gap, t0):
        """eta_t = a (d-1) / (gap (t + t0))."""
        _require(min(a, gap, t0) > 0, "a, gap, t0", (a, gap, t0), "positive")
        return lambda t: a * (d - 1) / (gap * (t + t0))

    def constant(eta):
        _require(np.asarray(eta) > 0, "eta", eta, "positive")
        return lambda t: eta


# %% [markdown]
# ## One step, and the scalar chain
#
# Put $z=\bar u^\top b$ and $\kappa=\eta gh/(1+\eta g^2)$. Divide the update by $1+\eta g^2$: $u'\propto u+\kappa b$,
# so
#
# $$c'=\frac{c+\kappa z}{\sqrt{1+\kappa^2}},\qquad
# e'=\frac{e-2\kappa cz+\kappa^2(1-z^2)}{1+\kappa^2}=e-2\eta ghz\,c+\eta^2g^2h^2(1-z^2-e)+\dots$$
#
# In the spiked model $v=\sqrt\Delta\,\zeta\bar u+\sqrt{\lambda_2}\,n$. So $E[gh\mid c,z]=\Delta cz$, and
# $E[z^2]=e/(d-1)$: the **drift** is $-2\eta\Delta\,e(1-e)/(d-1)$. Near $\bar u$ each step injects the **noise**
# $\eta^2E[g^2h^2]=\eta^2\lambda_1\lambda_2$.
#
# The law of $(g,h,z)$ depends on $u$ only through $c$. So $c_t$ is a Markov chain (ours, exact) at a cost free of
# $d$: with $s=\sqrt e$, draw $z=sy$, $y=\xi/\sqrt{\xi^2+\chi}$ from $\xi\sim N(0,1)$ and $\chi\sim\chi^2_{d-2}$. The
# chain carries $(c,s)$ and never forms $1-c^2$, so tiny errors stay accurate. Two random directions reduce likewise.
# Their plane has the orthonormal vectors $a_1=\sqrt x\,\bar u+\sqrt{1-x}\,f$ and $a_2\perp\bar u$, where
# $x\sim\mathrm{Beta}(1,\frac{d-2}2)$ and $(f,a_2)$ is a uniform frame of $\bar u^\perp$, of which only the
# components along $u-c\bar u$ matter. Each function below returns the parts of the new estimate along and across
# $\bar u$.


# %%
def _adaptive_step(c, s, eta, normals, chi2, signal, noise, gain, kick):
    zeta, xi = signal * normals[0], normals[1]
    y = xi / np.sqrt(xi * xi + chi2[0])  # z = s y
    g = c * zeta + noise * normals[2]
    h = gain * (s * y * zeta + noise * normals[3])
    p, q = 1 + eta * g * g, eta * g * h  # u' is proportional to p u + q b
    side = p * s - q * c * y
    return p * c + q * s * y, np.sqrt(side * side + q * q * (1 - y * y))


def _tracking_step(c, s, eta, normals, chi2, signal, noise, gain, kick):
    along, across = _adaptive_step(c, s, eta, normals, chi2, signal, noise, gain, kick)
    delta = kick * normals[4]  # ubar moves by a random tangent step, of which delta is the part towards u
    side, rest = across - along * delta, kick * kick * chi2[1] * (along * along + across * across)
    return along + across * delta, np.sqrt(side * side + rest)


def _random_plane_step(c, s, eta, normals, chi2, signal, noise, gain, kick):
    x, y1, y2 = chi2[1] / (chi2[0] + chi2[1]), normals[3], normals[4]
    x1, x2 = np.sqrt(x) * signal * normals[0] + noise * normals[1], noise * normals[2]  # a_1 . v and a_2 . v
    seen_c = np.sqrt(x) * x1  # A^T A v along ubar, then along u - c ubar
    seen_s = (np.sqrt(1 - x) * y1 * x1 + y2 * x2) / np.sqrt(y1 * y1 + y2 * y2 + chi2[2])
    pull = eta * (c * seen_c + s * seen_s)
    side, rest = s + pull * seen_s, x1 * x1 + x2 * x2 - seen_c * seen_c - seen_s * seen_s
    return c + pull * seen_c, np.sqrt(side * side + pull * pull * np.maximum(rest, 0))


def _advance(step, c, s, etas, normals, chi2, options, c_path, s_path):
    for k in range(len(etas)):
        along, across = step(c, s, etas[k], normals[k], chi2[k], *options)
        norm = np.sqrt(along * along + across * across)
        c, s = along / norm, across / norm
        c_path[k], s_path[k] = c, s
    return c, s


@cache
def _compiled(function):
    """The function through numba, which is optional: the plain one gives the same numbers, slower if trials are few."""
    try:
        from numba import njit
    except ImportError:
        return function
    return njit(function)


def _chain(c0, d, lam1, lam2, schedule, steps, rng, sensing="adaptive", gain=1.0, drift=0.0, compiled=False, block=256):
    """Yields (t of the first row, c, s); the rows of c and s: (block, R) are successive states."""
    c = np.array(c0, float)
    _require((c.ndim == 1) & (np.abs(c) <= 1), "c0", c0, "a vector of cosines")
    _require(d >= (4 if sensing == "random" else 2), "d", d, "at least 2, or 4 with two random directions")
    step, n_normals, dofs = {
        "adaptive": (_tracking_step, 5, (d - 2, d - 2)) if drift else (_adaptive_step, 4, (d - 2,)),
        "random": (_random_plane_step, 5, (d - 2, 2, d - 3)),
    }[sensing]
    step, advance = (_compiled(step), _compiled(_advance)) if compiled else (step, _advance)
    signal, noise = np.sqrt(spiked(d, lam1, lam2)[:2] - (lam2, 0))
    s, options = np.sqrt(1 - c * c), (signal, noise, gain, np.sqrt(drift / (d - 1)))
    for start in range(0, steps, block):
        shape = min(block, steps - start), len(c)
        etas = np.array([schedule(t) for t in range(start, start + shape[0])], float).reshape(shape[0], -1)
        _require(etas > 0, "eta", etas.min(), "positive at every step")
        normals = rng.standard_normal((shape[0], n_normals, len(c)))
        chi2 = np.stack([rng.chisquare(dof, shape) if dof else np.zeros(shape) for dof in dofs], axis=1)
        c_path, s_path = np.empty(shape), np.empty(shape)
        c, s = advance(step, c, s, etas, normals, chi2, options, c_path, s_path)
        yield start + 1, c_path, s_path


class ChainTrace(NamedTuple):
    t: np.ndarray  # (m,)
    c: np.ndarray  # (m, R)
    sin2: np.ndarray  # (m, R): 1 - c^2, free of cancellation


def scalar_chain(c0, d, lam1, lam2, schedule, steps, record, rng, **options):
    """The exact chain of c_t from c0: (R,), recorded after each number of steps in `record` (1..steps).

    Options: sensing="random": two random directions; drift=V: ubar moves by a random tangent step of variance V after
    each sample; gain: a factor on the exploring measurement h (1 is the algorithm, 0 and -1 are ablations).
    """
    record = np.array(record)
    _require((record >= 1) & (record <= steps), "record", record, f"within 1..{steps}")
    c, s = np.empty((2, len(record), len(c0)))
    for first, c_path, s_path in _chain(c0, d, lam1, lam2, schedule, steps, rng, **options):
        here = (record >= first) & (record < first + len(c_path))
        c[here], s[here] = c_path[record[here] - first], s_path[record[here] - first]
    return ChainTrace(record, c, s**2)


def hitting_time_chain(d, lam1, lam2, eta, eps, trials, seed, max_steps, c0=None, sensing="adaptive"):
    """First t with e_t <= eps under a constant step, from c0 (default: uniform starts): (R,) int, -1 if not reached."""
    _require(0 < eps < 1, "eps", eps, "between 0 and 1")
    rng = np.random.default_rng(seed)
    c0 = uniform_directions(trials, d, rng)[:, 0] if c0 is None else c0
    times = np.full(trials, -1)
    step = schedules.constant(eta)
    for first, _, s_path in _chain(c0, d, lam1, lam2, step, max_steps, rng, sensing, compiled=True):
        hit = s_path**2 <= eps
        new = hit.any(0) & (times < 0)
        times[new] = first + hit[:, new].argmax(0)
        if np.all(times > 0):
            break
    return times


# %% [markdown]
# ## What the drift and the noise predict
#
# With $\eta_t=a(d-1)/(\Delta t)$ they give $e_{t+1}=(1-\frac{2a}t)e_t+\frac{a^2V}{t^2}$ where
# $V=\lambda_1\lambda_2(d-1)^2/\Delta^2$. Insert $e=C/t$: the terms in $t^{-2}$ balance when $C(2a-1)=a^2V$; any
# other solution differs by a multiple of $t^{-2a}$. So $t\,E e_t\to\frac{a^2}{2a-1}V$ for $a>\frac12$. In a general
# $\Sigma$ each tail coordinate $j$ has its own gap $\Delta_j=\lambda_1-\lambda_j$. Its noise is $\lambda_1E[(b^\top
# v)^2b_j^2]=\lambda_1(2\lambda_j+\mathrm{tr}\,\Sigma_\perp)/((d-1)(d+1))$, because
# $E[b_ib_kb_j^2]=\delta_{ik}(1+2\delta_{ij})/((d-1)(d+1))$. The paper's $\lambda_2d$ is really
# $\mathrm{tr}\,\Sigma_\perp$.
#
# **Information.** For a plane $A$ put $p=A\bar u$, $x=|p|^2$. The covariance seen is $S=\lambda_2I_2+\Delta
# pp^\top$. Turning $\bar u$ towards $w\perp\bar u$ changes it by $\dot S_w=\Delta(pq^\top+qp^\top)$, $q=Aw$. With
# the first axis along $p$, $\frac12\mathrm{tr}(S^{-1}\dot S_w)^2=2\Delta^2xq_1^2/(\lambda_2+\Delta x)^2+
# \Delta^2xq_2^2/((\lambda_2+\Delta x)\lambda_2)$. Over an orthonormal basis of $\bar u^\perp$, $\sum q_1^2=1-x$ and
# $\sum q_2^2=1$. The sum is $J(x)$, with $\max_xJ=\frac98\Delta^2/(\lambda_1\lambda_2)$ at
# $x^*=3\lambda_2/(\Delta+4\lambda_2)$. Rows that are not orthonormal gain nothing: an invertible map of $x_t$ keeps
# its information. Information $I$ per sample, shared by $d-1$ coordinates, leaves $E\sin^2\ge(d-1)^2/(It)$, up to
# $1-o(1)$ and in the local minimax sense (van Trees and AM-HM).


# %%
def fisher_trace(A, ubar, lam1, lam2):
    """Trace of the Fisher information about the tangent coordinates of ubar in A v, by finite matrices. A: (2, d)."""
    gap, p = lam1 - lam2, A @ ubar
    inverse = np.linalg.inv(lam2 * A @ A.T + gap * np.outer(p, p))
    tangents = np.linalg.svd(ubar[None])[2][1:]  # an orthonormal basis of the complement of ubar
    changes = [gap * (np.outer(p, A @ w) + np.outer(A @ w, p)) for w in tangents]
    return sum(np.trace(inverse @ change @ inverse @ change) / 2 for change in changes)


def fisher_trace_formula(x, lam1, lam2):
    """J(x) for an orthonormal pair of rows with x = |A ubar|^2."""
    gap, seen = lam1 - lam2, lam2 + (lam1 - lam2) * x
    return 2 * gap**2 * x * (1 - x) / seen**2 + gap**2 * x / (seen * lam2)


def _haar_mean(f, d):
    """E f(x) for x = |A ubar|^2 ~ Beta(1, (d-2)/2), A a Haar plane: x = 1 - U^(2/(d-2)) with U uniform."""
    _require(d >= 3, "d", d, "at least 3, or a plane is everything")
    return quad(lambda u: f(1 - u ** (2 / (d - 2))), 0, 1, epsabs=0, epsrel=1e-10, limit=200)[0]


def _spread(a, ratio=1.0):
    _require(a > 0.5, "a", a, "above 1/2")
    return a**2 / (2 * a * ratio - 1)


def _gaps(eigvals):
    eigvals = _spectrum(eigvals)
    return eigvals[0], eigvals[0] - eigvals[1:], eigvals[1:]


class predict:
    """Closed forms (a namespace). The first three are lim t E e_t when the drift is -(2a/t) e."""

    def adaptive(eigvals, a, moments=None):
        """Algorithm 1, eta_t = a (d-1)/(gap t). `moments`: (d-1,) replaces E[(ubar.v)^2 (2 v_j^2 + |v_perp|^2)]."""
        lam1, gaps, tail = _gaps(eigvals)
        moments = lam1 * (2 * tail + tail.sum()) if moments is None else moments
        return np.sum(_spread(a, gaps / gaps[0]) * moments) * len(tail) / ((len(tail) + 2) * gaps[0] ** 2)

    def full(eigvals, a):
        """Oja's rule on whole samples, eta_t = a/(gap t)."""
        lam1, gaps, tail = _gaps(eigvals)
        return np.sum(_spread(a, gaps / gaps[0]) * lam1 * tail) / gaps[0] ** 2

    def nonadaptive(d, lam1, lam2, a=1.0):
        """Two random directions, spiked model, eta_t = a/(pull gap t). The moment estimator has a = 1."""
        gap = lam1 - lam2

        def noise(x):  # E[(w.s)^2 (ubar.s)^2] summed over a basis w of the complement of ubar; s = A^T A v
            seen = lam2 + gap * x
            return x * seen * (lam2 * (2 - x) + gap * x * (1 - x) + 2 * (1 - x) * seen)

        return _spread(a) * _haar_mean(noise, d) / (predict.nonadaptive_pull(d) * gap) ** 2

    def nonadaptive_pull(d):
        """The factor of Sigma in E[A^T A Sigma A^T A] for Haar planes, about 6/d^2; for Algorithm 1 it is 1/(d-1)."""
        return (6 * d - 4) / (d * (d - 1) * (d + 2))

    def lower_bounds(d, lam1, lam2):
        """Bounds on lim t E e_t: (whole samples, two adaptive numbers, two numbers through a Haar plane)."""
        whole = lam1 * lam2 * (d - 1) / (lam1 - lam2) ** 2
        haar_information = _haar_mean(lambda x: fisher_trace_formula(x, lam1, lam2), d)
        return whole, 8 / 9 * (d - 1) * whole, (d - 1) ** 2 / haar_information

    def steady_error(eta, d, lam1, lam2, drift=0.0):
        """Constant step, ubar moving with variance `drift` per sample: variance injected / rate of contraction."""
        return (eta**2 * lam1 * lam2 + drift) * (d - 1) / (2 * eta * (lam1 - lam2))

    def hitting_time(c0, eta, d, gap, eps):
        """From 1 - c0^2 to eps by the logistic law de/dt = -2 eta gap e (1-e)/(d-1)."""
        return (d - 1) / (2 * eta * gap) * (np.log((1 - c0**2) / c0**2) + np.log((1 - eps) / eps))


# %% [markdown]
# ## One run

# %%
if __name__ == "__main__":
    rng = np.random.default_rng(seed)
    sensor, schedule = AdaptiveSensor(SpikedGaussian(8, 2.0, 1.0, rng)), schedules.paper(2.0, 1.0, 8)
    trace = compressed_oja(sensor, uniform_directions(50, 8, rng), 8000, schedule, [0, 1000, 3462, 8000], rng)
    for t, cos2 in zip(trace.t, trace.cos2, strict=True):
        print(f"after {t:5d} samples: median sin^2 = {1 - np.median(cos2):.4f}")
    print(f"numbers read of each sample: {sensor.readings / 8000:g} of 8")
