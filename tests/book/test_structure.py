"""The table of contents and the chapters on disk agree, and every chapter has the same shape."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import jupytext
import pytest
import yaml

from companion.claims import load_claims
from companion.project import CHAPTER_FILES, NOTEBOOKS, PARTS, Chapter, chapters, find_root
from companion.structure import check_chapter, claim_calls

ROOT = find_root()
CHAPTERS = chapters(ROOT)
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)


def toc_chapters() -> list[tuple[str, str]]:
    """Part and name of each chapter in the table of contents."""
    return [
        (part["caption"], Path(entry["file"]).parent.name)
        for part in TOC["parts"]
        for entry in part["chapters"]
        if entry["file"].startswith("notebooks/")
    ]


def test_the_contents_list_the_chapters_on_disk_in_order():
    assert toc_chapters() == [(chapter.part, chapter.name) for chapter in CHAPTERS]


def test_the_parts_are_in_order_and_about_is_last():
    captions = [part["caption"] for part in TOC["parts"]]
    known = [*PARTS, "Further chapters", "About"]
    assert captions == [caption for caption in known if caption in captions]
    assert captions[-1] == "About"


def test_every_chapter_has_its_three_notebooks_as_sections():
    for part in TOC["parts"]:
        for entry in part["chapters"]:
            folder, _, page = entry["file"].rpartition("/")
            if folder.startswith("notebooks/"):
                assert page == "index"
                assert [section["file"] for section in entry["sections"]] == [f"{folder}/{name}" for name in NOTEBOOKS]


def test_every_prose_page_is_in_the_contents():
    listed = {TOC["root"]} | {entry["file"] for part in TOC["parts"] for entry in part["chapters"]}
    pages = {f"book/{path.stem}" for path in (ROOT / "book").glob("*.md")}
    assert pages == {name for name in listed if name.startswith("book/")}


@each_chapter
def test_a_chapter_has_the_five_files_and_checks_what_it_declares(chapter: Chapter):
    assert chapter.missing_files() == []
    check_chapter(chapter)


@each_chapter
def test_a_notebook_begins_with_its_title_and_ends_with_finish(chapter: Chapter):
    for notebook in chapter.notebooks:
        cells = jupytext.read(notebook.source, fmt="py:percent").cells
        assert cells[0].cell_type == "markdown", notebook.label
        assert re.match(r"# \S", cells[0].source), f"{notebook.label}: the first cell must begin with a title"
        code = [cell.source for cell in cells if cell.cell_type == "code"]
        titles = [cell for cell in cells if cell.cell_type == "markdown" and re.search(r"^# ", cell.source, re.M)]
        assert len(titles) == 1, f"{notebook.label}: one title, then sections with ##"
        if notebook.name != "method":
            assert code[-1].strip() == "run.finish()", f"{notebook.label}: run.finish() in a cell of its own, last"
            assert sum("run.finish()" in source for source in code) == 1


@each_chapter
def test_each_claim_is_checked_once_in_the_notebook_it_names(chapter: Chapter):
    declared = load_claims(chapter.folder / "claims.yml").claims
    found = [
        (claim_id, notebook.name)
        for notebook in chapter.notebooks
        for claim_id, count in claim_calls(notebook.source).items()
        for _ in range(count)
    ]
    assert sorted(found) == sorted((c.id, c.checked_in) for c in declared.values() if c.checked_in)


@each_chapter
def test_every_figure_has_alt_text_and_one_is_the_headline(chapter: Chapter):
    headlines = 0
    for notebook in chapter.notebooks:
        for node in ast.walk(ast.parse(notebook.source.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            owner = getattr(getattr(node.func, "value", None), "id", "")
            where = f"{notebook.source}:{node.lineno}"
            assert (owner, name) != ("plt", "show"), f"{where}: show figures with companion.plotting.show"
            if name == "show" and not owner:
                given = {keyword.arg: keyword.value for keyword in node.keywords}
                assert "alt" in given, f"{where}: a figure without alt text"
                headlines += isinstance(given.get("headline"), ast.Constant) and given["headline"].value is True
    assert headlines == 1, f"{chapter.name} needs one figure with headline=True, has {headlines}"


@each_chapter
def test_the_landing_page_shows_the_headline_and_the_claims(chapter: Chapter):
    text = (chapter.folder / "index.md").read_text(encoding="utf-8")
    assert re.match(r"# \S", text)
    for name in ("headline", "claims"):
        assert len(re.findall(rf"^[`:]{{3,}}\{{{name}\}}", text, re.M)) == 1, f"index.md must show {{{name}}} once"


def test_a_chapters_files_are_the_documented_ones():
    page = (ROOT / "book" / "adding-a-chapter.md").read_text(encoding="utf-8")
    assert all(f"`{name}`\n: " in page for name in CHAPTER_FILES)


def test_the_bibliography_has_no_key_twice_and_every_citation_a_key():
    keys = re.findall(r"^@\w+\{([^,\s]+),", (ROOT / "book" / "references.bib").read_text(encoding="utf-8"), re.M)
    assert len(keys) == len(set(keys))
    sources = [path for chapter in CHAPTERS for path in chapter.folder.iterdir() if path.suffix in (".md", ".py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    cited = {key.strip() for group in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text) for key in group.split(",")}
    assert cited <= set(keys)
