"""The table of a chapter's claims, and the ledger of all."""

from __future__ import annotations

from typing import Any

from companion.book.markup import NOT_YET_RUN, SIGN, PageTitle, Tag, badge, counts, slug, tag, text
from companion.book.tracking import landing_page
from companion.parameters import COMMON
from companion.project import PARTS
from companion.recording import PRESETS_KEPT, method_hash
from companion.records import ChapterLedger, LedgerRow
from companion.show import accepted_text, interval_text, number

COLUMNS = ("Measurement", "Measured", "Accepted", "Control, to be rejected")
ORIGINS = {"paper": "from the paper", "derived": "derived here"}
REASONS = {"qualified": "Limit", "void": "Void"}
VOID = "a control passes too, so the check proves nothing."


def claims_table(ledger: ChapterLedger, pages: set[str]) -> Tag:
    """All claims of a chapter: verdict, statement, measurements with their controls, larger runs.

    Args:
        ledger: the chapter.
        pages: names of the pages that exist; the notebook that checks a claim is linked if it is one.
    """
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in COLUMNS)))
    bodies = [_claim(row, pages) for row in ledger.rows]
    return tag("div", tag("table", head, *bodies, classes="companion-claims"), classes="companion-wide")


def _claim(row: LedgerRow, pages: set[str]) -> Tag:
    width = {"colspan": str(len(COLUMNS))}
    rows = [
        tag("tr", tag("th", *_heading(row, pages), scope="rowgroup", **width), classes="companion-claim-head"),
        tag("tr", tag("td", *_statement(row), **width), classes="companion-says"),
    ]
    if row.record is not None:
        rows += [_measurement(measurement) for measurement in row.record["measurements"]]
        rows += [_note(note) for note in row.record["notes"]]
    if row.claim.checked_in is not None:
        quick = tag("li", tag("span", "quick", classes="companion-preset"), badge(row.verdict), " this build")
        runs = tag("ul", quick, *larger_runs(row), classes="companion-runs")
        rows.append(tag("tr", tag("td", runs, **width), classes="companion-larger"))
    return tag("tbody", *rows, ids=f"claim-{row.claim.id}")


def _heading(row: LedgerRow, pages: set[str]) -> list[Any]:
    claim = row.claim
    link = tag("a", tag("code", claim.id), href=f"#claim-{claim.id}", title="Link to this claim")
    about = [f"{claim.kind}, {ORIGINS[claim.origin]}"]
    if claim.checked_in is not None:
        page = f"notebooks/{row.chapter.name}/{claim.checked_in}"
        about += [", checked in ", tag("a", claim.checked_in, to=page) if page in pages else claim.checked_in]
    return [badge(row.verdict), " ", link, " ", tag("span", *about, classes="companion-about")]


def _statement(row: LedgerRow) -> list[Tag]:
    return [tag("p", *text(row.claim.says)), *reason(row)]


def reason(row: LedgerRow) -> list[Tag]:
    """Why a claim does not simply hold."""
    limit = row.record["limit"] if row.record is not None else None
    because = VOID if row.verdict == "void" else limit or row.claim.because
    if because is None or row.verdict in ("holds", NOT_YET_RUN):
        return []
    label = tag("strong", f"{REASONS.get(row.verdict, 'Because')}: ")
    return [tag("p", label, *text(because), classes="companion-reason")]


def _measurement(measurement: dict[str, Any]) -> Tag:
    control = measurement["control"]
    beyond = [" ", tag("em", "(beyond the limit)")] if measurement["beyond"] else []
    passed, rejected = measurement["passed"], control["rejected"]
    return tag(
        "tr",
        _cell(0, *text(measurement["name"]), *beyond),
        _cell(1, _mark(passed), " ", _value(measurement), "" if passed else " outside"),
        _cell(2, accepted_text(measurement)),
        _cell(
            3,
            _value({**control, "unit": measurement["unit"]}),
            " rejected: " if rejected else tag("strong", " accepted: "),
            *text(control["broken"]),
        ),
    )


def _note(note: dict[str, Any]) -> Tag:
    return tag("tr", _cell(0, *text(note["name"])), _cell(1, _value(note)), _cell(2, "reported only"), _cell(3))


def _cell(column: int, *children: Any) -> Tag:
    return tag("td", tag("span", *children), data_label=COLUMNS[column].partition(",")[0])


def _mark(passed: bool) -> Tag:
    return tag("span", "✓" if passed else "✗", classes="companion-in" if passed else "companion-out")


def _value(entry: dict[str, Any]) -> Tag:
    """A number that is not torn from its interval."""
    interval = interval_text(entry["interval"])
    value = tag("span", number(entry["value"], entry["unit"]), classes="companion-number")
    return tag("span", value, *([" ", tag("span", interval, classes="companion-interval")] if interval else []))


def larger_runs(row: LedgerRow) -> list[Tag]:
    """The verdicts of kept ``full`` and ``gpu`` runs."""
    items = []
    for preset in PRESETS_KEPT:
        runs = [record for record in row.larger if record["provenance"]["preset"] == preset]
        label = tag("span", preset, classes="companion-preset")
        items += [tag("li", label.deepcopy(), badge(run["verdict"]), f" {_provenance(run, row)}") for run in runs]
        if not runs:
            items.append(tag("li", label, tag("em", NOT_YET_RUN)))
    return items


def _provenance(record: dict[str, Any], row: LedgerRow) -> str:
    """When, on what, and with which parameters a kept run was made."""
    run = record["provenance"]
    sizes = run.get("parameters", {})
    changed = [f"{name} {value}" for name, value in sizes.items() if name not in COMMON and value is not None]
    machine = run.get("gpu") if run["preset"] == "gpu" else None
    if not machine:
        machine = ", ".join(filter(None, (run.get("cpu"), f"{run['cores']} cores" if run.get("cores") else "")))
    parts = [str(run["recorded"])[:10], machine, f"seed {record['seed']}", *changed]
    if run.get("method") not in (None, method_hash(row.chapter.folder)):
        parts.append("of an earlier version of the method")
    return " · ".join(filter(None, parts))


def ledger_table(ledgers: list[ChapterLedger]) -> list[Tag]:
    """Every claim of the book, with counts and a filter."""
    rows = [row for ledger in ledgers for row in ledger.rows]
    parts = [part for part in (*PARTS, "Further chapters") if any(row.chapter.part == part for row in rows)]
    verdicts = [row.verdict for row in rows]
    names = ("Verdict", "Claim", "Larger runs")
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))
    bodies = [_ledger_chapter(ledger) for ledger in ledgers]
    table = tag("table", head, *bodies, classes="companion-ledger", ids="ledger-table")
    return [counts(verdicts), _filter(verdicts, parts), tag("div", table, classes="companion-wide")]


def _filter(verdicts: list[str], parts: list[str]) -> Tag:
    """The form; it shows itself once the script runs, so that without scripts there is no form that does nothing."""
    present = [name for name in SIGN if name in verdicts]
    options = {
        "verdict": [tag("option", "all verdicts", value=""), *(tag("option", v, value=slug(v)) for v in present)],
        "part": [tag("option", "all parts", value=""), *(tag("option", part, value=part) for part in parts)],
    }
    fields = [
        tag("div", tag("label", label, for_=f"ledger-{name}"), tag("select", *options[name], ids=f"ledger-{name}"))
        for name, label in (("verdict", "Verdict"), ("part", "Part of the book"))
    ]
    search = tag("input", type="search", ids="ledger-text", autocomplete="off", placeholder="e.g. rate, gradient")
    fields.append(tag("div", tag("label", "Text", for_="ledger-text"), search))
    fields.append(tag("button", "Show all", type="reset"))
    shown = tag("p", classes="companion-shown", ids="ledger-shown", role="status", aria_live="polite")
    return tag("form", *fields, shown, classes="companion-filter", ids="ledger-filter", hidden="hidden")


def _ledger_chapter(ledger: ChapterLedger) -> Tag:
    chapter, page = ledger.chapter, landing_page(ledger.chapter)
    title = tag("a", PageTitle(page=page), to=page)
    about = tag("span", f"{chapter.part} · {ledger.declared.paper['title']}", classes="companion-about")
    heading = tag("tr", tag("th", title, " ", about, scope="rowgroup", colspan="3"), classes="companion-chapter")
    return tag("tbody", heading, *(_ledger_row(row, ledger) for row in ledger.rows))


def _ledger_row(row: LedgerRow, ledger: ChapterLedger) -> Tag:
    claim, chapter = row.claim, row.chapter
    link = tag("a", tag("code", claim.id), to=landing_page(chapter), fragment=f"#claim-{claim.id}")
    words = [chapter.name, chapter.part, ledger.declared.paper["title"], claim.id, claim.says, claim.because or ""]
    return tag(
        "tr",
        tag("td", badge(row.verdict)),
        tag("td", tag("p", link), tag("p", *text(claim.says)), *reason(row)),
        tag("td", tag("ul", *larger_runs(row), classes="companion-runs") if claim.checked_in else None),
        ids=f"{chapter.name}-{claim.id}",
        data_verdict=slug(row.verdict),
        data_part=chapter.part,
        data_text=" ".join(" ".join(words).lower().split()),
    )
