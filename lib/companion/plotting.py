"""Figures: one theme, uncertainty shown, a text for those who don't see them."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from companion.show import in_kernel
from companion.stats import Estimate, Fit, mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

DPI = 130  # a figure of 6.4 inches is 832 pixels: still sharp where the page shows it 640 wide


def theme() -> None:
    """Sets the look of all figures: seaborn, a palette for colour-blind eyes, text legible at 640 pixels."""
    import seaborn

    seaborn.set_theme(
        context="notebook",
        style="whitegrid",
        palette="colorblind",
        rc={
            "figure.figsize": (6.4, 4.0),
            "figure.dpi": DPI,
            "figure.constrained_layout.use": True,
            "axes.titlesize": 12,
            "axes.labelsize": 11,
            "xtick.labelsize": 10,
            "ytick.labelsize": 10,
            "legend.fontsize": 10,
            "grid.linewidth": 0.6,
            "lines.linewidth": 1.8,
        },
    )


def band(ax: Axes, x, y_seeds, label: str | None = None, level: float = 0.95, **line) -> Line2D:
    """Mean over seeds with the t-interval of the mean as a band; the legend says how many seeds.

    x: (m,); y_seeds: (seeds, m), or (m,) for a line without a band. `line` goes to `ax.plot`. Returns the line.
    """
    x, y = _check_xy(x, y_seeds)
    if len(y) > 1 and label is not None:
        label = f"{label} ({len(y)} seeds)"
    (drawn,) = ax.plot(x, y.mean(0), label=label, **line)
    if len(y) > 1:
        low, high = mean_interval(y, level).interval
        if ax.get_yscale() == "log":  # no logarithm below zero: the band ends at the smallest seed
            low = np.where(low > 0, low, y.min(0))
        ax.fill_between(x, low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)
    return drawn


def rate_plot(
    ax: Axes, x, y_seeds, fit: Fit | None = None, reference: float | None = None, label: str | None = None
) -> Line2D:
    """Log-log plot of y against x with a band over seeds.

    fit: a `Fit`, drawn dashed with its slope.  reference: a slope to compare with, dotted through the first mean.
    x: (m,); y_seeds: (seeds, m) or (m,). Returns the line of the data.
    """
    ax.set_xscale("log")
    ax.set_yscale("log")
    drawn = band(ax, x, y_seeds, label=label, marker="o", markersize=4)
    x, y = _check_xy(x, y_seeds)
    if fit is not None:
        text = f"fit: slope {fit.slope:.3g} [{fit.interval[0]:.3g}, {fit.interval[1]:.3g}]"
        ax.plot(x, fit.predict(x), "--", color=drawn.get_color(), linewidth=1.2, label=text)
    if reference is not None:
        ax.plot(x, y.mean(0)[0] * (x / x[0]) ** reference, ":", color="0.3", label=f"slope {reference:g}")
    return drawn


def bars(ax: Axes, labels, estimates, reference: float | None = None) -> None:
    """One horizontal bar a label, first on top, with the interval of each `Estimate` (or none for a plain number).

    reference: where to draw a dashed line, for example the paper's figure.
    """
    labels = [str(label) for label in labels]
    if len(labels) != len(estimates):
        raise ValueError(f"labels has {len(labels)} entries: must have one for each of the {len(estimates)} estimates")
    estimates = [e if isinstance(e, Estimate) else Estimate(e, e, e) for e in estimates]
    values = np.array([e.value for e in estimates])
    errors = np.array([[e.value - e.low, e.high - e.value] for e in estimates]).T
    errors[:, errors.sum(0) == 0] = np.nan  # no interval, no whisker
    ax.barh(range(len(labels)), values, xerr=errors, color="C0", alpha=0.8, error_kw={"capsize": 3, "ecolor": "0.2"})
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    if reference is not None:
        ax.axvline(reference, color="C3", linestyle="--", linewidth=1.2)


def show(fig: Figure, *, alt: str, caption: str = "", headline: bool = False) -> None:
    """Shows a figure and closes it.

    alt: what the figure shows, for those who don't see it; mandatory.  caption: a line under the figure.
    headline: marks the chapter's one figure for its landing page and the gallery.

    In a kernel the output is image/png with `alt` as its text/plain and in its metadata; in a script `alt` is printed.
    """
    import matplotlib.pyplot as plt

    try:
        if not isinstance(alt, str) or not alt.strip():
            raise ValueError(f"alt={alt!r}: must say in words what the figure shows")
        if not isinstance(caption, str):
            raise ValueError(f"caption={caption!r}: must be text")
        if not in_kernel():
            print(f"[figure] {alt}")
            return
        from IPython.display import display

        png = BytesIO()
        fig.savefig(png, format="png", dpi=DPI, bbox_inches="tight", metadata={"Software": None})
        display(
            {"image/png": b64encode(png.getvalue()).decode(), "text/plain": f"[figure] {alt}"},
            metadata={
                "image/png": {"alt": alt},
                "companion": {"alt": alt, "caption": caption, "headline": bool(headline)},
            },
            raw=True,
        )
    finally:
        plt.close(fig)  # or the inline backend shows it a second time


def _check_xy(x, y_seeds) -> tuple[np.ndarray, np.ndarray]:
    """x as (m,), y as (seeds, m)."""
    x, y = np.asarray(x, dtype=float), np.atleast_2d(np.asarray(y_seeds, dtype=float))
    if x.ndim != 1 or y.ndim != 2 or y.shape[1] != len(x):
        raise ValueError(f"y_seeds has shape {np.shape(y_seeds)}: must be (seeds, m) or (m,) for x of shape {x.shape}")
    return x, y
