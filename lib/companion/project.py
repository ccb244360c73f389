"""Where things are: the repository root, its chapters and their notebooks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from companion.errors import CompanionError, nearest

NOTEBOOKS = ("method", "theory", "experiments")
CHAPTER_FILES = ("index.md", "claims.yml", *(f"{name}.py" for name in NOTEBOOKS))
PARTS = {
    "Optimisation": (
        "momentum_tracking warmup_curvature incremental_gradient zeroth_order_ntk safe_kl_logsumexp "
        "blackbox_hybrids flow_optimizer"
    ),
    "Training large models": (
        "low_precision_madam foam_shampoo progressive_depth qkv_sharing descent_transformers modular_gating "
        "minimal_safety_augmentation"
    ),
    "Inference and systems": "lk_losses path_likelihood_decoding tail_latency_scheduling compiler_autotuning",
    "Statistics and representations": (
        "compressed_oja mave_stiefel multitask_representation masked_ssl_spectra deepwalk_dynamics "
        "preference_bradley_terry semi_knockoffs"
    ),
    "Bandits and decisions": (
        "unconstrained_bandit_linear gradient_variation_bandit constrained_best_arm decision_focused_pear "
        "multiobjective_attention flow_policy_rl"
    ),
    "Inverse problems": "proximal_generative_modeling nonexpansive_denoiser",
}
"""Parts of the book and their chapters, in order; a chapter appears once its folder exists."""


@dataclass(frozen=True)
class Chapter:
    """A chapter: one folder under ``notebooks/``."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def root(self) -> Path:
        return self.folder.parent.parent

    @property
    def part(self) -> str:
        """The part of the book that the chapter belongs to; ``"Further chapters"`` for one of the user's own."""
        return next((part for part, names in PARTS.items() if self.name in names.split()), "Further chapters")

    @property
    def notebooks(self) -> list[Notebook]:
        return [Notebook(self, name) for name in NOTEBOOKS]

    def missing_files(self) -> list[str]:
        return [name for name in CHAPTER_FILES if not (self.folder / name).is_file()]


@dataclass(frozen=True)
class Notebook:
    """A notebook of a chapter: the text ``.py`` is the source, the ``.ipynb`` beside it a build product."""

    chapter: Chapter
    name: str

    @property
    def label(self) -> str:
        return f"{self.chapter.name}/{self.name}"

    @property
    def source(self) -> Path:
        return self.chapter.folder / f"{self.name}.py"

    @property
    def product(self) -> Path:
        return self.chapter.folder / f"{self.name}.ipynb"


def find_root(start: Path | None = None) -> Path:
    """Return the repository root: ``$COMPANION_ROOT``, or the first folder above ``start`` that holds a book.

    Raises:
        CompanionError: neither names a folder with ``_config.yml`` and ``notebooks/``.
    """
    if named := os.environ.get("COMPANION_ROOT"):
        candidates = [Path(named)]
    else:
        start = (start or Path.cwd()).resolve()
        candidates = [start, *start.parents, Path(__file__).resolve().parents[2]]
    for folder in candidates:
        if (folder / "_config.yml").is_file() and (folder / "notebooks").is_dir():
            return folder.resolve()
    raise CompanionError(f"no book found at or above {candidates[0]}: run this inside a checkout of the companion")


def chapters(root: Path) -> list[Chapter]:
    """Return the chapters in the order of the book, those that belong to no part last."""
    order = [name for names in PARTS.values() for name in names.split()]
    folders = [path for path in (root / "notebooks").iterdir() if path.is_dir() and path.name[0] not in "._"]
    rank = {name: index for index, name in enumerate(order)}
    return [Chapter(path) for path in sorted(folders, key=lambda path: (rank.get(path.name, len(order)), path.name))]


def find_chapter(root: Path, name: str) -> Chapter:
    """Return the chapter called ``name``.

    Raises:
        CompanionError: there is none (the nearest name is suggested), or files are missing in its folder.
    """
    known = {chapter.name: chapter for chapter in chapters(root)}
    if name not in known:
        raise CompanionError(f"unknown chapter {name!r}: {nearest(name, known)}")
    chapter = known[name]
    if missing := chapter.missing_files():
        raise CompanionError(
            f"notebooks/{name}: missing {', '.join(missing)}; a chapter has {', '.join(CHAPTER_FILES)}"
        )
    return chapter


def find_notebook(root: Path, label: str) -> Notebook:
    """Return the notebook named ``CHAPTER/NOTEBOOK``, e.g. ``lk_losses/experiments``.

    Raises:
        CompanionError: the label has another form, or names no chapter or notebook.
    """
    chapter_name, slash, name = (
        label.removesuffix(".py").removesuffix(".ipynb").removeprefix("notebooks/").partition("/")
    )
    if not slash or "/" in name:
        raise CompanionError(f"{label!r} names no notebook: write CHAPTER/NOTEBOOK, e.g. lk_losses/theory")
    chapter = find_chapter(root, chapter_name)
    if name not in NOTEBOOKS:
        raise CompanionError(f"unknown notebook {name!r} in {chapter_name}: {nearest(name, NOTEBOOKS)}")
    return Notebook(chapter, name)
