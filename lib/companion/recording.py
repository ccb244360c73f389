"""Keep a large run: its claims and numbers, without the notebook, in one small JSON under ``results/``."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from companion.errors import CompanionError
from companion.execution import fingerprint
from companion.parameters import COMMON
from companion.project import find_notebook
from companion.records import read_outputs

PRESETS_KEPT = ("full", "gpu")


def keep(root: Path, path: Path) -> Path:
    """Write the record of an executed notebook to ``results/CHAPTER/`` and return its path.

    Raises:
        CompanionError: the run did not end well, is a quick one, was made with uncommitted changes, or of sources that
            have changed since; or ``results/`` cannot be written.
    """
    outputs = read_outputs(path)
    about = outputs.metadata
    if not about.get("complete"):
        raise CompanionError(f"{path}: not a complete run of `companion run`; only those can be kept")
    notebook = find_notebook(root, about["notebook"])
    if outputs.preset not in PRESETS_KEPT:
        raise CompanionError(f"{path}: a {outputs.preset!r} run; the book executes those itself, keep full or gpu runs")
    if about["dirty"]:
        raise CompanionError(f"{path}: was run with uncommitted changes; commit them and run it again")
    if about["fingerprint"] != fingerprint(notebook):
        raise CompanionError(f"{path}: is of another version of {notebook.label} than the one here; run it again")
    record = {
        "schema": 1,
        "chapter": notebook.chapter.name,
        "notebook": notebook.name,
        "preset": outputs.preset,
        "recorded": datetime.now(UTC).isoformat(timespec="seconds"),
        **{key: about[key] for key in about if key not in ("complete", "notebook", "inputs")},
        "method": method_hash(notebook.chapter.folder),
        "claims": list(outputs.claims.values()),
        "reports": list(outputs.reports.values()),
    }
    target = root / "results" / notebook.chapter.name / f"{file_name(notebook.name, about['parameters'])}.json"
    temporary = target.with_suffix(f".{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        raise CompanionError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        if temporary.exists():
            temporary.unlink()
    return target


def file_name(notebook: str, parameters: dict[str, Any]) -> str:
    """Name a record after what distinguishes its run: notebook, preset, seed, and sizes that were overridden."""
    sizes = {name: value for name, value in parameters.items() if name not in COMMON and value is not None}
    extra = "".join(f"-{name}={value}" for name, value in sorted(sizes.items()))
    plain = "".join(letter if letter.isalnum() or letter in "-=.,_" else "_" for letter in extra)
    return f"{notebook}-{parameters['preset']}-seed{parameters['seed']}{plain}"


def method_hash(folder: Path) -> str:
    """Hash of the chapter's method, by which a reader sees that a record is older than the method."""
    import hashlib

    return hashlib.sha256((folder / "method.py").read_bytes()).hexdigest()
