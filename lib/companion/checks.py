"""Checks: a measured number, the region that accepts it, and a control that must be rejected."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from companion.claims import Claim
from companion.records import CLAIM_MIME, REPORT_MIME, encode_number
from companion.run import Run, current
from companion.show import emit, report_html, report_text, verdict_html, verdict_text

Bounds = tuple[float | None, float | None]


@dataclass
class Check:
    """The check of one claim, begun by ``claim(...)`` and ended by ``verdict()``."""

    claim: Claim
    run: Run
    measurements: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def that(
        self,
        name: str,
        value: float,
        *,
        within: Bounds,
        control: float,
        broken: str,
        interval: Bounds | None = None,
        interval_within: Bounds | None = None,
        control_interval: Bounds | None = None,
        unit: str = "",
        beyond: bool = False,
        timing: bool = False,
    ) -> Check:
        """Measure one thing that the claim says.

        Args:
            name: what was measured, in words.
            value: the measured number; NaN is never accepted.
            within: closed region that accepts it; ``None`` leaves an end open.
            control: the same measurement with the mechanism broken; the region must reject it.
            broken: what was broken for the control, in words.
            interval: uncertainty of ``value``, a 95 % interval unless the name says otherwise.
            interval_within: region that has to hold the whole interval as well.
            control_interval: the control's own interval, judged against ``interval_within``.
            unit: of the value.
            beyond: this part lies outside the limit that we found; if only such parts fail, the claim is *qualified*.
            timing: a wall-clock measurement, which no two runs repeat exactly.

        Raises:
            ValueError: an empty region or text, a NaN control, an interval without a region's counterpart.
        """
        name, broken = _text("name", name), _text("broken", broken)
        if any(measurement["name"] == name for measurement in self.measurements + self.notes):
            raise ValueError(f"{self.claim.id}: {name!r} was measured already; give each measurement its own name")
        value, control = float(value), float(control)
        if math.isnan(control):
            raise ValueError(f"{self.claim.id}: the control of {name!r} is NaN; a control has to be a measurement")
        if interval_within is not None and interval is None:
            raise ValueError(f"{self.claim.id}: interval_within of {name!r} needs an interval")
        within = _bounds("within", within)
        interval_within = _bounds("interval_within", interval_within) if interval_within is not None else None
        measured_ok = _inside(value, within) and _contained(interval, interval_within)
        control_ok = _inside(control, within) and (
            control_interval is None or _contained(control_interval, interval_within)
        )
        self.measurements.append(
            {
                "name": name,
                "value": encode_number(value),
                "interval": _encode(interval),
                "within": _encode(within),
                "interval_within": _encode(interval_within),
                "passed": measured_ok,
                "control": {
                    "value": encode_number(control),
                    "interval": _encode(control_interval),
                    "broken": broken,
                    "rejected": not control_ok,
                },
                "unit": unit,
                "beyond": beyond,
                "timing": timing,
            }
        )
        return self

    def note(
        self, name: str, value: float, *, interval: Bounds | None = None, unit: str = "", timing: bool = False
    ) -> Check:
        """Report a number beside the check; it is shown and recorded, not judged."""
        self.notes.append(_note(name, value, interval, unit, timing))
        return self

    def verdict(self, limit: str | None = None) -> str:
        """Judge the claim, show the verdict and record it.

        Args:
            limit: in words, what restricts the claim; a pass is then *qualified*.

        Returns:
            ``"holds"``, ``"qualified"``, ``"fails"``, or ``"void"`` if a control was accepted: such a check could not
            have failed and proves nothing.

        Raises:
            ValueError: nothing was measured.
        """
        if not self.measurements:
            raise ValueError(f"claim {self.claim.id!r}: nothing was measured; call that(...) before verdict()")
        result = judge(self.measurements, limit)
        record = {
            "schema": 1,
            "chapter": self.run.chapter,
            "notebook": self.run.notebook,
            "id": self.claim.id,
            "verdict": result,
            "expect": self.claim.expect,
            "limit": limit,
            "measurements": self.measurements,
            "notes": self.notes,
            "preset": self.run.preset,
            "seed": self.run.seed,
            "seconds": round(time.perf_counter() - self.started, 3),
        }
        self.run.verdicts[self.claim.id] = result
        self.run.problems.pop(self.claim.id, None)
        if result == "void":
            accepted = [m["name"] for m in self.measurements if not m["control"]["rejected"]]
            self.run.problems[self.claim.id] = f"void: the control passes too, so the check proves nothing: {accepted}"
        elif result != self.claim.expect:
            missed = [m["name"] for m in self.measurements if not m["passed"]]
            self.run.problems[self.claim.id] = f"{result}, expected {self.claim.expect}" + (
                f"; outside the region: {', '.join(missed)}" if missed else ""
            )
        emit(CLAIM_MIME, record, verdict_html(record, self.claim), verdict_text(record, self.claim))
        return result


def claim(claim_id: str) -> Check:
    """Begin the check of a claim that ``claims.yml`` declares for this notebook; its clock starts here."""
    run = current()
    return Check(run.declared_claim(claim_id), run)


def report(name: str, value: float, *, interval: Bounds | None = None, unit: str = "", timing: bool = False) -> None:
    """Record a named number outside any claim, for tables and prose."""
    run = current()
    record = {
        "schema": 1,
        "chapter": run.chapter,
        "notebook": run.notebook,
        **_note(name, value, interval, unit, timing),
    }
    emit(REPORT_MIME, record, report_html(record), report_text(record))


def judge(measurements: list[dict[str, Any]], limit: str | None = None) -> str:
    """Return the verdict that the measurements amount to."""
    if not all(measurement["control"]["rejected"] for measurement in measurements):
        return "void"
    core = [measurement["passed"] for measurement in measurements if not measurement["beyond"]]
    if not core or not all(core):
        return "fails"
    return "qualified" if limit or not all(measurement["passed"] for measurement in measurements) else "holds"


def _note(name: str, value: float, interval: Bounds | None, unit: str, timing: bool) -> dict[str, Any]:
    value = encode_number(float(value))
    return {"name": _text("name", name), "value": value, "interval": _encode(interval), "unit": unit, "timing": timing}


def _text(argument: str, text: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{argument} must be a non-empty text, not {text!r}")
    return text.strip()


def _bounds(argument: str, bounds: Bounds) -> Bounds:
    low, high = bounds
    if low is None and high is None:
        raise ValueError(f"{argument} must have at least one end, or it accepts everything")
    if any(end is not None and math.isnan(end) for end in bounds) or (None not in bounds and low > high):
        raise ValueError(f"{argument} must be an interval with low <= high, not {bounds!r}")
    return low, high


def _inside(value: float, bounds: Bounds) -> bool:
    low, high = bounds
    return (low is None or value >= low) and (high is None or value <= high) and not math.isnan(value)


def _contained(interval: Bounds | None, bounds: Bounds | None) -> bool:
    if bounds is None:
        return True
    return interval is not None and all(end is not None and _inside(float(end), bounds) for end in interval)


def _encode(bounds: Bounds | None) -> list[Any] | None:
    return None if bounds is None else [None if end is None else encode_number(float(end)) for end in bounds]
