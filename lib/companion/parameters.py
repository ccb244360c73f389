"""What a notebook can be asked for, read from its source without running it.

Stock papermill logs a warning for an unknown parameter and runs on. Here names, types and presets are checked against
the notebook's own cells first, so that a typing error costs a second and not a night.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from companion.errors import CompanionError, nearest

PRESET_NAMES = ("quick", "full", "gpu")
COMMON = {"preset": "quick", "seed": 0, "device": "auto"}
DEVICES = ("auto", "cpu", "cuda")
RESERVED = {"chapter", "notebook", "sizes", "declared", "verdicts", "problems"}
RESERVED |= {"rng", "torch_generator", "declared_claim", "finish"}
"""Names that a run uses itself."""


@dataclass(frozen=True)
class Signature:
    """Parameters of a notebook: their defaults and, per preset, the sizes that ``None`` stands for."""

    label: str
    defaults: dict[str, Any]
    presets: dict[str, dict[str, Any]] = field(default_factory=dict)

    def validate(self, given: Mapping[str, Any]) -> None:
        """Check parameters before anything runs.

        Raises:
            CompanionError: an unknown name, preset or device, or a value of the wrong type.
        """
        for name in given:
            if name not in self.defaults:
                raise CompanionError(f"{self.label} has no parameter {name!r}: {nearest(name, self.defaults)}")
        values = {**self.defaults, **given}
        validate_common(values["preset"], values["seed"], values["device"])
        sizes = self.presets.get(values["preset"], {})
        for name, value in given.items():
            expected = sizes.get(name, self.defaults[name])
            if value is not None and expected is not None and name not in COMMON:
                check_type(name, value, expected)
        if values["preset"] == "gpu":
            require_gpu(values["device"], [name for name in sizes if values.get(name) is not None])


def validate_common(preset: Any, seed: Any, device: Any) -> None:
    """Check the three parameters that every notebook has.

    Raises:
        CompanionError: naming the parameter, its value and what is allowed.
    """
    if preset not in PRESET_NAMES:
        raise CompanionError(f"unknown preset {preset!r}: {nearest(str(preset), PRESET_NAMES)}")
    if type(seed) is not int or seed < 0:
        raise CompanionError(f"seed must be an integer >= 0, not {seed!r}")
    if device not in DEVICES:
        raise CompanionError(f"unknown device {device!r}: {nearest(str(device), DEVICES)}")


def check_type(name: str, value: Any, expected: Any) -> None:
    """Raise ``CompanionError`` unless ``value`` has the type of ``expected`` (an int may stand for a float)."""
    if isinstance(expected, list) and isinstance(value, list):
        for item in value if expected else []:
            check_type(f"each entry of {name}", item, expected[0])
        return
    allowed = (int, float) if type(expected) is float else (type(expected),)
    if type(value) not in allowed:
        kind = type(expected).__name__
        raise CompanionError(f"{name} must be of type {kind} (such as {expected!r}), not {value!r}")


def require_gpu(device: str, overridden: list[str]) -> None:
    """Raise ``CompanionError`` if the ``gpu`` preset would run without a GPU.

    ``device="cpu"`` with at least one size overridden is allowed: it tries the same code path on a CPU.
    """
    if device == "cpu":
        if not overridden:
            raise CompanionError("preset 'gpu' on device 'cpu' would take hours: override at least one size as well")
        return
    import torch  # here, not above: 2 s that only this preset has to pay

    if not torch.cuda.is_available():
        raise CompanionError("preset 'gpu' needs a CUDA GPU, and there is none: choose preset 'quick' or 'full'")


def read_signature(path: Path, label: str) -> Signature:
    """Read a notebook's parameters and presets from its ``.py`` source.

    Raises:
        CompanionError: naming the file, if it cannot be parsed, has no single cell tagged ``parameters``, or its
            parameters or ``PRESETS`` are not plain literals.
    """
    import jupytext  # here, not above: importing it takes seconds that a notebook's kernel need not spend

    try:
        cells = [c for c in jupytext.read(path, fmt="py:percent").cells if c.cell_type == "code"]
    except (OSError, UnicodeDecodeError) as error:
        raise CompanionError(f"{path}: cannot be read: {error}") from error
    tagged = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        hint = 'start one with `# %% tags=["parameters"]`' if not tagged else "keep one"
        raise CompanionError(f"{path}: {len(tagged)} cells tagged 'parameters', needs exactly one; {hint}")
    defaults = _literals(tagged[0].source, path)
    if missing := COMMON.keys() - defaults.keys():
        raise CompanionError(f"{path}: the parameters cell lacks {', '.join(sorted(missing))}")
    presets: dict[str, dict[str, Any]] = {}
    for cell in cells:
        if "PRESETS = " in cell.source:
            presets = _literals(cell.source, path, only="PRESETS").get("PRESETS", {})
    validate_presets(presets, set(defaults) - COMMON.keys(), str(path))
    return Signature(label, defaults, presets)


def validate_presets(presets: Mapping[str, Mapping[str, Any]], names: set[str], where: str) -> None:
    """Check that the presets give each parameter in ``names`` a value, in each preset, of one type.

    Raises:
        CompanionError: naming ``where`` and what differs.
    """
    if taken := names & RESERVED:
        raise CompanionError(f"{where}: a parameter cannot be called {', '.join(sorted(taken))}; a run uses that name")
    if not presets:
        return
    if set(presets) != set(PRESET_NAMES):
        raise CompanionError(f"{where}: PRESETS must have the keys {', '.join(PRESET_NAMES)}, not {', '.join(presets)}")
    for preset, sizes in presets.items():
        if set(sizes) != names:
            odd = ", ".join(sorted(set(sizes) ^ names))
            raise CompanionError(f"{where}: preset {preset!r} and the parameters cell disagree on: {odd}")
        for name, value in sizes.items():
            check_type(f"{where}: {name} of preset {preset!r}", value, presets["quick"][name])


def _literals(source: str, path: Path, only: str | None = None) -> dict[str, Any]:
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise CompanionError(f"{path}: {error.msg} in the line {error.text!r}") from error
    values = {}
    for statement in statements:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if only in (None, name):
                try:
                    values[name] = ast.literal_eval(statement.value)
                except ValueError as error:
                    raise CompanionError(
                        f"{path}: {name} must be a plain literal, so that it can be checked"
                    ) from error
        elif only is None:
            raise CompanionError(f"{path}: the parameters cell may hold plain assignments only, not {source!r}")
    return values
