"""Verdicts follow from the numbers, and a check whose control passes is void."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from companion import CompanionError, claim, start
from companion.checks import Check, judge
from companion.claims import Claim, ClaimsFile
from companion.parameters import RESERVED
from companion.records import comparable
from companion.run import ClaimsFailed, Run
from companion.show import report_html, text_html, verdict_html


def make_check(expect="holds", claim_id="a", says="$x$") -> Check:
    declared = Claim(id=claim_id, kind="theorem", says=says, expect=expect, checked_in="theory", because="so")
    run = Run("c", "theory", "quick", 0, "cpu", {}, ClaimsFile("claims.yml", {}, {claim_id: declared}))
    return Check(declared, run)


def test_holds_when_inside_and_control_outside():
    check = make_check().that("x", 1.0, within=(0.9, 1.1), control=2.0, broken="doubled")
    assert check.verdict() == "holds"
    check.run.finish()


@pytest.mark.parametrize("value", [0.5, 1.2, math.nan, math.inf])
def test_fails_when_outside(value):
    check = make_check().that("x", value, within=(0.9, 1.1), control=2.0, broken="doubled")
    assert check.verdict() == "fails"
    with pytest.raises(ClaimsFailed, match="fails, expected holds; outside the region: x"):
        check.run.finish()


@pytest.mark.parametrize("value", [1.0, 5.0])
def test_void_when_the_control_passes(value):
    check = make_check().that("x", value, within=(0.9, 1.1), control=1.05, broken="nothing at all")
    assert check.verdict() == "void"
    with pytest.raises(ClaimsFailed, match="void"):
        check.run.finish()


def test_every_measurement_needs_its_own_rejected_control():
    check = make_check().that("x", 1.0, within=(0.9, 1.1), control=2.0, broken="doubled")
    check.that("y", 1.0, within=(0.9, 1.1), control=1.0, broken="nothing")
    assert check.verdict() == "void"


def test_qualified_by_a_stated_limit_or_by_what_lies_beyond():
    limited = make_check("qualified").that("x", 1, within=(1, 1), control=2, broken="b")
    assert limited.verdict(limit="only here") == "qualified"
    beyond = make_check("qualified").that("x", 1, within=(1, 1), control=2, broken="b")
    beyond.that("far", 3, within=(1, 1), control=2, broken="b", beyond=True)
    assert beyond.verdict() == "qualified"
    beyond.run.finish()


def test_a_claim_that_holds_only_beyond_its_limit_fails():
    check = make_check().that("far", 1, within=(1, 1), control=2, broken="b", beyond=True)
    assert check.verdict() == "fails"


def test_interval_has_to_lie_in_its_region():
    def verdict(interval, control_interval):
        return (
            make_check()
            .that(
                "gain",
                0.05,
                within=(0.02, None),
                interval=interval,
                interval_within=(0, None),
                control=0.03,
                control_interval=control_interval,
                broken="shuffled",
            )
            .verdict()
        )

    assert verdict((0.01, 0.09), (-0.01, 0.07)) == "holds"
    assert verdict((-0.01, 0.09), (-0.01, 0.07)) == "fails"
    assert verdict((0.01, 0.09), (0.01, 0.07)) == "void"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"within": (None, None)}, "accepts everything"),
        ({"within": (2, 1)}, "low <= high"),
        ({"control": math.nan}, "NaN"),
        ({"broken": " "}, "broken must be"),
        ({"name": ""}, "name must be"),
        ({"interval_within": (0, 1)}, "needs an interval"),
    ],
)
def test_refuses_checks_that_could_not_fail(changes, message):
    arguments = {"name": "x", "value": 1.0, "within": (0, 1), "control": 2.0, "broken": "b", **changes}
    with pytest.raises(ValueError, match=message):
        make_check().that(**arguments)


def test_refuses_a_verdict_on_nothing_and_a_repeated_name():
    with pytest.raises(ValueError, match="nothing was measured"):
        make_check().verdict()
    with pytest.raises(ValueError, match="measured already"):
        make_check().that("x", 1, within=(0, 1), control=2, broken="b").note("y", 1).that(
            "x", 1, within=(0, 1), control=2, broken="b"
        )


def test_finish_misses_an_unchecked_claim():
    with pytest.raises(ClaimsFailed, match="no verdict was given"):
        make_check().run.finish()


@given(st.floats(), st.floats(allow_nan=False), st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_never_holds_outside_its_region_nor_with_an_accepted_control(value, control, low, high):
    low, high = min(low, high), max(low, high)
    verdict = judge(make_check().that("x", value, within=(low, high), control=control, broken="b").measurements)
    assert (verdict == "holds") == (low <= value <= high and not low <= control <= high)
    assert (verdict == "void") == (low <= control <= high)


def test_records_are_strict_json_and_text_is_escaped():
    hostile = "<script>alert(1)</script>"
    check = make_check(says=f"{hostile} $a<b$")
    check.that(hostile, 1, within=(0, 1), control=math.inf, broken=hostile)
    record = {"verdict": "holds", "expect": "holds", "limit": hostile, "measurements": check.measurements, "notes": []}
    json.dumps(record, allow_nan=False)
    page = verdict_html(record, check.claim)
    assert "<script" not in page
    assert r"\(a&lt;b\)" in page
    assert text_html("5$ and 6 * 7") == "5$ and 6 * 7"
    assert text_html("`a*b*c` is *so*") == "<code>a*b*c</code> is <em>so</em>"
    assert "<b" not in report_html({"name": "x", "value": 1.0, "unit": "<b>m</b>", "interval": None})


def test_comparable_leaves_out_time_only():
    notes = [{"name": "t", "timing": True}, {"name": "x", "timing": False}]
    record = {"id": "a", "seconds": 1.0, "measurements": [], "notes": notes}
    assert comparable(record) == {"id": "a", "measurements": [], "notes": [notes[1]]}


PRESETS = {name: {"size": 2, "rate": 0.5} for name in ("quick", "full", "gpu")}


def test_start_resolves_sizes_and_gives_independent_streams(checkout, monkeypatch):
    monkeypatch.chdir(checkout.chapter)
    run = start("theory", PRESETS, seed=3, size=None, rate=1)
    assert (run.size, run.rate, run.device, run.chapter) == (2, 1, "cpu", "sums")
    assert run.rng("a").random() == run.rng("a").random() != run.rng("b").random()
    assert run.torch_generator("a").initial_seed() == run.torch_generator("a").initial_seed()
    with pytest.raises(AttributeError, match="'size'"):
        _ = run.sise
    with pytest.raises(CompanionError, match="did you mean 'two-is-two'"):
        claim("two-is-tow")
    with pytest.raises(CompanionError, match="untested"):
        claim("at-scale")


def test_every_name_of_a_run_is_reserved():
    names = {name for name in dir(make_check().run) if not name.startswith("_")}
    assert names - RESERVED == {"preset", "seed", "device"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "quik"}, "did you mean 'quick'"),
        ({"seed": -1}, "seed must be"),
        ({"seed": True}, "seed must be"),
        ({"device": "tpu"}, "unknown device"),
        ({"size": 2.5}, "size must be of type int"),
        ({"rate": "fast"}, "rate must be of type float"),
        ({"preset": "gpu", "device": "cpu"}, "override at least one size"),
    ],
)
def test_start_refuses(checkout, monkeypatch, arguments, message):
    monkeypatch.chdir(checkout.chapter)
    with pytest.raises(CompanionError, match=message):
        start("theory", PRESETS, **{"size": None, "rate": None, **arguments})
