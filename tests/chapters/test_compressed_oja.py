"""Oracles for the chapter compressed_oja: measurement budget, symmetries, exact identities, closed forms."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import beta, ks_2samp, kstest, special_ortho_group

from companion.testing import load_method, load_notebook

method = load_method("compressed_oja")
predict, schedules = method.predict, method.schedules
CONSTANT = schedules.constant(0.05)


def generator(seed=0):
    return np.random.default_rng(seed)


class RecordingSensor(method.AdaptiveSensor):
    """Keeps every measurement matrix that it was asked for."""

    def __init__(self, stream):
        super().__init__(stream)
        self.planes = []

    def measure(self, A):
        self.planes.append(np.stack(A, axis=1))
        return super().measure(A)


def spiked_sensor(d, seed=0, lam1=2.0, lam2=1.0):
    return RecordingSensor(method.SpikedGaussian(d, lam1, lam2, generator(seed)))


# --- the algorithm and its budget


@pytest.mark.parametrize("oja", [method.compressed_oja, method.nonadaptive_oja])
def test_two_orthonormal_measurements_a_step(oja):
    sensor, u0 = spiked_sensor(7), method.uniform_directions(5, 7, generator(1))
    trace = oja(sensor, u0, 40, CONSTANT, [0, 40], generator(2))
    planes = np.array(sensor.planes)
    assert sensor.readings == 2 * 40 and planes.shape == (40, 5, 2, 7)
    np.testing.assert_allclose(planes @ planes.swapaxes(2, 3), np.broadcast_to(np.eye(2), (40, 5, 2, 2)), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(trace.u, axis=1), 1, atol=1e-14)
    np.testing.assert_allclose(trace.cos2[0], u0[:, 0] ** 2, atol=1e-15)


def test_first_measurement_is_the_estimate_and_the_second_is_uniform_across_it():
    sensor, u0 = spiked_sensor(4), np.tile([[0.6, 0.8, 0.0, 0.0]], (4000, 1))
    method.compressed_oja(sensor, u0, 1, CONSTANT, [1], generator(2))
    exploit, explore = sensor.planes[0].transpose(1, 0, 2)
    np.testing.assert_array_equal(exploit, u0)
    # one coordinate of a uniform direction in three dimensions is uniform on [-1, 1]
    assert kstest(explore[:, 2], "uniform", args=(-1, 2)).pvalue > 1e-3
    assert kstest(explore @ [0.8, -0.6, 0, 0], "uniform", args=(-1, 2)).pvalue > 1e-3


def test_a_third_measurement_is_refused_before_a_sample_is_drawn():
    sensor = spiked_sensor(4)
    with pytest.raises(RuntimeError, match="budget is 2"):
        sensor.measure((np.ones((1, 4)),) * 3)
    assert sensor.readings == 0


def test_one_step_is_algorithm_1():
    u, b, v, eta = np.array([[1.0, 0, 0]]), np.array([[0, 0.6, 0.8]]), np.array([[2.0, -1.0, 3.0]]), 0.1

    class One:
        leading, array = np.eye(3)[0], staticmethod(np.asarray)

        def sample(self, n):
            return v

    g, h = 2.0, -0.6 + 2.4
    expected = np.array([1 + eta * g * g, eta * g * h * 0.6, eta * g * h * 0.8])
    trace = method.compressed_oja(
        method.AdaptiveSensor(One()), u, 1, schedules.constant(eta), [1], None, explore=lambda u, rng: b
    )
    np.testing.assert_allclose(trace.u[0], expected / np.linalg.norm(expected), atol=1e-15)
    whole = method.full_oja(One(), u, 1, schedules.constant(eta), [1])
    expected = u[0] + eta * 2.0 * v[0]
    np.testing.assert_allclose(whole.u[0], expected / np.linalg.norm(expected), atol=1e-15)


def test_in_two_dimensions_two_numbers_are_the_whole_sample():
    u0 = method.uniform_directions(6, 2, generator(1))
    two = method.compressed_oja(spiked_sensor(2, seed=5), u0, 200, CONSTANT, [200], generator(2))
    whole = method.full_oja(method.SpikedGaussian(2, 2.0, 1.0, generator(5)), u0, 200, CONSTANT, [200])
    np.testing.assert_allclose(two.u, whole.u, atol=1e-12)


def test_rotating_the_problem_rotates_the_trace():
    d, eigvals = 5, [3.0, 1.0, 0.5, 0.2, 0.1]
    turn = special_ortho_group.rvs(d, random_state=1)
    u0 = method.uniform_directions(4, d, generator(1))
    still = method.AdaptiveSensor(method.GaussianStream(eigvals, rng=generator(3)))
    turned = method.AdaptiveSensor(method.GaussianStream(eigvals, turn, rng=generator(3)))

    def explore(u, rng):
        return method.orthogonal_direction(u @ turn, rng) @ turn.T

    a = method.compressed_oja(still, u0, 100, CONSTANT, [50, 100], generator(4))
    b = method.compressed_oja(turned, u0 @ turn.T, 100, CONSTANT, [50, 100], generator(4), explore=explore)
    np.testing.assert_allclose(b.u, a.u @ turn.T, atol=1e-11)
    np.testing.assert_allclose(b.cos2, a.cos2, atol=1e-11)


def test_the_error_does_not_see_the_sign():
    u0 = method.uniform_directions(4, 5, generator(1))
    # -u has the complement of u, so the same draws give the same b
    plus, minus = (method.compressed_oja(spiked_sensor(5), s * u0, 60, CONSTANT, [60], generator(4)) for s in (1, -1))
    np.testing.assert_allclose(minus.u, -plus.u, atol=1e-12)
    np.testing.assert_allclose(minus.cos2, plus.cos2, atol=1e-12)


def test_without_noise_greedy_grouse_never_loses_alignment():
    u0 = method.uniform_directions(50, 6, generator(1))
    sensor = spiked_sensor(6, lam2=0.0)
    trace = method.grouse_adaptive(sensor, u0, 40, range(41), generator(2))
    # without noise v is along ubar, and the greedy step moves all the way to its projection on the plane
    projection = np.sum(np.array(sensor.planes)[..., 0] ** 2, axis=2)
    np.testing.assert_allclose(trace.cos2[1:], projection, atol=1e-6)
    assert (np.diff(trace.cos2, axis=0) > -1e-9).all() and np.median(trace.cos2[-1]) > 0.99


def test_data_stream_is_centred_and_knows_the_principal_component():
    from sklearn.datasets import load_wine
    from sklearn.decomposition import PCA

    X = load_wine().data
    stream = method.DataStream(X, generator())
    pca = PCA(3, svd_solver="full").fit(X)
    assert abs(pca.components_[0] @ stream.leading) == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(stream.eigvals[:3], pca.explained_variance_ * (len(X) - 1) / len(X), rtol=1e-9)
    rows = stream.sample(1000)
    np.testing.assert_allclose(stream.X.mean(0), 0, atol=1e-9)
    assert {tuple(r) for r in rows} <= {tuple(r) for r in stream.X}


@pytest.mark.parametrize("name", ["compressed_oja", "full_oja", "nonadaptive_oja"])
def test_the_algorithms_run_in_torch(name):
    def run(normals, steps=200):
        stream, u0 = method.SpikedGaussian(6, 3.0, 1.0, normals), method.start_near(0.3, 6, 600, generator(1))
        arguments = u0, steps, schedules.constant(0.03), [steps // 4, steps]
        if name == "full_oja":
            return method.full_oja(stream, *arguments)
        return getattr(method, name)(method.AdaptiveSensor(stream), *arguments, normals)

    there = run(method.TorchNormals(torch.Generator().manual_seed(1)))
    here = run(generator(2))
    assert there.u.dtype == torch.float32 and there.cos2.dtype == np.float64
    for a, b in zip(there.cos2, here.cos2, strict=True):
        assert ks_2samp(a, b).pvalue > 1e-3


# --- the chains


@pytest.mark.parametrize(("sensing", "d"), [("adaptive", 2), ("adaptive", 5), ("random", 4), ("random", 7)])
def test_chain_has_the_law_of_the_vector_algorithm(sensing, d):
    oja = method.compressed_oja if sensing == "adaptive" else method.nonadaptive_oja
    record, trials = [3, 30, 150], 1500
    vectors = oja(
        spiked_sensor(d, 1), method.start_near(0.3, d, trials, generator(2)), 150, CONSTANT, record, generator(3)
    )
    c0 = np.full(trials, np.sqrt(0.3))
    chain = method.scalar_chain(c0, d, 2.0, 1.0, CONSTANT, 150, record, generator(4), sensing=sensing)
    for a, b in zip(vectors.cos2, chain.c**2, strict=True):
        assert ks_2samp(a, b).pvalue > 1e-3
    np.testing.assert_allclose(chain.c**2 + chain.sin2, 1, atol=1e-12)


def test_chain_with_a_moving_target_has_the_law_of_the_vectors():
    d, V, trials, rng = 5, 0.02, 2000, generator(1)
    u, ubar = method.start_near(0.9, d, trials, rng), np.tile(np.eye(d)[0], (trials, 1))
    for _ in range(30):
        v = ubar * rng.standard_normal((trials, 1)) + rng.standard_normal((trials, d))
        b = method.orthogonal_direction(u, rng)
        g, h = method.dot(u, v), method.dot(b, v)
        u = method.normalise(u + 0.05 * (u * g + b * h) * g)
        step = rng.standard_normal((trials, d)) * np.sqrt(V / (d - 1))
        ubar = method.normalise(ubar + step - method.dot(step, ubar) * ubar)
    c0 = np.full(trials, np.sqrt(0.9))
    chain = method.scalar_chain(c0, d, 2.0, 1.0, CONSTANT, 30, [30], generator(2), drift=V)
    assert ks_2samp(method.dot(u, ubar)[:, 0] ** 2, chain.c[0] ** 2).pvalue > 1e-3


def test_without_noise_the_chain_keeps_errors_far_below_rounding():
    chain = method.scalar_chain(np.full(200, 0.5), 4, 2.0, 0.0, schedules.constant(0.5), 1000, [500, 1000], generator())
    assert np.median(chain.sin2[1]) < 1e-40 and np.median(chain.sin2[1]) < np.median(chain.sin2[0]) ** 1.5


def test_exploit_only_stays_where_it_is():
    chain = method.scalar_chain(np.full(5, 0.3), 6, 2.0, 1.0, CONSTANT, 300, [300], generator(), gain=0.0)
    np.testing.assert_allclose(chain.c, 0.3, atol=1e-12)


def test_chain_does_not_depend_on_the_block_or_on_the_recorded_times():
    args = np.full(3, 0.5), 6, 2.0, 1.0, CONSTANT, 600
    every = method.scalar_chain(*args, range(1, 601), generator())
    some = method.scalar_chain(*args, [1, 256, 257, 600], generator())
    np.testing.assert_array_equal(some.c, every.c[[0, 255, 256, 599]])


def test_compiled_and_plain_chains_agree_to_the_last_bit():
    pytest.importorskip("numba")
    rng = generator()
    c, normals, chi2 = rng.uniform(0.1, 0.9, 50), rng.standard_normal((20, 5, 50)), rng.chisquare(3, (20, 3, 50))
    arguments = np.sqrt(1 - c * c), np.full((20, 1), 0.05), normals, chi2, (1.0, 1.0, 1.0, 0.01)
    compiled, plain = np.empty((2, 20, 50)), np.empty((2, 20, 50))
    method._compiled(method._advance)(method._compiled(method._adaptive_step), c, *arguments, *compiled)
    method._advance(method._adaptive_step, c, *arguments, *plain)
    np.testing.assert_array_equal(compiled, plain)


def test_hitting_time_is_the_first_time_below_the_level():
    c0, d, eta, eps = np.linspace(0.1, 0.5, 8), 6, 0.02, 0.2
    times = method.hitting_time_chain(d, 3.0, 1.0, eta, eps, 8, 7, 5000, c0=c0)
    path = method.scalar_chain(c0, d, 3.0, 1.0, schedules.constant(eta), 5000, range(1, 5001), generator(7))
    first = np.argmax(path.sin2 <= eps, axis=0) + 1
    np.testing.assert_array_equal(times, first)
    np.testing.assert_array_equal(method.hitting_time_chain(d, 3.0, 1.0, eta, 1e-9, 4, 7, 300), -1)


# --- step sizes


def test_paper_schedule_has_its_two_phases():
    schedule = schedules.paper(3.0, 1.0, 12)
    S = 3 * 3 * 144 / 4 + 15 * 3 * 12 / 2
    assert pytest.approx(S) == schedule.S and schedule.warmup == int(np.ceil((4 * S + 1) * np.log(6)))
    assert schedule(0) == schedule(schedule.warmup) == pytest.approx(11 / (2 * S * 2))
    assert schedule(schedule.warmup + 1000) == pytest.approx(2 * 11 / (2 * (4 * S + 1000)))
    assert schedules.inverse_t(2, 12, 2.0, 50)(10) == pytest.approx(2 * 11 / (2 * 60))


def test_estimated_schedule_finds_the_step_of_the_oracle():
    d, t, schedule, rng = 6, 20_000, schedules.estimated(6), generator()
    for _ in range(t):
        schedule.observe(rng.standard_normal(4) * np.sqrt(3), rng.standard_normal(4))
    oracle = schedules.inverse_t(2, d, 2.0, 4 * 3 * 25 / 4)(t)
    np.testing.assert_allclose(schedule(t), oracle, rtol=0.2)


# --- predictions


def test_closed_forms_in_the_spiked_model():
    d, lam1, lam2 = 8, 2.0, 1.0
    eigvals, unit = method.spiked(d, lam1, lam2), lam1 * lam2 * (d - 1)
    assert predict.adaptive(eigvals, 2) == pytest.approx(4 / 3 * unit * (d - 1))
    assert predict.adaptive(eigvals, 1) == pytest.approx(unit * (d - 1))
    assert predict.full(eigvals, 2) == pytest.approx(4 / 3 * unit)
    whole, adaptive, haar = predict.lower_bounds(d, lam1, lam2)
    assert (whole, adaptive) == pytest.approx((unit, 8 / 9 * unit * (d - 1)))
    density = beta(1, (d - 2) / 2).pdf
    information = quad(lambda x: density(x) * method.fisher_trace_formula(x, lam1, lam2), 0, 1)[0]
    assert haar == pytest.approx((d - 1) ** 2 / information, rel=1e-7)
    assert predict.lower_bounds(4096, lam1, lam2)[2] / 4096**3 == pytest.approx(1 / 6, rel=0.02)
    assert predict.nonadaptive(4096, lam1, lam2) / 4096**3 == pytest.approx(2 / 9, rel=0.02)


def test_general_prediction_from_monte_carlo_of_one_step():
    eigvals, rng, n = np.array([3, 1, 0.5, 0.2]), generator(), 400_000
    v = rng.standard_normal((n, 4)) * np.sqrt(eigvals)
    b = method.uniform_directions(n, 3, rng)  # u = ubar = e_1
    noise = np.mean((v[:, :1] * method.dot(b, v[:, 1:]) * b) ** 2, axis=0)
    moments = np.mean(v[:, :1] ** 2 * (2 * v[:, 1:] ** 2 + np.sum(v[:, 1:] ** 2, 1, keepdims=True)), 0)
    np.testing.assert_allclose(noise, moments / 15, rtol=0.03)
    gaps = 3 - eigvals[1:]
    expected = np.sum(4 / (4 * gaps / 2 - 1) * noise) * 9 / 4
    assert predict.adaptive(eigvals, 2) == pytest.approx(expected, rel=0.03)
    assert predict.adaptive(eigvals, 2, moments) == pytest.approx(expected, rel=0.03)
    assert predict.full(eigvals, 2) == pytest.approx(np.sum(4 / (4 * gaps / 2 - 1) * 3 * eigvals[1:]) / 4)


def test_random_planes_from_monte_carlo_of_one_step():
    d, n, rng = 6, 400_000, generator()
    seen = method._see_random_plane(method.AdaptiveSensor(method.SpikedGaussian(d, 2.0, 1.0, rng)), n, d, rng)
    second_moments = seen.T @ seen / n
    pull = (second_moments[0, 0] - np.trace(second_moments[1:, 1:]) / (d - 1)) / 1.0
    assert predict.nonadaptive_pull(d) == pytest.approx(pull, rel=0.03)
    noise = np.mean(seen[:, 0] ** 2 * np.sum(seen[:, 1:] ** 2, 1))
    assert predict.nonadaptive(d, 2.0, 1.0) == pytest.approx(noise / predict.nonadaptive_pull(d) ** 2, rel=0.03)
    assert predict.nonadaptive(d, 2.0, 1.0, 2) == pytest.approx(4 / 3 * predict.nonadaptive(d, 2.0, 1.0))


def test_moment_estimator_reaches_its_prediction():
    d, n, rng = 6, 4000, generator(3)
    sensor = method.AdaptiveSensor(method.SpikedGaussian(d, 2.0, 0.5, rng))
    errors = [1 - method.nonadaptive_moment(sensor, d, n, rng)[0] ** 2 for _ in range(150)]
    assert n * np.mean(errors) == pytest.approx(predict.nonadaptive(d, 2.0, 0.5), rel=0.2)
    assert sensor.readings == 2 * 2 * 150  # two blocks of samples each time


def test_steady_error_and_hitting_time():
    etas = np.geomspace(1e-5, 1e-1, 4001)
    errors = predict.steady_error(etas, 16, 2.0, 1.0, 1e-6)
    assert etas[errors.argmin()] == pytest.approx(np.sqrt(1e-6 / 2), rel=5e-3)
    assert errors.min() == pytest.approx(np.sqrt(2e-6) * 15, rel=1e-5)
    assert predict.steady_error(0.01, 16, 2.0, 1.0) == pytest.approx(0.15)
    # the logistic law, integrated
    e, t, rate = 1 - 0.2**2, 0, 2 * 0.01 * 2 / 5
    while e > 0.05:
        e, t = e - 0.01 * rate * e * (1 - e), t + 0.01
    assert predict.hitting_time(0.2, 0.01, 6, 2.0, 0.05) == pytest.approx(t, rel=1e-3)


def test_fisher_information_of_any_rows():
    rng = generator()
    for _ in range(20):
        d, (small, big) = int(rng.integers(3, 9)), np.sort(rng.uniform(0.2, 4, 2))
        A, ubar = np.linalg.qr(rng.standard_normal((d, 2)))[0].T, method.uniform_directions(1, d, rng)[0]
        exact = method.fisher_trace(A, ubar, big, small)
        formula = method.fisher_trace_formula(np.sum((A @ ubar) ** 2), big, small)
        assert formula == pytest.approx(exact, rel=1e-10)
        # an invertible map of the two numbers keeps their information
        assert method.fisher_trace(rng.standard_normal((2, 2)) @ A, ubar, big, small) == pytest.approx(exact, rel=1e-8)
        assert formula <= 9 / 8 * (big - small) ** 2 / (big * small) * (1 + 1e-12)


def test_fisher_trace_is_the_variance_of_the_score():
    A, theta, h = np.eye(3)[:2], 0.4, 1e-5
    x = generator().standard_normal((200_000, 2))

    def covariance(angle, w):
        ubar = np.cos(angle) * u + np.sin(angle) * w
        return A @ (np.eye(3) + np.outer(ubar, ubar)) @ A.T

    def log_density(S, y):
        return -0.5 * np.einsum("ni,ij,nj->n", y, np.linalg.inv(S), y) - 0.5 * np.log(np.linalg.det(S))

    u = np.array([np.cos(theta), 0, np.sin(theta)])
    y, total = x @ np.linalg.cholesky(covariance(0, u)).T, 0
    for w in (np.array([-np.sin(theta), 0, np.cos(theta)]), np.array([0.0, 1, 0])):
        total += np.var((log_density(covariance(h, w), y) - log_density(covariance(-h, w), y)) / (2 * h))
    assert method.fisher_trace(A, u, 2.0, 1.0) == pytest.approx(total, rel=0.02)


# --- bad input

U0 = np.eye(4)[:2]


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: method.SpikedGaussian(1, 2.0, 1.0, generator()), "d is 1"),
        (lambda: method.SpikedGaussian(4, 1.0, 1.0, generator()), "lam1 > lam2"),
        (lambda: method.SpikedGaussian(4, 1.0, -0.5, generator()), "eigvals.*not negative"),
        (lambda: method.GaussianStream([2.0, np.nan], rng=generator()), "eigvals.*finite"),
        (lambda: method.DataStream([[1.0, np.nan], [0.0, 1.0]], generator()), "X is"),
        (lambda: schedules.constant(0.0), "eta is 0"),
        (lambda: schedules.inverse_t(2, 4, -1.0, 5), "a, gap, t0"),
        (lambda: schedules.paper(1.0, 2.0, 4), "lam1 > lam2"),
        (lambda: method.compressed_oja(spiked_sensor(4), 0 * U0, 3, CONSTANT, [3], generator()), "u0"),
        (lambda: method.compressed_oja(spiked_sensor(4), 2 * U0, 3, CONSTANT, [3], generator()), "u0"),
        (lambda: method.compressed_oja(spiked_sensor(4), U0 * np.nan, 3, CONSTANT, [3], generator()), "u0"),
        (lambda: method.compressed_oja(spiked_sensor(4), U0, 3, CONSTANT, [4], generator()), "record"),
        (lambda: method.compressed_oja(spiked_sensor(4), U0, 3, lambda t: -1.0, [3], generator()), "eta is"),
        (lambda: method.scalar_chain([0.1], 1, 2.0, 1.0, CONSTANT, 3, [3], generator()), "d is 1"),
        (lambda: method.scalar_chain([1.1], 4, 2.0, 1.0, CONSTANT, 3, [3], generator()), "c0"),
        (lambda: method.scalar_chain([0.1], 4, 1.0, 2.0, CONSTANT, 3, [3], generator()), "lam1 > lam2"),
        (lambda: method.scalar_chain([0.1], 4, 2.0, 1.0, lambda t: 0.0, 3, [3], generator()), "eta is 0"),
        (lambda: method.scalar_chain([0.1], 4, 2.0, 1.0, CONSTANT, 3, [0], generator()), "record"),
        (lambda: method.scalar_chain([0.1], 3, 2.0, 1.0, CONSTANT, 3, [3], generator(), sensing="random"), "d is 3"),
        (lambda: method.hitting_time_chain(4, 2.0, 1.0, 0.1, 1.5, 2, 0, 9), "eps is 1.5"),
        (lambda: predict.adaptive([2.0, 1.0], 0.5), "a is 0.5"),
    ],
)
def test_bad_input_is_named(call, names):
    with pytest.raises(ValueError, match=names):
        call()


# --- the notebooks' path for a GPU, with small sizes on a CPU


def test_theory_runs_its_torch_path_on_a_cpu(capsys):
    from companion.run import ClaimsFailed

    sizes = {"dims": [4], "trials": 40, "local_trials": 300, "moment_trials": 4}
    namespace = None
    try:
        namespace = load_notebook("compressed_oja/theory", preset="gpu", device="cpu", engine="torch", **sizes)
    except ClaimsFailed as failed:  # the other sections are too small here to judge anything
        assert "sharp-constant" not in str(failed) and "rate-t" not in str(failed)
    text = capsys.readouterr().out
    assert "HOLDS rate-t" in text and "HOLDS sharp-constant" in text, namespace
