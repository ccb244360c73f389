"""The book's directives and roles, on small Sphinx projects with made-up chapters."""

from __future__ import annotations

import re

import pytest
from fabricate import (
    figure_cell,
    keep_record,
    markdown,
    measurement,
    record,
    report,
    report_cell,
    write_chapter,
)
from small_book import RATE, SCALE, Project


def test_claims_show_verdict_measurement_control_and_reason(project: Project):
    write_chapter(project.root, "compressed_oja", [RATE, SCALE], [record("rate-t")])
    assert project.build().warnings == ""
    page, text = project.page("notebooks/compressed_oja/index"), project.text("notebooks/compressed_oja/index")
    assert 'id="claim-rate-t"' in page
    assert 'href="#claim-rate-t"' in page
    assert 'href="theory.html"' in page
    assert r"\(1/t\)" in page
    assert "1 [0.9, 1.1]" in text
    assert "0.5 … 1.5" in text
    assert "3 rejected: the noise is left out" in text
    assert "– untested at-scale empirical, from the paper" in text
    assert "Because: See rate-t ." in text
    assert "<em>large</em>" in page


def test_a_qualified_a_failed_and_a_void_claim_say_why(project: Project):
    claims = [
        {**RATE, "id": "narrow", "expect": "qualified", "because": "Declared."},
        {**RATE, "id": "wrong", "expect": "fails", "because": "The peer wins."},
        {**RATE, "id": "empty"},
    ]
    accepted = {"value": 1.0, "interval": None, "broken": "nothing", "rejected": False}
    records = [
        record(
            "narrow", "qualified", [measurement("a"), measurement("b", beyond=True, passed=False)], limit="only SGD"
        ),
        record("wrong", "fails", [measurement("a", passed=False)]),
        record("empty", "void", [measurement("a", control=accepted)]),
    ]
    write_chapter(project.root, "sums", claims, records)
    text = project.build().text("notebooks/sums/index")
    assert "Limit: only SGD" in text
    assert "(beyond the limit)" in text
    assert "Because: The peer wins." in text
    assert "Void: a control passes too" in text
    assert "accepted: nothing" in text


def test_before_the_notebooks_have_run_everything_says_so(project: Project):
    folder = write_chapter(project.root, "sums", [RATE, SCALE], executed=False)
    (folder / "index.md").write_text(
        "# Sums\n\n```{headline}\n```\n\n```{claims}\n```\n\n{measured}`rate-t/x` and {measured}`report/y`.\n"
    )
    assert project.build().warnings == ""
    text = project.text("notebooks/sums/index")
    assert "○ not yet run rate-t" in text
    assert "headline figure appears once" in text
    assert "not yet run and not yet run ." in text
    assert "○ 1 not yet run" in project.text("index")
    assert "– 1 untested" in project.text("index")


def test_kept_larger_runs_stand_beside_the_quick_verdict(project: Project):
    write_chapter(project.root, "sums", [RATE], [record("rate-t")])
    keep_record(project.root, "sums", record("rate-t", "fails", seed=3), method="another")
    sizes = {"preset": "gpu", "seed": 0, "device": "auto", "trials": None, "steps": 5}
    keep_record(project.root, "sums", record("rate-t"), "gpu", parameters=sizes)
    for page in ("notebooks/sums/index", "book/ledger"):
        text = project.build().text(page)
        assert "full ✗ fails 2026-07-01 · A processor, 16 cores · seed 3 · of an earlier version of the method" in text
        assert "gpu ✓ holds 2026-07-01 · NVIDIA H200 · seed 0 · steps 5" in text
    assert "quick ✓ holds this build" in project.text("notebooks/sums/index")


def test_presets_without_a_kept_run_say_so(project: Project):
    write_chapter(project.root, "sums", [RATE], [record("rate-t")])
    assert "full not yet run gpu not yet run" in project.build().text("notebooks/sums/index")


def test_the_ledger_lists_the_chapters_in_the_book_with_what_the_filter_needs(project: Project):
    write_chapter(project.root, "lk_losses", [RATE, SCALE], [record("rate-t")])
    write_chapter(project.root, "my_own", [RATE], [record("rate-t")])
    write_chapter(project.root, "left_out", [RATE], [record("rate-t")])
    project.exclude = ["notebooks/left_out"]
    page = project.build().page("book/ledger")
    assert page.count("data-verdict=") == 3
    assert 'data-part="Inference and systems"' in page
    assert 'data-part="Further chapters"' in page
    assert "left_out" not in page
    assert 'href="../notebooks/lk_losses/index.html#claim-at-scale"' in page
    assert "✓ 2 holds" in project.text("book/ledger")
    assert 'href="book/ledger.html#verdict=holds"' in project.page("index")
    assert re.search(r'<form[^>]*hidden="hidden"', page)  # without scripts there is no filter, and all rows show
    for field in re.findall(r'<label for="([^"]+)"', page):
        assert f'id="{field}"' in page


def test_the_gallery_shows_headlines_under_their_parts(project: Project):
    headline = figure_cell(90, alt="A line falls.", caption="It falls as $1/t$.", headline=True)
    write_chapter(project.root, "lk_losses", [RATE], [record("rate-t")], figure_cell(80, alt="Another."), headline)
    assert project.build().warnings == ""
    front, chapter = project.page("index"), project.page("notebooks/lk_losses/index")
    assert "<h3" in front
    assert "Inference and systems" in front
    assert "Optimisation" not in front
    (image,) = re.findall(r"<img[^>]*>", front)
    assert 'alt="A line falls."' in image
    assert 'loading="lazy"' in image
    assert (project.root / "_build" / "html" / re.search(r'src="([^"]+)"', image)[1]).is_file()
    assert 'href="notebooks/lk_losses/index.html">Lk losses' in front
    assert 'alt="A line falls."' in chapter
    assert r"It falls as <span" in chapter


def test_figures_in_notebooks_have_alt_text_and_caption(project: Project):
    write_chapter(project.root, "sums", [RATE], [record("rate-t")], figure_cell(10, alt='A "line".', caption="Why."))
    assert project.build().warnings == ""
    page = project.page("notebooks/sums/theory")
    assert 'alt="A &quot;line&quot;."' in page
    assert re.search(r"<figcaption>Why\.", page)


def test_a_figure_without_alt_text_is_a_warning(project: Project):
    write_chapter(project.root, "sums", [RATE], [record("rate-t")], figure_cell(10))
    assert re.search(r"sums/theory.*a figure without alt text", project.build().warnings)


def test_measured_numbers_in_prose(project: Project):
    numbers = [
        "{measured}`rate-t/slope of log $E e_t$`",
        "{measured-interval}`rate-t/slope of log $E e_t$`",
        "{measured}`rate-t/end`",
        "{measured}`report/speed / peer`",
        "{measured-interval}`other_sums/report/speed / peer`",
        "{measured}`other_sums/rate-t/end`",
    ]
    note = {"name": "end", "value": 12345.0, "interval": None, "unit": "steps", "timing": False}
    cells = [
        report_cell(report("speed / peer", 2.5, interval=[2, 3], unit="×")),
        markdown(f"## Prose\n\n{numbers[3]}!"),
    ]
    for chapter in ("sums", "other_sums"):
        write_chapter(project.root, chapter, [RATE], [record("rate-t", notes=[note])], *cells)
    project.write("notebooks/sums/index", "# Sums\n\n" + ";\n".join(numbers) + ".\n")
    project.write("page", "# Page\n\n{measured}`sums/rate-t/end`\n")
    assert project.build().warnings == ""
    assert "1 ; 1 [0.9, 1.1] ; 12,345 steps ; 2.5 × ; 2.5 × [2, 3] ; 12,345 steps ." in project.text(
        "notebooks/sums/index"
    )
    assert "2.5 × !" in project.text("notebooks/sums/theory")
    assert "12,345 steps" in project.text("page")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rate-t/slop", "measures no such thing"),
        ("rate/x", "has no claim 'rate': did you mean 'rate-t'"),
        ("report/sped", "reports no such number: did you mean 'speed'"),
        ("at-scale/x", "is untested"),
        ("rate-t", "names no number"),
        ("sums/rate-t", "names no number"),
    ],
)
def test_an_unknown_number_is_a_warning_that_names_the_page(project: Project, name: str, message: str):
    write_chapter(
        project.root, "sums", [RATE, SCALE], [record("rate-t")], report_cell(report("speed", 1)),
        index=f"# Sums\n\nIt is\n{{measured}}`{name}`.\n",
    )  # fmt: skip
    assert re.search(
        rf"notebooks/sums/index\.md:\d+: WARNING: measured: .*{re.escape(message)}", project.build().warnings
    )


def test_an_unknown_chapter_is_a_warning(project: Project):
    write_chapter(project.root, "sums", [RATE], [record("rate-t")])
    project.write("page", "# Page\n\n{measured}`summs/rate-t/x`\n")
    assert "unknown chapter 'summs': did you mean 'sums'" in project.build().warnings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```{claims}\n```", "belongs to no chapter"),
        ("```{claims} summs\n```", "did you mean 'sums'"),
        ("{verdict}`hold`", "no such verdict"),
    ],
)
def test_a_directive_that_cannot_be_filled_is_an_error(project: Project, text: str, message: str):
    write_chapter(project.root, "sums", [RATE], [record("rate-t")])
    project.write("page", f"# Page\n\n{text}\n")
    assert re.search(rf"page\.md:3: (ERROR|WARNING): .*{message}", project.build().warnings)


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(project: Project):
    folder = write_chapter(project.root, "sums", [RATE], [record("rate-t")])
    (folder / "claims.yml").write_text("claims:\n\t- id: x\n")
    assert re.search(r"claims\.yml:2: not valid YAML", project.build().warnings)
