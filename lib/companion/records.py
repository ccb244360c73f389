"""Records: what executed notebooks hold, and what larger runs left under ``results/``."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from companion.claims import Claim, ClaimsFile, load_claims
from companion.errors import CompanionError
from companion.project import Chapter, Notebook

CLAIM_MIME = "application/vnd.companion.claim+json"
REPORT_MIME = "application/vnd.companion.report+json"
_TIME_DEPENDENT = ("seconds",)


def encode_number(value: float) -> float | str:
    """Encode a float for strict JSON, which has no infinities or NaN."""
    return value if math.isfinite(value) else str(value)


def decode_number(value: float | str) -> float:
    """Invert ``encode_number``."""
    return float(value)


@dataclass(frozen=True)
class Figure:
    """A figure of an executed notebook."""

    png: str
    """base64 of the PNG."""
    alt: str
    caption: str
    headline: bool


@dataclass
class Outputs:
    """What one executed notebook holds."""

    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def preset(self) -> str:
        return self.metadata.get("parameters", {}).get("preset", "quick")


def read_outputs(path: Path) -> Outputs:
    """Collect the records and figures of an executed notebook.

    Raises:
        CompanionError: the file is no notebook, or a claim has two verdicts.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        return collect_outputs(notebook, str(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CompanionError(f"{path}: not a readable notebook: {error}") from error


def collect_outputs(notebook: Any, where: str) -> Outputs:
    """Collect the records and figures of a notebook node; see ``read_outputs``."""
    outputs = Outputs(metadata=dict(notebook["metadata"].get("companion", {})))
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if CLAIM_MIME in data:
                record = data[CLAIM_MIME]
                if record["id"] in outputs.claims:
                    raise CompanionError(f"{where}: claim {record['id']!r} has two verdicts; check each claim once")
                outputs.claims[record["id"]] = record
            elif REPORT_MIME in data:
                outputs.reports[data[REPORT_MIME]["name"]] = data[REPORT_MIME]
            elif "image/png" in data:
                about = output.get("metadata", {}).get("companion", {})
                png = data["image/png"]
                outputs.figures.append(
                    Figure(
                        png="".join(png) if isinstance(png, list) else png,
                        alt=about.get("alt", ""),
                        caption=about.get("caption", ""),
                        headline=about.get("headline", False),
                    )
                )
    return outputs


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """Return what has to be identical in two runs of one preset and seed: all but wall-clock measurements."""
    kept = {key: value for key, value in record.items() if key not in _TIME_DEPENDENT}
    for key in ("measurements", "notes"):
        if key in kept:
            kept[key] = [entry for entry in kept[key] if not entry["timing"]]
    return kept


@dataclass(frozen=True)
class LedgerRow:
    """One claim with all that is known of it."""

    chapter: Chapter
    claim: Claim
    record: dict[str, Any] | None
    """The record of the book's own quick run; ``None`` if untested or not yet run."""
    larger: tuple[dict[str, Any], ...]
    """Kept records of larger runs: claim records with ``provenance``."""

    @property
    def verdict(self) -> str:
        """The verdict of this build, ``"untested"`` for a claim that is declared so, or ``"not yet run"``."""
        if self.record is not None:
            return self.record["verdict"]
        return "untested" if self.claim.expect == "untested" else "not yet run"


@dataclass(frozen=True)
class ChapterLedger:
    """A chapter's paper, claims, reports and figures, as executed."""

    chapter: Chapter
    declared: ClaimsFile
    rows: list[LedgerRow]
    reports: dict[str, dict[str, Any]]
    figures: list[Figure]
    sources: list[Path]
    """Files that this was read from."""

    @property
    def headline(self) -> Figure | None:
        return next((figure for figure in self.figures if figure.headline), None)


def chapter_ledger(chapter: Chapter) -> ChapterLedger:
    """Gather a chapter's claims, its executed notebooks and the kept records of larger runs."""
    declared = load_claims(chapter.folder / "claims.yml")
    claims: dict[str, dict[str, Any]] = {}
    reports: dict[str, dict[str, Any]] = {}
    figures: list[Figure] = []
    sources = [declared.path]
    for notebook in chapter.notebooks:
        if notebook.product.is_file():
            outputs = read_outputs(notebook.product)
            claims.update(outputs.claims)
            reports.update(outputs.reports)
            figures += outputs.figures
            sources.append(notebook.product)
    kept = kept_records(chapter)
    sources += [path for path, _ in kept]
    rows = []
    for claim in declared.claims.values():
        larger = tuple(
            {**record, "provenance": {key: value for key, value in run.items() if key != "claims"}}
            for _, run in kept
            for record in run["claims"]
            if record["id"] == claim.id
        )
        rows.append(LedgerRow(chapter, claim, claims.get(claim.id), larger))
    return ChapterLedger(chapter, declared, rows, reports, figures, sources)


def kept_records(chapter: Chapter) -> list[tuple[Path, dict[str, Any]]]:
    """Read the runs kept under ``results/CHAPTER/``, by file name.

    Raises:
        CompanionError: a file there is not such a record.
    """
    kept = []
    for path in sorted((chapter.root / "results" / chapter.name).glob("*.json")):
        try:
            run = json.loads(path.read_text(encoding="utf-8"))
            if {"claims", "preset", "notebook", "recorded"} - set(run):
                raise ValueError("lacks the keys of a record")
        except (OSError, ValueError, TypeError) as error:
            raise CompanionError(f"{path}: not a kept record: {error}") from error
        kept.append((path, run))
    return kept


def expected_claims(notebook: Notebook) -> list[str]:
    """Ids of the claims that a notebook has to give a verdict on."""
    declared = load_claims(notebook.chapter.folder / "claims.yml")
    return [claim.id for claim in declared.checked_in(notebook.name)]
