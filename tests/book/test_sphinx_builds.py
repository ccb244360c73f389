"""No text brings markup into the book, and a build writes what changed and no more."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

from fabricate import (
    code,
    display,
    figure_cell,
    keep_record,
    measurement,
    png,
    record,
    report,
    report_cell,
    write_chapter,
)
from small_book import PAGES, RATE, SCALE, Project

HOSTILE = (
    '<script>alert(1)</script><img src=x onerror="alert(2)"> <b>b</b> [l](javascript:alert(3)) ![i](x.png) $a<b</b>$'
)


class Elements(HTMLParser):
    """Collect what a browser would take for elements."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_no_text_can_bring_markup_into_the_book(project: Project):
    claims = [
        {**RATE, "says": HOSTILE, "expect": "fails", "because": HOSTILE},
        {
            **SCALE,
            "says": "```{raw} html\n<script>alert(4)</script>\n```",
            "because": "{math}`x` [](index) <b>bold</b>",
        },
    ]
    control = {"value": 3.0, "interval": None, "broken": HOSTILE, "rejected": True}
    bad = measurement(HOSTILE, unit="<b>u</b>", control=control)
    note = {"name": HOSTILE + "2", "value": 1.0, "interval": None, "unit": "<b>", "timing": False}
    cells = [
        report_cell(report(HOSTILE, 1.0, unit="<b>kg</b>")),
        figure_cell(20, alt=HOSTILE, caption=HOSTILE, headline=True),
    ]
    write_chapter(project.root, "sums", claims, [record("rate-t", "fails", [bad], notes=[note], limit=HOSTILE)], *cells)
    sizes = {"preset": "full", "seed": 0, "device": "auto", "sizes": [HOSTILE]}
    keep_record(project.root, "sums", record("rate-t"), cpu=HOSTILE, parameters=sizes)
    project.build()
    for name in ("index", "book/ledger", "notebooks/sums/index", "notebooks/sums/theory"):
        page = project.page(name)
        body = page[page.index('<div class="body"') : page.index('<div class="clearer">')]
        for tag, attributes in Elements(body).found:
            assert tag not in ("script", "b", "i"), (name, tag)
            assert not {key for key in attributes if key.startswith("on")}, (name, tag, attributes)
            assert not (attributes.get("href") or "").startswith("javascript"), (name, tag, attributes)
            if tag == "img":
                assert attributes["src"].endswith(".png") and "_images" in attributes["src"], (name, attributes)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in project.page("book/ledger")


def test_a_new_run_rewrites_its_pages_and_no_others(project: Project):
    for name in ("lk_losses", "compressed_oja"):
        write_chapter(project.root, name, [RATE], [record("rate-t")])
    project.write("page", "# Page\n\n{measured}`lk_losses/rate-t/slope of log $E e_t$`\n")
    project.write("other", "# Other\n\nNothing measured.\n")
    project.build()
    assert project.build().read == set()

    path = project.root / "notebooks" / "lk_losses" / "theory.ipynb"
    path.write_text(path.read_text().replace('"value": 1.0', '"value": 1.25'))
    shown = {"index", "book/ledger", "page", "notebooks/lk_losses/index"}
    assert project.build().read == shown | {"notebooks/lk_losses/theory"}
    assert "1.25" in project.page("page")
    assert project.build().read == set()

    keep_record(project.root, "lk_losses", record("rate-t", "fails"))
    assert project.build().read == shown
    assert "✗ fails" in project.text("book/ledger")

    write_chapter(project.root, "my_own", [RATE], [record("rate-t")])
    assert {"index", "book/ledger"} < project.build().read
    assert "my_own" in project.page("book/ledger")
    assert "notebooks/lk_losses/index" not in project.read


def test_a_new_style_reaches_the_book(project: Project):
    project.build()
    (project.root / "static" / "style.css").write_text("p { color: blue }")
    assert project.build().read == set(PAGES)
    assert "blue" in (project.root / "_build" / "html" / "_static" / "style.css").read_text()
    assert project.build().read == set()


def test_two_processes_build_the_same_book(project: Project):
    for name in ("lk_losses", "compressed_oja", "sums"):
        headline = figure_cell(len(name), alt="A line.", headline=True)
        write_chapter(project.root, name, [RATE], [record("rate-t")], headline)
    for page in range(8):
        project.write(f"page{page}", "# Page\n\n{measured}`sums/rate-t/slope of log $E e_t$`\n")
    assert project.build(parallel=2).warnings == ""
    assert "✓ 3 holds" in project.text("index")
    assert project.build(parallel=2).read == set()


def test_pages_with_maths_in_verdict_boxes_load_mathjax(project: Project):
    write_chapter(project.root, "sums", [RATE], [record("rate-t")])
    project.build()
    assert re.search(r"<script[^>]*mathjax", project.page("notebooks/sums/theory"))
    assert not re.search(r"<script[^>]*mathjax", project.page("notebooks/sums/method"))


def test_other_outputs_of_a_notebook_stay(project: Project):
    both = display({"text/html": "<table class='dataframe'></table>", "text/plain": "x"})
    picture = display({"image/png": [png(3)[:20], png(3)[20:]], "text/plain": ""}, companion={"alt": "In two parts."})
    write_chapter(project.root, "sums", [RATE], [record("rate-t")], code("table", both), code("picture", picture))
    folder = project.root / "notebooks" / "sums"
    notebook = json.loads((folder / "method.ipynb").read_text())
    del notebook["metadata"]["language_info"]  # as Jupytext writes one that has not run
    notebook["cells"].append(code("x = 1"))
    (folder / "method.ipynb").write_text(json.dumps(notebook))
    project.build()
    assert "dataframe" in project.page("notebooks/sums/theory")
    assert "language" not in project.warnings
    assert "lexer" not in project.warnings
