"""Statistics for checks: slopes, means, probabilities, each with an interval.

For angles between subspaces use `scipy.linalg.subspace_angles`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Estimate:
    """A value with an interval (low, high) and, where it has one, a standard error; arrays are allowed."""

    value: float
    low: float
    high: float
    se: float = math.nan

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high


@dataclass(frozen=True)
class Fit:
    """The power law exp(intercept) x^slope with an interval of the slope."""

    slope: float
    interval: tuple[float, float]
    intercept: float
    se: float = math.nan

    def predict(self, x) -> np.ndarray:
        """The fitted y at x, any shape."""
        return np.exp(self.intercept) * np.asarray(x, dtype=float) ** self.slope


def loglog_slope(x, y, *, rng=None, axis_seeds: int = 0, level: float = 0.95, n_boot: int = 1000) -> Fit:
    """Slope b of log y = a + b log x by least squares.

    x: (m,) positive.
    y: (seeds, m) (or (m, seeds) with axis_seeds=1): the slope of the log of the *mean* over seeds, since a rate of
    an expectation isn't the mean of rates. The interval is slope +- t * se with se the bootstrap standard error over
    seeds and t of Student's law with seeds - 1 degrees of freedom: percentiles of the bootstrap are too narrow for the
    few seeds that we use. It covers the noise of the seeds, not a lack of fit.
    y: (m,): the usual t-interval of least squares, from the scatter about the line.
    rng: numpy Generator for the bootstrap; None: a fixed one.

    Raises ValueError for shapes that don't match, values that aren't positive and finite, or too few points or seeds.
    """
    _check_level(level)
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if y.ndim == 2 and axis_seeds in (1, -1):
        y = y.T
    elif axis_seeds not in (0, 1, -1):
        raise ValueError(f"axis_seeds={axis_seeds!r}: must be 0 or 1")
    if x.ndim != 1 or y.ndim not in (1, 2) or y.shape[-1] != len(x):
        raise ValueError(f"y has shape {y.shape}: must be (seeds, m) or (m,) for x of shape {x.shape}")
    least = 3 if y.ndim == 1 else 2
    if len(np.unique(x)) < least:
        raise ValueError(f"x={x}: must have at least {least} different values")
    _check_finite("x", x)
    _check_finite("y", y)
    mean = y if y.ndim == 1 else y.mean(0)
    for name, values in (("x", x), ("y (its mean over seeds)", mean)):
        if not (values > 0).all():
            raise ValueError(f"{name} has minimum {values.min()}: must be positive to take logarithms")

    if y.ndim == 1:
        line = stats.linregress(np.log(x), np.log(y))
        half = stats.t.ppf((1 + level) / 2, len(x) - 2) * line.stderr
        return Fit(line.slope, (line.slope - half, line.slope + half), line.intercept, line.stderr)

    seeds = len(y)
    if seeds < 2:
        raise ValueError(f"y has {seeds} seed: must have at least 2 for an interval over seeds")
    log_x = np.log(x) - np.log(x).mean()
    slope = log_x @ np.log(mean) / (log_x @ log_x)
    rng = np.random.default_rng(0) if rng is None else rng
    # how often each seed is drawn: (n_boot, seeds), so that all resampled means are one product
    counts = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=n_boot)
    means = counts @ y / seeds
    if not (means > 0).all():
        raise ValueError(f"y has minimum {y.min()}: must be positive in every seed to take logarithms")
    # a resample of n values has variance (n - 1)/n of what new data would have
    se = (np.log(means) @ log_x / (log_x @ log_x)).std() * math.sqrt(seeds / (seeds - 1))
    half = stats.t.ppf((1 + level) / 2, seeds - 1) * se
    intercept = np.log(mean).mean() - slope * np.log(x).mean()
    return Fit(float(slope), (float(slope - half), float(slope + half)), float(intercept), float(se))


def mean_interval(samples, level: float = 0.95) -> Estimate:
    """Mean of independent replicates (n, ...) over the first axis with Student's t-interval."""
    _check_level(level)
    samples = np.asarray(samples, dtype=float)
    if samples.ndim < 1 or len(samples) < 2:
        raise ValueError(f"samples has shape {samples.shape}: must have at least 2 replicates along the first axis")
    _check_finite("samples", samples)
    n = len(samples)
    value, se = samples.mean(0), samples.std(0, ddof=1) / math.sqrt(n)
    half = stats.t.ppf((1 + level) / 2, n - 1) * se
    return Estimate(*map(_scalar, (value, value - half, value + half, se)))


def paired_difference(a, b, level: float = 0.95) -> Estimate:
    """Mean of a - b over pairs (the same seed, the same data): (n, ...) each, with Student's t-interval."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a.shape != b.shape:
        raise ValueError(f"b has shape {b.shape}: must be that of a, {a.shape}, to form pairs")
    return mean_interval(a - b, level)


def binomial_interval(k, n, level: float = 0.95) -> Estimate:
    """Probability from k successes in n independent trials with the exact interval of Clopper and Pearson (1934).

    k, n: integers or arrays of them, 0 <= k <= n, n >= 1.
    """
    _check_level(level)
    k, n = np.broadcast_arrays(k, n)
    if not ((k == np.round(k)) & (n == np.round(n)) & (k >= 0) & (k <= n) & (n >= 1)).all():
        raise ValueError(f"k={k}, n={n}: must be integers with 0 <= k <= n and n >= 1")
    tail = (1 - level) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(k == 0, 0.0, stats.beta.ppf(tail, k, n - k + 1))
        high = np.where(k == n, 1.0, stats.beta.ppf(1 - tail, k + 1, n - k))
    p = k / n
    return Estimate(*map(_scalar, (p, low, high, np.sqrt(p * (1 - p) / n))))


def bootstrap(
    samples, statistic: Callable[[np.ndarray], float], rng, level: float = 0.95, n_boot: int = 1000
) -> Estimate:
    """`statistic(samples)` with the bias-corrected and accelerated bootstrap interval (Efron 1987), or where that isn't
    defined (a statistic that hardly varies) the percentile interval.

    samples: (n, ...), replicates along the first axis, which are drawn whole; n of 20 or more, or it is too narrow.
    statistic: from such an array to a number.  rng: numpy Generator.
    """
    _check_level(level)
    samples = np.asarray(samples)
    if samples.ndim < 1 or len(samples) < 2:
        raise ValueError(f"samples has shape {samples.shape}: must have at least 2 replicates along the first axis")
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        result = stats.bootstrap(  # of row numbers, so that rows stay whole
            (np.arange(len(samples)),),
            lambda rows: float(statistic(samples[rows.astype(int)])),
            n_resamples=n_boot,
            vectorized=False,
            confidence_level=level,
            method="BCa",
            rng=rng,
        )
    low, high = result.confidence_interval
    if not (math.isfinite(low) and math.isfinite(high)):  # all resamples agree, or all lie on one side of the value
        low, high = np.quantile(result.bootstrap_distribution, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(statistic(samples)), float(low), float(high), float(result.standard_error))


def _scalar(x):
    return float(x) if np.ndim(x) == 0 else np.asarray(x)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level={level}: must be between 0 and 1")


def _check_finite(name: str, values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has {np.count_nonzero(~np.isfinite(values))} values that aren't finite")
