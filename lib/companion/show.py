"""How verdicts look: a box in a notebook, a line in a terminal. All text is escaped."""

from __future__ import annotations

import html
import re
import sys
from typing import Any

from companion.claims import Claim
from companion.records import decode_number

COLOURS = {"holds": "#1a7f37", "qualified": "#9a6700", "fails": "#b42318", "untested": "#6e7781", "void": "#b42318"}
SIGNS = {"holds": "✓", "qualified": "◐", "fails": "✗", "untested": "–", "void": "!"}


def in_kernel() -> bool:
    """Whether the code runs in a Jupyter kernel rather than as a script."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def emit(mime: str, record: dict[str, Any], box: str, text: str) -> None:
    """Show a record: as MIME data with an HTML box in a kernel, as text in a script."""
    if in_kernel():
        from IPython.display import display

        display({mime: record, "text/html": box, "text/plain": text}, raw=True)
    else:
        print(text)


def number_html(entry: dict[str, Any]) -> str:
    """A recorded value with its unit and interval, escaped."""
    return html.escape(f"{number(entry['value'], entry['unit'])} {interval_text(entry['interval'])}".rstrip())


def number(value: Any, unit: str = "") -> str:
    """Format a recorded number with four significant digits: ``1.234``, ``2.5e-09``, ``inf``."""
    value = decode_number(value)
    text = f"{value:.4g}" if abs(value) < 1e4 or abs(value) >= 1e7 else f"{value:,.0f}"
    return f"{text} {unit}".rstrip()


def interval_text(interval: list[Any] | None) -> str:
    """Format an interval: ``[1.2, 1.4]``, or an empty text."""
    return "" if interval is None else "[" + ", ".join("…" if end is None else number(end) for end in interval) + "]"


def region_text(bounds: list[Any] | None) -> str:
    """Format an accepted region: ``≥ 0.9``, ``≤ 2``, ``0.9 … 1.1``, ``= 0``."""
    if bounds is None:
        return ""
    low, high = bounds
    if low is None:
        return f"≤ {number(high)}"
    if high is None:
        return f"≥ {number(low)}"
    return f"= {number(low)}" if low == high else f"{number(low)} … {number(high)}"


def accepted_text(measurement: dict[str, Any]) -> str:
    """Format all that a measurement has to satisfy."""
    text = region_text(measurement["within"])
    if measurement["interval_within"] is not None:
        text += f"; interval {region_text(measurement['interval_within'])}"
    return text


_MARKUP = re.compile(r"`(?P<code>[^`]+)`|(?<!\\)\$(?P<maths>[^$]+)(?<!\\)\$|\*(?P<emphasis>[^*\s][^*]*)\*")


def text_html(text: str) -> str:
    """Escape text; keep its `code` and *emphasis*, and hand its ``$maths$`` to MathJax."""

    def render(match: re.Match[str]) -> str:
        content = match[match.lastgroup]
        if match.lastgroup == "maths":
            return rf'<span class="math notranslate nohighlight">\({content}\)</span>'
        tag = "code" if match.lastgroup == "code" else "em"
        return f"<{tag}>{content}</{tag}>"

    return _MARKUP.sub(render, html.escape(text))


def badge_html(verdict: str) -> str:
    """The coloured word that names a verdict."""
    colour = COLOURS[verdict]
    text = f"{SIGNS[verdict]} {verdict}"
    return f'<strong class="companion-badge companion-{verdict}" style="color:{colour}">{text}</strong>'


def measurements_html(record: dict[str, Any]) -> str:
    """The table of what was measured, what is accepted, and what the control gave."""
    rows = []
    for m in record["measurements"]:
        control = m["control"]
        mark = "✓" if m["passed"] else "✗"
        fate = "rejected" if control["rejected"] else "ACCEPTED"
        cells = [
            text_html(m["name"]) + (" <em>(beyond the limit)</em>" if m["beyond"] else ""),
            f"{mark} {number_html(m)}",
            accepted_text(m),
            f"{number_html({**control, 'unit': m['unit']})} {fate}: {text_html(control['broken'])}",
        ]
        rows.append("<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>")
    for note in record["notes"]:
        rows.append(
            f'<tr><td style="text-align:left">{text_html(note["name"])}</td>'
            f'<td style="text-align:left">{number_html(note)}</td><td></td><td></td></tr>'
        )
    head = "".join(
        f'<th style="text-align:left">{t}</th>' for t in ("measured", "value", "accepted", "negative control")
    )
    return f'<table class="companion-measurements"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def verdict_html(record: dict[str, Any], claim: Claim) -> str:
    """The verdict box of a claim."""
    verdict = record["verdict"]
    because = record["limit"] or (claim.because if verdict == claim.expect else None)
    unexpected = "" if verdict == claim.expect else f" <em>expected: {html.escape(claim.expect)}</em>"
    reason = f"<p>{text_html(because)}</p>" if because else ""
    return (
        f'<div class="companion-verdict companion-{verdict}" '
        f'style="border-left:4px solid {COLOURS[verdict]};padding:0.2em 1em;margin:0.5em 0;overflow-x:auto">'
        f"<p>{badge_html(verdict)} <code>{html.escape(claim.id)}</code>{unexpected}<br>{text_html(claim.says)}</p>"
        f"{reason}{measurements_html(record)}</div>"
    )


def verdict_text(record: dict[str, Any], claim: Claim) -> str:
    """The verdict as lines of text."""
    lines = [f"{SIGNS[record['verdict']]} {record['verdict'].upper()} {claim.id}: {claim.says}"]
    if record["verdict"] != claim.expect:
        lines[0] += f"  [expected: {claim.expect}]"
    if record["limit"]:
        lines.append(f"    limit: {record['limit']}")
    for m in record["measurements"]:
        control = m["control"]
        lines.append(
            f"    {'✓' if m['passed'] else '✗'} {m['name']}: {number(m['value'], m['unit'])} "
            f"{interval_text(m['interval'])} (accepted: {accepted_text(m)}; control, {control['broken']}: "
            f"{number(control['value'])} {'rejected' if control['rejected'] else 'ACCEPTED'})"
        )
    lines += [f"    · {report_text(note)}" for note in record["notes"]]
    return "\n".join(lines)


def report_html(record: dict[str, Any]) -> str:
    """One reported number."""
    return f'<p class="companion-report">{text_html(record["name"])}: <strong>{number_html(record)}</strong></p>'


def report_text(record: dict[str, Any]) -> str:
    """One reported number as text."""
    value = f"{number(record['value'], record['unit'])} {interval_text(record['interval'])}".rstrip()
    return f"{record['name']}: {value}"
