"""Sphinx extension of the book: directives and roles that show what the executed notebooks hold.

Directives ``{claims}`` and ``{headline}`` show the claims and the headline figure of the chapter that the page belongs
to, or of the one named as argument; ``{ledger}``, ``{gallery}`` and ``{verdict-counts}`` show the whole book. The role
``{measured}`` prints a measured number by its name, ``{measured-interval}`` the same with its interval, ``{verdict}``
the badge of a verdict.
"""

from __future__ import annotations

from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from companion.book import figures, tracking
from companion.book.markup import (
    NOT_YET_RUN,
    SIGN,
    PageTitle,
    Tag,
    badge,
    counts,
    depart_tag_html,
    tag,
    visit_plain,
    visit_tag_html,
)
from companion.book.numbers import find_entry
from companion.book.tables import claims_table, ledger_table
from companion.errors import CompanionError
from companion.project import Chapter, find_chapter
from companion.records import ChapterLedger
from companion.show import interval_text, number

LOGGER = logging.getLogger(__name__)
LEDGER_PAGE = "book/ledger"


def chapter_of(env: Any, name: str | None = None) -> Chapter:
    """The chapter called ``name``, or the one in whose folder the page being read lies.

    Raises:
        CompanionError: the page belongs to no chapter, or there is no such chapter.
    """
    parts = env.docname.split("/")
    if name is None and (len(parts) != 3 or parts[0] != "notebooks"):
        raise CompanionError("this page belongs to no chapter: name one as argument")
    return find_chapter(tracking.root_of(env), name or parts[1])


class BookDirective(SphinxDirective):
    """A directive over the whole book; what cannot be read is an error at the line of the directive."""

    def run(self) -> list[nodes.Node]:
        try:
            return self.content_nodes()
        except CompanionError as error:
            raise self.error(str(error)) from error

    def content_nodes(self) -> list[nodes.Node]:
        raise NotImplementedError

    def ledgers(self) -> list[ChapterLedger]:
        return tracking.read_all(self.env)


class ChapterDirective(BookDirective):
    """A directive over one chapter."""

    optional_arguments = 1

    def ledger(self) -> ChapterLedger:
        return tracking.read(self.env, chapter_of(self.env, self.arguments[0] if self.arguments else None))


class Claims(ChapterDirective):
    """The table of a chapter's claims."""

    def content_nodes(self) -> list[nodes.Node]:
        return [claims_table(self.ledger(), self.env.found_docs)]


class Headline(ChapterDirective):
    """A chapter's headline figure."""

    def content_nodes(self) -> list[nodes.Node]:
        return [figures.headline(self.env, self.ledger())]


class Ledger(BookDirective):
    """All claims, with a filter."""

    def content_nodes(self) -> list[nodes.Node]:
        return ledger_table(self.ledgers())


class Gallery(BookDirective):
    """One card a chapter."""

    def content_nodes(self) -> list[nodes.Node]:
        return figures.gallery(self.env, self.ledgers())


class VerdictCounts(BookDirective):
    """How many claims hold, and so on, over the whole book."""

    def content_nodes(self) -> list[nodes.Node]:
        verdicts = [row.verdict for ledger in self.ledgers() for row in ledger.rows]
        return [counts(verdicts, LEDGER_PAGE if LEDGER_PAGE in self.env.found_docs else None)]


class Measured(SphinxRole):
    """A measured number by its name; an unknown name is a warning."""

    with_interval: ClassVar[bool] = False

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        name = " ".join(self.text.split())
        try:
            entry = find_entry(self.env, name, lambda chapter: chapter_of(self.env, chapter))
        except CompanionError as error:
            LOGGER.warning("measured: %s", error, location=self.get_location(), type="companion", subtype="measured")
            return [nodes.literal(name, name)], []
        if entry is None:
            return [tag("em", NOT_YET_RUN, title=name)], []
        shown, interval = number(entry["value"], entry["unit"]), interval_text(entry["interval"])
        if self.with_interval and interval:
            shown, interval = f"{shown} {interval}", ""
        title = f"{name}, interval {interval}" if interval else name
        return [tag("span", shown, classes="companion-measured", title=title)], []


class Verdict(SphinxRole):
    """The badge of a verdict, for prose about verdicts."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        if self.text not in SIGN:
            LOGGER.warning("no such verdict: %r", self.text, location=self.get_location(), type="companion")
            return [nodes.literal(self.text, self.text)], []
        return [badge(self.text)], []


class MeasuredInterval(Measured):
    """A measured number with its interval."""

    with_interval = True


def fill_titles(app: Sphinx, document: nodes.document, docname: str) -> None:
    """Put the titles of the pages where they are to be shown."""
    for node in list(document.findall(PageTitle)):
        title = app.env.titles.get(node["page"])
        children = [child.deepcopy() for child in title.children] if title else [nodes.Text(node["page"])]
        node.replace_self(children)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all this with Sphinx."""
    plain = (visit_plain, visit_plain)
    app.add_node(
        Tag, html=(visit_tag_html, depart_tag_html), latex=plain, text=plain, man=plain, texinfo=plain, override=True
    )
    app.add_node(PageTitle, html=plain, latex=plain, text=plain, man=plain, texinfo=plain, override=True)
    for name, directive in {
        "claims": Claims,
        "headline": Headline,
        "ledger": Ledger,
        "gallery": Gallery,
        "verdict-counts": VerdictCounts,
    }.items():
        app.add_directive(name, directive)
    app.add_role("measured", Measured())
    app.add_role("measured-interval", MeasuredInterval())
    app.add_role("verdict", Verdict())
    app.connect("source-read", figures.clean_source)
    app.connect("doctree-read", figures.describe_images)
    app.connect("doctree-resolved", fill_titles)
    app.connect("env-get-outdated", tracking.outdated)
    app.connect("env-purge-doc", tracking.purge)
    app.connect("env-merge-info", tracking.merge)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
