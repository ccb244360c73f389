"""Document nodes for the book's own markup, and text that can hold maths but no markup.

Claims and names of measurements are data. They pass through a parser that knows maths, code, emphasis and nothing else,
into document nodes; the HTML writer escapes what is left. So no text can bring a tag, a link or a directive of its own.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from companion.show import SIGNS

NOT_YET_RUN = "not yet run"
SIGN = {**SIGNS, NOT_YET_RUN: "○"}
"""The symbol of each verdict, in the order in which verdicts are counted."""

_PARSER = MarkdownIt("zero").enable(["backticks", "emphasis", "escape"]).use(dollarmath_plugin)
_SPANS = {"em_open": nodes.emphasis, "strong_open": nodes.strong}


class Tag(nodes.General, nodes.Element):
    """An HTML element: ``tag``, its ``attributes``, and optionally the page ``to`` which it links."""


class PageTitle(nodes.Inline, nodes.TextElement):
    """The title of the page ``page``, filled in once all pages are read."""


def tag(
    name: str,
    *children: nodes.Node | str | None,
    classes: str = "",
    ids: str | None = None,
    to: str | None = None,
    fragment: str = "",
    **attributes: Any,
) -> Tag:
    """Make an HTML element.

    Args:
        name: of the element.
        *children: nodes, or plain text, which is escaped when it is written; ``None`` is left out.
        classes: separated by spaces.
        ids: its anchor.
        to: name of the page that an ``a`` links.
        fragment: with its ``#``, where in that page.
        **attributes: further attributes; ``data_label`` becomes ``data-label``, ``for_`` becomes ``for``.
    """
    plain = {key.rstrip("_").replace("_", "-"): str(value) for key, value in attributes.items()}
    node = Tag(tag=name, attributes=plain, classes=classes.split(), ids=[ids] if ids else [])
    if to is not None:
        node["to"], node["fragment"] = to, fragment
    node += [nodes.Text(child) if isinstance(child, str) else child for child in children if child is not None]
    return node


def visit_tag_html(self: Any, node: Tag) -> None:
    attributes = dict(node["attributes"])
    if "to" in node:
        attributes["href"] = self.builder.get_relative_uri(self.builder.current_docname, node["to"]) + node["fragment"]
    # A writer gives `ids` and `classes` of the node itself
    self.body.append(self.starttag(node, node["tag"], "", **attributes))


def depart_tag_html(self: Any, node: Tag) -> None:
    if node["tag"] not in ("input", "br"):
        self.body.append(f"</{node['tag']}>")


def visit_plain(self: Any, node: nodes.Element) -> None:
    """Other formats than HTML show the content alone."""


def text(source: str) -> list[nodes.Node]:
    """Parse one line of text: ``$maths$``, `` `code` ``, ``*emphasis*``; all else stays text."""
    children = _PARSER.parseInline(" ".join(source.split()))[0].children or []
    return _nodes(iter(children))


def _nodes(tokens: Any) -> list[nodes.Node]:
    made: list[nodes.Node] = []
    for token in tokens:
        if token.nesting < 0:
            break
        if token.nesting > 0:
            made.append(_SPANS[token.type]("", "", *_nodes(tokens)))
        else:
            made.append(_leaf(token))
    return made


def _leaf(token: Token) -> nodes.Node:
    if token.type.startswith("math"):
        return nodes.math(token.content, token.content)
    if token.type == "code_inline":
        return nodes.literal(token.content, token.content)
    return nodes.Text(token.content)


def slug(verdict: str) -> str:
    """The verdict as part of a class name."""
    return verdict.replace(" ", "-")


def badge(verdict: str, text: str | None = None) -> Tag:
    """A verdict as symbol and word, so that colour is not needed to read it."""
    sign = tag("span", SIGN[verdict], aria_hidden="true")
    return tag("span", sign, f" {text or verdict}", classes=f"companion-badge companion-{slug(verdict)}")


def counts(verdicts: list[str], ledger: str | None = None, compact: bool = False) -> Tag:
    """How often each verdict occurs.

    Args:
        verdicts: one for each claim.
        ledger: the page to link, filtered by the verdict.
        compact: leave out the total.
    """
    items = []
    for name in SIGN:
        if name in verdicts:
            label = badge(name, f"{verdicts.count(name)} {name}")
            link = tag("a", label, to=ledger, fragment=f"#verdict={slug(name)}") if ledger else label
            items.append(tag("li", link))
    if not compact:
        noun = "claim" if len(verdicts) == 1 else "claims"
        items.append(tag("li", tag("strong", str(len(verdicts))), f" {noun}", classes="companion-total"))
    return tag("ul", *items, classes="companion-counts")
