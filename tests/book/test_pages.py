"""The built book in a browser: maths, search, ledger, figures, narrow screens, contrast, no request to other hosts."""

from __future__ import annotations

import itertools
import json
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from probes import CONTRASTS, HEADINGS, IMAGES, RAW_MATHS, TOO_WIDE

from companion.project import chapters, find_root

TOC = yaml.safe_load((find_root() / "_toc.yml").read_text(encoding="utf-8"))


def pages_in(entries: list[dict[str, Any]]) -> list[str]:
    """Names of pages, with those of their sections."""
    return [name for entry in entries for name in (entry["file"], *pages_in(entry.get("sections", [])))]


PAGES = [TOC["root"], *(name for part in TOC["parts"] for name in pages_in(part["chapters"]))]
CHAPTERS = [name for name in PAGES if name.startswith("notebooks/") and name.endswith("/index")]
WITH_VERDICTS = ["book/verdicts", "book/ledger", *CHAPTERS[:3], *(name[:-5] + "theory" for name in CHAPTERS[:3])]
SMALL_PRINT = (
    ".companion-about, .companion-reason, .companion-runs li, .companion-verdict p, .companion-measurements :is(th, td)"
)
PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 900}


@dataclass
class Visit:
    """An open page and what it complained of."""

    page: Any
    address: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def go(self, name: str) -> Visit:
        """Open a page and wait for its maths."""
        path, hash_, fragment = name.partition("#")
        self.page.goto(f"{self.address}{path}.html{hash_}{fragment}", wait_until="load")
        self.page.evaluate("async () => { await window.MathJax?.startup?.promise }")
        return self


@pytest.fixture(scope="module")
def windows(browser: Any) -> Iterator[Callable[..., Any]]:
    """One browser profile for each kind of window, so that pages share what was loaded."""
    contexts: dict[str, Any] = {}

    def window(theme: str, **options: Any) -> Any:
        key = json.dumps([theme, options])
        if key not in contexts:
            contexts[key] = browser.new_context(**options)
            contexts[key].add_init_script(
                f"localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}')"
            )
        return contexts[key]

    yield window
    for context in contexts.values():
        context.close()


@pytest.fixture
def visit(windows: Callable[..., Any], address: str) -> Iterator[Callable[..., Visit]]:
    """Open a page in a window of a kind; what it complains of and whom it asks is noted."""
    opened = []

    def open_page(viewport: dict[str, int] = DESKTOP, theme: str = "light", **options: Any) -> Visit:
        page = windows(theme, viewport=viewport, **options).new_page()
        opened.append(page)
        visit = Visit(page, address)
        local = (address, "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(local) else visit.strangers.append(r.url))
        page.on("console", lambda message: visit.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: visit.errors.append(str(error)))
        page.on("response", lambda r: visit.errors.append(f"{r.status}: {r.url}") if r.status >= 400 else None)
        return visit

    yield open_page
    for page in opened:
        page.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_sound_on_a_phone(visit: Callable[..., Visit], name: str):
    seen = visit(PHONE).go(name)
    levels = seen.page.evaluate(HEADINGS)
    problems = {
        "titles, of which there should be one": [] if levels.count(1) == 1 else levels,
        "skipped levels of headings": [pair for pair in itertools.pairwise(levels) if pair[1] > pair[0] + 1],
        "wider than the screen": seen.page.evaluate(TOO_WIDE),
        "maths not typeset": seen.page.evaluate(RAW_MATHS),
        "images without alt text": seen.page.evaluate(IMAGES),
        "errors": seen.errors,
        "requests to other hosts": seen.strangers,
    }
    assert {what: found for what, found in problems.items() if found} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", WITH_VERDICTS)
def test_verdicts_can_be_read_in_both_themes(visit: Callable[..., Visit], name: str, theme: str):
    seen = visit(theme=theme).go(name)
    assert seen.page.evaluate("() => document.documentElement.dataset.theme") == theme
    badges = seen.page.evaluate(CONTRASTS, ".companion-badge")
    assert badges
    small = seen.page.evaluate(CONTRASTS, SMALL_PRINT)
    assert [entry for entry in badges + small if entry[1] < 4.5] == []


@pytest.mark.skipif(not CHAPTERS, reason="the book has no chapter yet")
def test_maths_is_typeset(visit: Callable[..., Visit]):
    seen = visit().go("book/ledger")
    assert seen.page.locator("article mjx-container").count() > 0
    await_fonts = "async () => { await document.fonts.ready; return [...document.fonts].map(font => font.status) }"
    loaded = seen.page.evaluate(await_fonts)
    assert "loaded" in loaded, "MathJax's fonts come with the book"


def test_a_formula_can_bring_no_link(visit: Callable[..., Visit]):
    seen = visit().go(CHAPTERS[0] if CHAPTERS else "book/ledger")
    seen.page.evaluate(
        r"""async () => {
          const p = document.createElement("p");
          p.className = "math";
          p.id = "formula";
          p.textContent = "\\(\\href{javascript:alert(1)}{x} \\style{color:red}{y} \\require{html}\\href{http://a.b}{z}\\)";
          document.querySelector("article").append(p);
          await MathJax.typesetPromise([p]);
        }"""
    )
    assert seen.page.locator("#formula mjx-container").count() == 1
    assert seen.page.locator("#formula a, #formula [href]").count() == 0
    assert seen.strangers == []


@pytest.mark.skipif(not CHAPTERS, reason="the book has no chapter yet")
@pytest.mark.parametrize("name", CHAPTERS[:3])
def test_search_finds_a_chapter(visit: Callable[..., Visit], name: str):
    seen = visit().go(name)
    title = seen.page.locator("article h1").first.evaluate("e => e.firstChild.textContent")
    seen.page.goto(f"{seen.address}search.html?q={urllib.parse.quote(title)}")
    seen.page.wait_for_selector(f"#search-results a[href*='{name}.html']", timeout=15_000)
    assert seen.errors == []
    assert seen.strangers == []


@pytest.mark.skipif(not CHAPTERS, reason="the book has no chapter yet")
def test_the_ledger_can_be_filtered_and_the_filter_linked(visit: Callable[..., Visit]):
    seen = visit().go("book/ledger")
    page = seen.page
    rows = page.locator("#ledger-table tr[data-verdict]")
    total = rows.count()
    shown = page.locator("#ledger-table tr[data-verdict]:visible")
    status = page.locator("#ledger-shown")
    assert total == shown.count() > 0
    assert status.inner_text() == f"{total} of {total} claims shown"
    assert status.get_attribute("aria-live") == "polite"

    verdict = page.locator("#ledger-verdict option").nth(1).get_attribute("value")
    part = page.locator("#ledger-part option").nth(1).get_attribute("value")
    page.get_by_label("Verdict", exact=True).select_option(verdict)
    page.get_by_label("Part of the book").select_option(part)
    wanted = page.locator(f'#ledger-table tr[data-verdict="{verdict}"][data-part="{part}"]').count()
    assert shown.count() == wanted
    assert status.inner_text() == f"{wanted} of {total} claims shown"

    fresh = visit()
    fresh.page.goto(page.url)
    assert fresh.page.locator("#ledger-table tr[data-verdict]:visible").count() == wanted

    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("n => document.querySelectorAll('tr[data-verdict]:not([hidden])').length === n", arg=total)
    assert "#" not in page.url

    first = rows.first.locator("code").first.inner_text()
    page.get_by_label("Text", exact=True).fill(f"{first} ")
    assert 0 < shown.count() <= total
    assert all(first in text for text in shown.evaluate_all("rows => rows.map(row => row.dataset.text)"))
    page.get_by_label("Text", exact=True).fill("no claim says this")
    assert shown.count() == 0
    assert page.locator("#ledger-table .companion-chapter:visible").count() == 0
    assert seen.errors == fresh.errors == []


def test_odd_addresses_of_the_ledger_show_all(visit: Callable[..., Visit]):
    for fragment in ("#verdict=nonsense", "#part=%3Cscript%3E", "#anchor", "#=", "#text="):
        seen = visit().go(f"book/ledger{fragment}")
        assert seen.page.locator("tr[data-verdict][hidden]").count() == 0, fragment
        assert seen.errors == []


def test_the_ledger_is_whole_without_scripts(visit: Callable[..., Visit], address: str):
    page = visit(java_script_enabled=False).page
    page.goto(f"{address}book/ledger.html")
    assert page.locator("tr[data-verdict]").count() == page.locator("tr[data-verdict]:visible").count()
    assert not page.locator("#ledger-filter").is_visible()


@pytest.mark.skipif(not CHAPTERS, reason="the book has no chapter yet")
def test_claims_of_the_ledger_lead_to_their_chapters(visit: Callable[..., Visit]):
    seen = visit().go("book/ledger")
    links = seen.page.locator("#ledger-table tr[data-verdict] a").evaluate_all("links => links.map(link => link.href)")
    for link in links[:: max(1, len(links) // 5)]:
        seen.page.goto(link)
        assert seen.page.locator(":target").count() == 1, link


@pytest.mark.skipif(not CHAPTERS, reason="the book has no chapter yet")
def test_the_front_page_shows_every_chapter_with_its_figure(visit: Callable[..., Visit]):
    seen = visit().go(TOC["root"])
    cards = seen.page.locator(".companion-card")
    assert cards.count() == len(CHAPTERS) == len(chapters(find_root()))
    for index in range(cards.count()):
        image = cards.nth(index).locator("img")
        image.scroll_into_view_if_needed()
        seen.page.wait_for_function("e => e.complete && e.naturalWidth > 100", arg=image.element_handle())
        assert cards.nth(index).locator(".companion-badge").count() > 0
    assert seen.page.locator(".companion-gallery a").count() == len(CHAPTERS)


def test_the_address_without_a_page_leads_to_the_front_page(visit: Callable[..., Visit], address: str):
    seen = visit()
    seen.page.goto(address)
    seen.page.wait_for_url(f"**/{TOC['root']}.html")
    assert seen.errors == []
