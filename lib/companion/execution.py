"""Execute notebooks: strictly, atomically, and only what is stale.

A notebook runs through papermill from its ``.py`` text into a file of its own under ``runs/``. Only a run that ended
well is moved (in one step) to where it belongs, so that a killed or failed run never replaces a good one.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from filelock import FileLock
from nbformat import NotebookNode

from companion.errors import CompanionError
from companion.parameters import read_signature
from companion.project import Notebook
from companion.provenance import provenance
from companion.records import collect_outputs, expected_claims

OUTPUT_LIMIT = 10_000_000
"""Bytes of output that one notebook may produce; a page of the book has to stay readable."""


class OutputTooLarge(CompanionError):
    """A notebook printed more than ``OUTPUT_LIMIT``."""


class RunFailed(Exception):
    """A notebook raised an error, or its verdicts are not as expected."""


@dataclass
class OutputMeter:
    """Count what a notebook prints and stop it before it fills the memory."""

    label: str
    total: int = 0

    def add(self, message: dict[str, Any]) -> None:
        content = message.get("content", {})
        for text in (content.get("text"), *content.get("data", {}).values()):
            self.total += len(text) if isinstance(text, str) else 0
        if self.total > OUTPUT_LIMIT:
            raise OutputTooLarge(
                f"{self.label}: stopped, it printed more than {OUTPUT_LIMIT // 10**6} MB; print less, or to a file"
            )


def read_source(notebook: Notebook) -> NotebookNode:
    """Read the notebook's text as a notebook that a Python kernel can run."""
    node = jupytext.read(notebook.source, fmt="py:percent")
    node.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for index, cell in enumerate(node.cells):
        cell["id"] = f"cell-{index}"  # random ids would make every build differ
    return node


def fingerprint(notebook: Notebook) -> str:
    """Hash all that a notebook's results depend on: its text, its chapter's other files, the library, the pins."""
    root, folder = notebook.chapter.root, notebook.chapter.folder
    files = [notebook.source, folder / "method.py", folder / "claims.yml", root / "requirements.lock"]
    for place in (folder / "data", Path(__file__).parent):
        files += sorted(path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.name).encode() + b"\0")
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def inputs_hash(node: NotebookNode) -> str:
    """Hash what a person wrote in a notebook: its cells' kinds and sources."""
    cells = [(cell.cell_type, cell.source) for cell in node.cells if "injected-parameters" not in _tags(cell)]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def is_fresh(notebook: Notebook) -> bool:
    """Whether the ``.ipynb`` holds the outputs of a good quick run of exactly the present sources."""
    if not notebook.product.is_file():
        return False
    try:
        metadata = json.loads(notebook.product.read_text(encoding="utf-8"))["metadata"].get("companion", {})
    except (ValueError, KeyError, OSError):
        return False
    return metadata.get("complete", False) and metadata.get("fingerprint") == fingerprint(notebook)


def sync(notebook: Notebook) -> None:
    """Make the ``.ipynb`` hold the cells of the ``.py``; outputs stay where the cells are unchanged.

    Raises:
        CompanionError: the ``.ipynb`` was edited after the ``.py`` and would lose that edit.
    """
    node = read_source(notebook)
    if notebook.product.is_file():
        refuse_to_lose_edits(notebook)
        before = nbformat.read(notebook.product, as_version=4)
        if inputs_hash(before) == inputs_hash(node):
            return
    write_atomically(node, notebook.product)


def refuse_to_lose_edits(notebook: Notebook) -> None:
    """Raise ``CompanionError`` if the ``.ipynb`` holds later edits than the ``.py``."""
    try:
        before = nbformat.read(notebook.product, as_version=4)
    except Exception:  # not a notebook: nothing of worth to lose
        return
    edited = inputs_hash(before)
    known = before.metadata.get("companion", {}).get("inputs")
    newer = notebook.product.stat().st_mtime > notebook.source.stat().st_mtime
    if newer and edited not in (known, inputs_hash(read_source(notebook))):
        raise CompanionError(
            f"{notebook.product}: edited after {notebook.source.name}; "
            f"keep the edit with `jupytext --sync {notebook.source}`, or delete the .ipynb"
        )


def write_atomically(node: NotebookNode, target: Path) -> None:
    """Write a notebook so that a reader, or a kill, sees the old file or the new one and nothing between."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        temporary.write_text(nbformat.writes(node) + "\n", encoding="utf-8")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def stamp(node: NotebookNode, notebook: Notebook, parameters: dict[str, Any], seconds: float, mark: str) -> None:
    """Note in a notebook that ran well what it ran with, and check that it holds every verdict it owes.

    Raises:
        RunFailed: a claim that the notebook has to check has no record.
    """
    outputs = collect_outputs(node, notebook.label)
    if missing := set(expected_claims(notebook)) - set(outputs.claims):
        raise RunFailed(f"{notebook.label}: no verdict on {', '.join(sorted(missing))}")
    node.metadata["companion"] = {
        "notebook": notebook.label,
        "parameters": parameters,
        "seconds": round(seconds, 2),
        "fingerprint": mark,
        "inputs": inputs_hash(node),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": True,
        **provenance(notebook.chapter.root),
    }


def execute(notebook: Notebook, parameters: dict[str, Any], target: Path, progress: bool = False) -> Path:
    """Run a notebook with ``parameters`` (validated first) and put the executed notebook at ``target``.

    Returns:
        ``target``.

    Raises:
        CompanionError: the parameters are not valid, or the notebook printed too much.
        RunFailed: a cell failed; the partial notebook is kept, and named in the message.
    """
    import papermill

    from companion.engine import register

    signature = read_signature(notebook.source, notebook.label)
    signature.validate(parameters)
    mark = fingerprint(notebook)
    register()
    partial = (
        notebook.chapter.root / "runs" / ".partial" / f"{notebook.label.replace('/', '-')}-{uuid.uuid4().hex}.ipynb"
    )
    partial.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    try:
        node = papermill.execute_notebook(
            read_source(notebook),
            partial,
            parameters=parameters,
            engine_name="companion",
            kernel_name="python3",
            cwd=notebook.chapter.folder,
            progress_bar=progress,
            label=notebook.label,
        )
        stamp(node, notebook, {**signature.defaults, **parameters}, time.perf_counter() - started, mark)
        write_atomically(node, target)
    except papermill.PapermillExecutionError as error:
        raise RunFailed(f"{_last_line(error)}{_keep_partial(partial, notebook)}") from error
    except (OutputTooLarge, RunFailed) as error:
        raise type(error)(f"{error}{_keep_partial(partial, notebook)}") from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{notebook.label}: interrupted{_keep_partial(partial, notebook)}") from None
    finally:
        partial.unlink(missing_ok=True)
    return target


def update(notebook: Notebook) -> float | None:
    """Bring the book's own ``.ipynb`` up to date with a quick run.

    Returns:
        Seconds of the run, or ``None`` if it was fresh. Two callers at once execute the notebook once.
    """
    locks = notebook.chapter.root / "runs" / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    with FileLock(locks / f"{notebook.label.replace('/', '-')}.lock"):
        if is_fresh(notebook):
            return None
        refuse_to_lose_edits(notebook)
        started = time.perf_counter()
        execute(notebook, {}, notebook.product)
        return time.perf_counter() - started


def _keep_partial(partial: Path, notebook: Notebook) -> str:
    """Keep what a failed run had computed, under a name that no good run has; say where."""
    if not partial.is_file():
        return ""
    kept = notebook.chapter.root / "runs" / notebook.chapter.name / f"{notebook.name}.failed.ipynb"
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial.replace(kept)
    return f" (partial notebook: {os.path.relpath(kept)})"


def _last_line(error: Any) -> str:
    return f"cell {error.exec_count}: {error.ename}: {error.evalue}"


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def single_threaded() -> dict[str, str]:
    """Environment for a kernel that shares the machine with others: one thread each, so that two do not fight."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")
    return {**dict.fromkeys(names, "1"), **os.environ, "PYTHONHASHSEED": "0"}


def python_command(*arguments: str) -> list[str]:
    """The command line that calls this package with this interpreter."""
    return [sys.executable, "-m", "companion", *arguments]
