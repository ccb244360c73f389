"""Find a measured number by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from companion.book import tracking
from companion.errors import CompanionError, nearest
from companion.project import Chapter, chapters
from companion.records import ChapterLedger

FORMS = "claim-id/name, report/name, or either after chapter/"


def find_entry(env: Any, name: str, chapter_of: Callable[[str | None], Chapter]) -> dict[str, Any] | None:
    """Return the measurement, note or report called ``name``: ``value``, ``interval``, ``unit``.

    Args:
        env: Sphinx's environment; the page being read is noted as depending on the chapter.
        name: ``claim-id/name``, ``report/name``, or one of the two after ``chapter/``.
        chapter_of: gives the chapter of a name, and the page's own for ``None``.

    Returns:
        The entry, or ``None`` if the notebook that would hold it has not been run.

    Raises:
        CompanionError: the name has another form, or there is no such chapter, claim, measurement or report.
    """
    first, slash, rest = name.partition("/")
    own = env.docname.split("/")[1] if env.docname.startswith("notebooks/") else None
    known = {chapter.name for chapter in chapters(tracking.root_of(env))}
    ledger = tracking.read(env, chapter_of(None)) if own else None
    if ledger is None or (first in known and first not in ledger.declared.claims):
        if first not in known:
            raise CompanionError(f"{name!r}: unknown chapter {first!r}: {nearest(first, known)}")
        ledger = tracking.read(env, chapter_of(first))
        first, slash, rest = rest.partition("/")
    if not slash or not rest:
        raise CompanionError(f"{name!r} names no number: write {FORMS}")
    return _report(ledger, rest, name) if first == "report" else _measurement(ledger, first, rest, name)


def _report(ledger: ChapterLedger, wanted: str, name: str) -> dict[str, Any] | None:
    if wanted in ledger.reports:
        return ledger.reports[wanted]
    if any(row.record is None and row.claim.checked_in is not None for row in ledger.rows):
        return None  # a notebook has not run, and it may be the one that reports this
    raise CompanionError(f"{name!r}: {ledger.chapter.name} reports no such number: {nearest(wanted, ledger.reports)}")


def _measurement(ledger: ChapterLedger, claim_id: str, wanted: str, name: str) -> dict[str, Any] | None:
    row = next((row for row in ledger.rows if row.claim.id == claim_id), None)
    if row is None:
        raise CompanionError(
            f"{name!r}: {ledger.chapter.name} has no claim {claim_id!r}: {nearest(claim_id, ledger.declared.claims)}"
        )
    if row.claim.checked_in is None:
        raise CompanionError(f"{name!r}: {claim_id} is untested, so nothing was measured")
    if row.record is None:
        return None
    entries = {entry["name"]: entry for entry in (*row.record["measurements"], *row.record["notes"])}
    if wanted not in entries:
        raise CompanionError(f"{name!r}: {claim_id} measures no such thing: {nearest(wanted, entries)}")
    return entries[wanted]
