"""What figures hold and what `show` hands to a notebook."""

import subprocess
import sys
from base64 import b64decode

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from companion import plotting
from companion.stats import Estimate, loglog_slope, mean_interval

X = np.array([1.0, 10.0, 100.0])
Y = np.random.default_rng(0).uniform(0.5, 2, (5, 3)) / X


@pytest.fixture
def ax():
    fig, ax = plt.subplots()
    yield ax
    plt.close(fig)


@pytest.fixture
def displayed(monkeypatch):
    shown = []
    monkeypatch.setattr(plotting, "in_kernel", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda *args, **kwargs: shown.append((args, kwargs)))
    return shown


def test_band_holds_mean_and_interval(ax):
    line = plotting.band(ax, X, Y, label="ours")
    np.testing.assert_allclose(line.get_ydata(), Y.mean(0))
    edge = ax.collections[0].get_paths()[0].vertices
    low, high = mean_interval(Y).interval
    assert edge[:, 1].min() == pytest.approx(low.min()) and edge[:, 1].max() == pytest.approx(high.max())
    assert line.get_label() == "ours (5 seeds)"


def test_band_of_one_run_is_a_line(ax):
    assert plotting.band(ax, X, Y[0], label="one").get_label() == "one"
    assert not ax.collections


def test_band_stays_positive_on_a_log_axis(ax):
    wide = np.array([[0.01, 1.0, 1.0], [1.0, 1.0, 1.1]])
    ax.set_yscale("log")
    plotting.band(ax, X, wide)
    assert ax.collections[0].get_paths()[0].vertices[:, 1].min() == pytest.approx(0.01)


def test_rate_plot(ax):
    fit = loglog_slope(X, Y)
    plotting.rate_plot(ax, X, Y, fit=fit, reference=-1, label="ours")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    _, fitted, reference = ax.lines
    np.testing.assert_allclose(fitted.get_ydata(), fit.predict(X))
    np.testing.assert_allclose(reference.get_ydata(), Y.mean(0)[0] / X)
    assert f"slope {fit.slope:.3g}" in fitted.get_label() and reference.get_label() == "slope -1"


def test_bars(ax):
    plotting.bars(ax, ["a", "b"], [Estimate(1.0, 0.5, 2.0), 3], reference=2.5)
    assert [patch.get_width() for patch in ax.patches] == [1, 3]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    segments = ax.collections[0].get_segments()
    np.testing.assert_allclose(segments[0][:, 0], [0.5, 2.0])
    with pytest.raises(ValueError, match="labels has 1"):
        plotting.bars(ax, ["a"], [1, 2])


def test_show_in_a_kernel(displayed):
    fig, _ = plt.subplots()
    plotting.show(fig, alt="Loss falls as 1/t.", caption="Loss <b>", headline=True)
    ((data,), options) = displayed[0]
    assert b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"] == "[figure] Loss falls as 1/t." and options["raw"]
    assert options["metadata"] == {
        "image/png": {"alt": "Loss falls as 1/t."},
        "companion": {"alt": "Loss falls as 1/t.", "caption": "Loss <b>", "headline": True},
    }
    assert not plt.fignum_exists(fig.number)


def test_the_same_figure_gives_the_same_bytes(displayed):
    for _ in range(2):
        fig, ax = plt.subplots()
        ax.plot(X, Y[0])
        plotting.show(fig, alt="A line.")
    assert displayed[0][0][0]["image/png"] == displayed[1][0][0]["image/png"]


def test_show_in_a_script(capsys):
    fig, _ = plt.subplots()
    plotting.show(fig, alt="A line.")
    assert capsys.readouterr().out == "[figure] A line.\n"
    assert not plt.fignum_exists(fig.number)


@pytest.mark.parametrize("alt", ["", "  ", None])
def test_alt_text_is_mandatory(alt):
    fig, _ = plt.subplots()
    with pytest.raises(ValueError, match="alt="):
        plotting.show(fig, alt=alt)
    assert not plt.fignum_exists(fig.number)


def test_theme_is_for_colour_blind_eyes():
    import seaborn

    with matplotlib.rc_context():
        plotting.theme()
        colours = matplotlib.rcParams["axes.prop_cycle"].by_key()["color"]
        assert [matplotlib.colors.to_rgb(c) for c in colours] == [tuple(c) for c in seaborn.color_palette("colorblind")]
        # a page shows the figure 640 pixels wide: no text below 12 of its pixels
        sizes = [matplotlib.rcParams[k] for k in ("axes.labelsize", "xtick.labelsize", "legend.fontsize")]
        assert min(sizes) / 72 * 640 / matplotlib.rcParams["figure.figsize"][0] > 12


def test_models_and_data_come_without_plotting():
    code = (
        "import sys, companion.models, companion.data, companion.training, companion.stats, companion.plotting;"
        "assert not {'matplotlib', 'seaborn', 'pandas', 'transformers', 'gguf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bad_shapes(ax):
    with pytest.raises(ValueError, match="y_seeds has shape"):
        plotting.band(ax, X, Y.T)
