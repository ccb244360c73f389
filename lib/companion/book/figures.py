"""Figures of executed notebooks: their alt text and captions, headline figures, the gallery."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util import logging

from companion.book.markup import PageTitle, Tag, counts, tag, text
from companion.book.tracking import landing_page
from companion.project import PARTS
from companion.records import CLAIM_MIME, REPORT_MIME, ChapterLedger, Figure, collect_outputs

LOGGER = logging.getLogger(__name__)
KEPT_METADATA = ("kernelspec", "language_info")
LANGUAGE = {"name": "python", "file_extension": ".py", "pygments_lexer": "ipython3"}


def clean_source(app: Any, docname: str, source: list[str]) -> None:
    """Before MyST-NB reads a notebook: keep its figures' texts, and take out what is for machines only."""
    if not app.env.doc2path(docname).endswith(".ipynb"):
        return
    try:
        notebook = json.loads(source[0])
        figures = collect_outputs(notebook, docname).figures
        app.env.temp_data["companion_figures"] = {image_name(figure): figure for figure in figures}
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # not a notebook; MyST-NB says so
    notebook["metadata"] = {key: value for key, value in notebook["metadata"].items() if key in KEPT_METADATA}
    notebook["metadata"].setdefault("language_info", LANGUAGE)
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            for mime in (CLAIM_MIME, REPORT_MIME):
                output.get("data", {}).pop(mime, None)
    source[0] = json.dumps(notebook)


def describe_images(app: Any, document: nodes.document) -> None:
    """Give the figures of a notebook their alt text and caption; warn of one that has no alt text."""
    env = app.env
    figures: dict[str, Figure] = env.temp_data.pop("companion_figures", {})
    for image in list(document.findall(nodes.image)):
        figure = figures.get(Path(image["uri"]).name)
        if figure is None:
            continue
        if figure.alt:
            image["alt"] = figure.alt
        else:
            LOGGER.warning("a figure without alt text: show it with companion.plotting.show", location=image)
        if figure.caption:
            image.replace_self(captioned(image.deepcopy(), figure.caption))
    if any('class="math' in raw.astext() for raw in document.findall(nodes.raw)):
        # Verdict boxes hold maths, which Sphinx does not see, and without it would not load MathJax
        env.get_domain("math").data["has_equations"][env.docname] = True


def captioned(image: nodes.image, caption: str) -> Tag:
    """A figure with its caption."""
    return tag("figure", image, tag("figcaption", *text(caption)), classes="companion-figure")


def image_name(figure: Figure) -> str:
    """File name that MyST-NB gives to a PNG: the hash of its content."""
    return hashlib.sha256(base64.b64decode(figure.png)).hexdigest() + ".png"


def image_node(env: Any, figure: Figure, **attributes: Any) -> nodes.image | None:
    """Write a figure beside the ones that MyST-NB wrote, under the same name, and return its node."""
    try:
        name = image_name(figure)
    except binascii.Error:
        return None
    folder = Path(env.mystnb_config.output_folder)
    path = folder / name
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(base64.b64decode(figure.png))
        temporary.replace(path)
    # Sphinx takes a leading / for the source folder
    uri = "/" + Path(os.path.relpath(path.resolve(), env.srcdir)).as_posix()
    return nodes.image(uri=uri, alt=figure.alt or figure.caption or "Headline figure of the chapter", **attributes)


def headline(env: Any, ledger: ChapterLedger) -> Tag:
    """A chapter's headline figure with its caption."""
    image = image_node(env, ledger.headline) if ledger.headline else None
    if image is None:
        return tag(
            "p", tag("em", "The headline figure appears once the notebooks have run."), classes="companion-empty"
        )
    return captioned(image, ledger.headline.caption)


def gallery(env: Any, ledgers: list[ChapterLedger]) -> list[Tag]:
    """A card for each chapter, under the parts of the book."""
    made = []
    for part in (*PARTS, "Further chapters"):
        cards = [_card(env, ledger) for ledger in ledgers if ledger.chapter.part == part]
        if cards:
            made += [tag("h3", part, classes="companion-part"), tag("ul", *cards, classes="companion-gallery")]
    return [tag("div", *made)]


def _card(env: Any, ledger: ChapterLedger) -> Tag:
    page = landing_page(ledger.chapter)
    image = image_node(env, ledger.headline, loading="lazy") if ledger.headline else None
    picture = tag("div", image or tag("em", "not yet run"), classes="companion-picture")
    title = tag("p", tag("a", PageTitle(page=page), to=page), classes="companion-card-title")
    paper = tag("p", ledger.declared.paper["title"], classes="companion-about")
    verdicts = counts([row.verdict for row in ledger.rows], compact=True)
    return tag("li", picture, title, paper, verdicts, classes="companion-card")
