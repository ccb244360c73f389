"""Chapters with executed notebooks, made up without executing anything."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import yaml

from companion.claims import Claim
from companion.project import NOTEBOOKS
from companion.records import CLAIM_MIME, REPORT_MIME
from companion.show import report_html, verdict_html

PAPER = {
    "title": "A paper on <b>bold</b> things",
    "authors": ["A. Author"],
    "venue": "ICML 2026",
    "url": "https://arxiv.org/abs/0000.00000",
    "source": "abstract",
}


def png(shade: int = 128, width: int = 64, height: int = 40) -> str:
    """A grey PNG in base64; one for each shade."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes([shade]) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def measurement(name: str, value: float | str = 1.0, **changes: Any) -> dict[str, Any]:
    """A measurement that passes beside a control that is rejected."""
    return {
        "name": name,
        "value": value,
        "interval": [0.9, 1.1],
        "within": [0.5, 1.5],
        "interval_within": None,
        "passed": True,
        "control": {"value": 3.0, "interval": None, "broken": "the noise is left out", "rejected": True},
        "unit": "",
        "beyond": False,
        "timing": False,
        **changes,
    }


def record(claim_id: str, verdict: str = "holds", measurements: list[dict] | None = None, **changes: Any) -> dict:
    """The record of a claim."""
    return {
        "schema": 1,
        "id": claim_id,
        "verdict": verdict,
        "expect": verdict,
        "limit": None,
        "measurements": measurements or [measurement("slope of log $E e_t$")],
        "notes": [],
        "preset": "quick",
        "seed": 0,
        "seconds": 0.1,
        **changes,
    }


def report(name: str, value: float, **changes: Any) -> dict[str, Any]:
    """The record of a reported number."""
    return {"schema": 1, "name": name, "value": value, "interval": None, "unit": "", "timing": False, **changes}


def code(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    """A code cell that has run."""
    return {
        "cell_type": "code",
        "execution_count": 1,
        "id": f"c{zlib.crc32(source.encode())}",
        "metadata": {},
        "source": source,
        "outputs": list(outputs),
    }


def display(data: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """What a cell displayed."""
    return {"output_type": "display_data", "data": data, "metadata": metadata}


def claim_cell(of: dict[str, Any], claim: Claim) -> dict[str, Any]:
    """The cell that gave a verdict."""
    data = {CLAIM_MIME: of, "text/html": verdict_html(of, claim), "text/plain": of["verdict"]}
    return code(f'claim("{of["id"]}")', display(data))


def report_cell(of: dict[str, Any]) -> dict[str, Any]:
    """The cell that reported a number."""
    return code(f'report("{of["name"]}")', display({REPORT_MIME: of, "text/html": report_html(of), "text/plain": ""}))


def figure_cell(shade: int = 128, **about: Any) -> dict[str, Any]:
    """The cell that showed a figure."""
    data = {"image/png": png(shade), "text/plain": "<Figure>"}
    return code(f"show({shade})", display(data, companion=about) if about else display(data))


def markdown(source: str) -> dict[str, Any]:
    """A cell of text."""
    return {"cell_type": "markdown", "id": f"m{zlib.crc32(source.encode())}", "metadata": {}, "source": source}


def write_notebook(path: Path, *cells: dict[str, Any], preset: str = "quick") -> None:
    """Write an executed notebook."""
    notebook = {
        "cells": [markdown(f"# {path.stem.capitalize()}"), *cells],
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python", "pygments_lexer": "ipython3", "file_extension": ".py"},
            "companion": {"parameters": {"preset": preset}, "complete": True},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(notebook), encoding="utf-8")


def write_chapter(
    root: Path,
    name: str,
    claims: list[dict[str, Any]],
    records: list[dict[str, Any]] = (),
    *cells: dict[str, Any],
    index: str | None = None,
    executed: bool = True,
) -> Path:
    """Write a chapter; all ``cells`` and the records go to the notebook ``theory``."""
    folder = root / "notebooks" / name
    folder.mkdir(parents=True)
    text = yaml.safe_dump({"paper": PAPER, "claims": claims}, allow_unicode=True)
    (folder / "claims.yml").write_text(text, encoding="utf-8")
    title = name.replace("_", " ").capitalize()
    (folder / "index.md").write_text(
        index or f"# {title}\n\n```{{headline}}\n```\n\n## Claims\n\n```{{claims}}\n```\n", encoding="utf-8"
    )
    for notebook in NOTEBOOKS:
        (folder / f"{notebook}.py").write_text(f"# %% [markdown]\n# # {notebook}\n", encoding="utf-8")
    if executed:
        declared = {entry["id"]: Claim(**entry) for entry in claims}
        write_notebook(folder / "method.ipynb")
        shown = [claim_cell(entry, declared[entry["id"]]) for entry in records]
        write_notebook(folder / "theory.ipynb", *shown, *cells)
        write_notebook(folder / "experiments.ipynb")
    return folder


def keep_record(root: Path, chapter: str, of: dict[str, Any], preset: str = "full", **about: Any) -> Path:
    """Keep the record of a larger run."""
    path = root / "results" / chapter / f"theory-{preset}-seed{of['seed']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    run = {
        "schema": 1,
        "chapter": chapter,
        "notebook": "theory",
        "preset": preset,
        "recorded": "2026-07-01T12:00:00+00:00",
        "parameters": {"preset": preset, "seed": of["seed"], "device": "auto", "trials": None},
        "cpu": "A processor",
        "cores": 16,
        "gpu": "NVIDIA H200" if preset == "gpu" else None,
        "claims": [{**of, "preset": preset}],
        "reports": [],
        **about,
    }
    path.write_text(json.dumps(run), encoding="utf-8")
    return path
