"""The run a notebook is in: its sizes, its random streams, and the verdicts it owes."""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from companion.claims import Claim, ClaimsFile, load_claims
from companion.errors import CompanionError, nearest
from companion.parameters import check_type, require_gpu, validate_common, validate_presets

_current: Run | None = None


class ClaimsFailed(AssertionError):
    """A notebook's verdicts are not those that ``claims.yml`` expects, or some are missing."""


@dataclass
class Run:
    """Resolved parameters of one run; every size is an attribute, e.g. ``run.trials``."""

    chapter: str
    notebook: str
    preset: str
    seed: int
    device: str
    sizes: dict[str, Any]
    declared: ClaimsFile
    verdicts: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        sizes = self.__dict__.get("sizes", {})
        if name in sizes:
            return sizes[name]
        raise AttributeError(f"this run has no size {name!r}: {nearest(name, sizes)}")

    def rng(self, name: str) -> np.random.Generator:
        """Return the random stream called ``name``: the same for one seed and name, whatever ran before."""
        return np.random.default_rng(self._entropy(name))

    def torch_generator(self, name: str, device: str | None = None) -> Any:
        """Return the torch stream called ``name`` on ``device`` (the run's own unless given)."""
        import torch

        state = int(np.random.SeedSequence(self._entropy(name)).generate_state(1, np.uint64)[0] >> np.uint64(1))
        return torch.Generator(device or self.device).manual_seed(state)

    def _entropy(self, name: str) -> list[int]:
        return [self.seed, zlib.crc32(name.encode())]

    def declared_claim(self, claim_id: str) -> Claim:
        """Return the declaration of a claim that this notebook has to check.

        Raises:
            CompanionError: the id is undeclared, untested, or belongs to another notebook.
        """
        claims = self.declared.claims
        if claim_id not in claims:
            raise CompanionError(
                f"claim {claim_id!r} is not declared in {self.declared.path}: {nearest(claim_id, claims)}"
            )
        claim = claims[claim_id]
        if claim.checked_in != self.notebook:
            place = f"to be checked in {claim.checked_in!r}" if claim.checked_in else "untested"
            raise CompanionError(f"claim {claim_id!r} is declared {place}, not checked in {self.notebook!r}")
        return claim

    def finish(self) -> None:
        """End the notebook: every claim it owes has a verdict, and each is the expected one.

        Raises:
            ClaimsFailed: listing every claim that is missing, void, or judged differently than expected.
        """
        problems = dict(self.problems)
        for claim in self.declared.checked_in(self.notebook):
            if claim.id not in self.verdicts:
                problems[claim.id] = "declared to be checked here, but no verdict was given"
        if problems:
            lines = "\n".join(f"  {claim_id}: {problem}" for claim_id, problem in problems.items())
            raise ClaimsFailed(f"{self.chapter}/{self.notebook}, preset {self.preset}, seed {self.seed}:\n{lines}")
        print(f"{len(self.verdicts)} of {len(self.verdicts)} verdicts as expected.")


def start(
    notebook: str,
    presets: dict[str, dict[str, Any]],
    *,
    preset: str = "quick",
    seed: int = 0,
    device: str = "auto",
    **overrides: Any,
) -> Run:
    """Begin a notebook's run and return its resolved parameters.

    Args:
        notebook: ``"theory"`` or ``"experiments"``.
        presets: for each of ``quick``, ``full`` and ``gpu`` the value of every size.
        preset: which of them to use.
        seed: of every random stream of the run.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"``: the GPU for the preset ``gpu``, else the CPU, so that quick
            records are the same on every machine.
        **overrides: sizes that differ from the preset's; ``None`` means "what the preset says".

    Raises:
        CompanionError: for an unknown preset, device or size, a value of the wrong type, or no GPU for ``gpu``.
    """
    global _current
    validate_presets(presets, set(overrides), notebook)
    validate_common(preset, seed, device)
    given = {name: value for name, value in overrides.items() if value is not None}
    for name, value in given.items():
        check_type(name, value, presets[preset][name])
    if preset == "gpu":
        require_gpu(device, list(given))
    folder = _chapter_folder()
    _current = Run(
        chapter=folder.name,
        notebook=notebook,
        preset=preset,
        seed=seed,
        device=("cuda" if preset == "gpu" else "cpu") if device == "auto" else device,
        sizes={**presets[preset], **given},
        declared=load_claims(folder / "claims.yml"),
    )
    from companion.plotting import theme

    theme()
    return _current


def current() -> Run:
    """Return the run that ``start`` began.

    Raises:
        CompanionError: ``start`` was not called.
    """
    if _current is None:
        raise CompanionError("no run was started: call companion.start(...) first")
    return _current


def _chapter_folder() -> Path:
    """A script's own folder, or where the kernel runs: both are the chapter's folder."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    for folder in [Path(script).resolve().parent] if script else []:
        if (folder / "claims.yml").is_file():
            return folder
    if not Path("claims.yml").is_file():
        raise CompanionError(f"no claims.yml in {Path.cwd()}: start a notebook from its chapter's folder")
    return Path.cwd()
