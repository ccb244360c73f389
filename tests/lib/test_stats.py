"""Intervals against scipy's independent routines and against their own promise: how often they cover the truth."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from companion.stats import binomial_interval, bootstrap, loglog_slope, mean_interval, paired_difference

X = np.array([10.0, 30.0, 100.0, 300.0, 1000.0])


def noisy_power_law(rng, seeds, slope=-1.0, noise=0.5):
    """(seeds, 5) with mean 3 x^slope: log-normal noise of mean 1."""
    return 3 * X**slope * np.exp(noise * rng.standard_normal((seeds, len(X))) - noise**2 / 2)


def test_exact_power_law():
    for y in (3 * X**-1.5, np.tile(3 * X**-1.5, (4, 1))):
        fit = loglog_slope(X, y)
        assert fit.slope == pytest.approx(-1.5, abs=1e-12)
        assert fit.interval == pytest.approx((-1.5, -1.5), abs=1e-9)
        np.testing.assert_allclose(fit.predict(X), 3 * X**-1.5, rtol=1e-12)


@pytest.mark.parametrize("seeds", [3, 5, 20])
def test_slope_interval_covers_the_truth(seeds):
    rng = np.random.default_rng(seeds)
    trials, covered, wrong = 400, 0, 0
    for _ in range(trials):
        low, high = loglog_slope(X, noisy_power_law(rng, seeds), rng=rng, n_boot=200).interval
        covered += low <= -1 <= high
        wrong += low <= -1.5 <= high
    assert 0.91 < covered / trials < 0.985  # 95 % within 4 standard errors
    assert wrong / trials < (0.6 if seeds == 3 else 0.02)  # and it isn't merely wide


def test_slope_is_of_the_mean_over_seeds():
    y = noisy_power_law(np.random.default_rng(0), 7)
    fit = loglog_slope(X, y)
    expected = np.polyfit(np.log(X), np.log(y.mean(0)), 1)
    assert (fit.slope, fit.intercept) == pytest.approx(tuple(expected), abs=1e-12)
    assert loglog_slope(X, y.T, axis_seeds=1) == fit
    assert loglog_slope(X, y) == fit  # without a generator it is deterministic


def test_one_dimensional_slope_has_the_interval_of_least_squares():
    y = noisy_power_law(np.random.default_rng(1), 1)[0]
    design = np.stack([np.ones(5), np.log(X)], 1)
    coefficients, rss, *_ = np.linalg.lstsq(design, np.log(y))
    se = np.sqrt(rss[0] / 3 * np.linalg.inv(design.T @ design)[1, 1])
    fit = loglog_slope(X, y, level=0.9)
    half = scipy_stats.t.ppf(0.95, 3) * se
    assert fit.interval == pytest.approx((coefficients[1] - half, coefficients[1] + half))


@pytest.mark.parametrize(
    "x,y,options,message",
    [
        (X, np.ones((3, 4)), {}, "y has shape"),
        (X, -np.ones(5), {}, "must be positive"),
        (X - 10, np.ones(5), {}, "x has minimum"),
        (X, np.ones((1, 5)), {}, "1 seed"),
        (X[:2], np.ones(2), {}, "at least 3"),
        (X, np.full(5, np.nan), {}, "finite"),
        (X, np.ones(5), {"level": 95}, "level=95"),
        (X, np.ones((3, 5)), {"axis_seeds": 2}, "axis_seeds=2"),
    ],
)
def test_bad_input_of_slopes(x, y, options, message):
    with pytest.raises(ValueError, match=message):
        loglog_slope(x, y, **options)


def test_mean_interval_is_that_of_the_t_test():
    samples = np.random.default_rng(0).normal(1, 2, 9)
    estimate = mean_interval(samples, 0.9)
    peer = scipy_stats.ttest_1samp(samples, 0).confidence_interval(0.9)
    assert estimate.interval == pytest.approx((peer.low, peer.high))
    assert estimate.value == pytest.approx(samples.mean()) and estimate.se == pytest.approx(scipy_stats.sem(samples))
    columns = mean_interval(np.stack([samples, 2 * samples], 1))
    assert columns.value.shape == (2,) and columns.high[1] == pytest.approx(2 * columns.high[0])


def test_pairs_remove_what_they_share():
    rng = np.random.default_rng(0)
    shared = 10 * rng.standard_normal(8)
    a, b = shared + 1 + 0.1 * rng.standard_normal(8), shared + 0.1 * rng.standard_normal(8)
    paired = paired_difference(a, b)
    peer = scipy_stats.ttest_rel(a, b).confidence_interval()
    assert paired.interval == pytest.approx((peer.low, peer.high)) and paired.low > 0.8
    with pytest.raises(ValueError, match="b has shape"):
        paired_difference(a, b[:5])
    with pytest.raises(ValueError, match="at least 2"):
        mean_interval([1.0])
    with pytest.raises(ValueError, match="finite"):
        mean_interval([1.0, np.inf])


@pytest.mark.parametrize("k,n", [(0, 10), (10, 10), (3, 10), (1, 1000), (497, 1000)])
def test_binomial_interval_is_exact(k, n):
    estimate = binomial_interval(k, n)
    peer = scipy_stats.binomtest(k, n).proportion_ci(method="exact")
    assert estimate.interval == pytest.approx((peer.low, peer.high), abs=1e-9) and estimate.value == k / n
    if 0 < k < n:  # at its ends the observed count is just as improbable as allowed
        assert scipy_stats.binom.sf(k - 1, n, estimate.low) == pytest.approx(0.025)
        assert scipy_stats.binom.cdf(k, n, estimate.high) == pytest.approx(0.025)


def test_binomial_interval_of_arrays_and_bad_input():
    estimate = binomial_interval(np.array([0, 5]), 10, level=0.99)
    assert estimate.low.shape == (2,) and estimate.high[1] == pytest.approx(binomial_interval(5, 10, 0.99).high)
    for k, n in ((11, 10), (-1, 10), (0.5, 10), (0, 0)):
        with pytest.raises(ValueError, match="0 <= k <= n"):
            binomial_interval(k, n)


def test_bootstrap_interval_covers_the_truth():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(150):
        estimate = bootstrap(rng.exponential(size=40), np.mean, rng, n_boot=300)
        covered += estimate.low <= 1 <= estimate.high
    assert 0.87 < covered / 150 <= 1


def test_bootstrap_draws_whole_rows():
    rows = np.random.default_rng(0).standard_normal((50, 1)) * [1.0, 2.0]
    estimate = bootstrap(rows, lambda r: r[:, 1].std() / r[:, 0].std(), np.random.default_rng(1), n_boot=100)
    assert estimate.interval == pytest.approx((2.0, 2.0))
    again = [bootstrap(rows, np.mean, np.random.default_rng(1), n_boot=100) for _ in range(2)]
    assert again[0] == again[1]
    same = bootstrap(np.ones(5), np.mean, np.random.default_rng(1))
    assert same.interval == (1, 1) and same.se == 0
    with pytest.raises(ValueError, match="at least 2"):
        bootstrap([1.0], np.mean, np.random.default_rng(0))
