"""A small checkout to work in: the real library over a chapter that runs in a second."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

CLAIMS = """\
paper:
  title: A paper
  authors: [A. Author]
  venue: ICML 2026
  url: https://arxiv.org/abs/0000.00000
  source: abstract
claims:
  - id: two-is-two
    kind: theorem
    says: $1 + 1 = 2$.
    checked_in: theory
    expect: holds
  - id: at-scale
    kind: empirical
    says: The same for large numbers.
    expect: untested
    because: They are large.
"""
PARAMETERS = '# %% tags=["parameters"]\npreset = "quick"\nseed = 0\ndevice = "auto"\n'
METHOD = f"""\
# %% [markdown]
# # Method

{PARAMETERS}
# %%
def add(a, b):
    return a + b
"""
THEORY = f"""\
# %% [markdown]
# # Theory

{PARAMETERS}size = None
rate = None
names = None

# %%
from companion import claim, report, start
from method import add

PRESETS = {{
    "quick": {{"size": 1, "rate": 0.5, "names": ["a"]}},
    "full": {{"size": 2, "rate": 0.5, "names": ["a"]}},
    "gpu": {{"size": 3, "rate": 0.5, "names": ["a"]}},
}}
run = start("theory", PRESETS, preset=preset, seed=seed, device=device, size=size, rate=rate, names=names)

# %%
check = claim("two-is-two")
check.that("sum", add(run.size, run.size), within=(2 * run.size, 2 * run.size), control=run.size, broken="one term")
check.verdict()
report("size", run.size)

# %%
run.finish()
"""
EXPERIMENTS = f"""\
# %% [markdown]
# # Experiments

{PARAMETERS}
# %%
from companion import start

run = start("experiments", {{"quick": {{}}, "full": {{}}, "gpu": {{}}}}, preset=preset, seed=seed, device=device)

# %%
run.finish()
"""


@dataclass
class Checkout:
    """A repository with one chapter, ``sums``."""

    root: Path

    @property
    def chapter(self) -> Path:
        return self.root / "notebooks" / "sums"

    def environment(self) -> dict[str, str]:
        return {**os.environ, "COMPANION_ROOT": str(self.root), "NO_COLOR": "1", "TERM": "dumb"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "companion", *arguments]

    def companion(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call the command line as a user would."""
        return subprocess.run(
            self.command(*arguments), cwd=self.root, env=self.environment(), capture_output=True, text=True, timeout=300
        )

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.chapter / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def files(self) -> set[str]:
        """All files, but for caches and locks."""
        paths = (path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())
        return {str(path) for path in paths if not {"__pycache__", ".locks", ".git"} & set(path.parts)}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh checkout whose path holds a space."""
    made = Checkout(tmp_path / "a book")
    made.chapter.mkdir(parents=True)
    (made.root / "_config.yml").write_text("title: A book\n")
    (made.root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nparts:\n- caption: About\n  chapters:\n  - file: book/verdicts\n"
    )
    (made.root / "requirements.lock").write_text("")
    (made.root / ".gitignore").write_text("*.ipynb\nruns/\n__pycache__/\n")
    files = {
        "claims.yml": CLAIMS,
        "index.md": "# Sums\n",
        "method.py": METHOD,
        "theory.py": THEORY,
        "experiments.py": EXPERIMENTS,
    }
    for name, text in files.items():
        (made.chapter / name).write_text(text)
    return made
