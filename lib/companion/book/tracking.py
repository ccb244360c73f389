"""Which chapters a page shows, so that a new run rewrites the pages that show it and no others."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from companion.project import Chapter, chapters
from companion.records import ChapterLedger, chapter_ledger

_ALL = ""
"""Stands for the list of chapters, in the place of a chapter's name."""


def root_of(env: Any) -> Path:
    """The repository: Jupyter Book's source folder."""
    return Path(env.srcdir)


def chapters_in_book(env: Any) -> list[Chapter]:
    """Chapters whose landing page is in the table of contents, in the order of the book."""
    root = root_of(env)
    if not (root / "notebooks").is_dir():
        return []
    return [chapter for chapter in chapters(root) if landing_page(chapter) in env.found_docs]


def landing_page(chapter: Chapter) -> str:
    """Name of the chapter's first page."""
    return f"notebooks/{chapter.name}/index"


def read(env: Any, chapter: Chapter) -> ChapterLedger:
    """Read a chapter, and note that the page being read depends on it.

    Raises:
        CompanionError: a file of the chapter is not valid.
    """
    mark = signature(chapter)
    _uses(env).setdefault(env.docname, {})[chapter.name] = mark
    return _read(chapter, mark)


def read_all(env: Any) -> list[ChapterLedger]:
    """Read every chapter of the book, and note that the page being read depends on them and on their list."""
    found = chapters_in_book(env)
    _uses(env).setdefault(env.docname, {})[_ALL] = _names(found)
    return [read(env, chapter) for chapter in found]


def signature(chapter: Chapter) -> str:
    """Hash of names and times of the files that a chapter's verdicts, figures and title come from."""
    folder = chapter.folder
    files = [folder / "claims.yml", folder / "index.md", folder / "method.py"]
    files += [notebook.product for notebook in chapter.notebooks]
    files += (chapter.root / "results" / chapter.name).glob("*.json")
    return _states(files)


def _states(files: Iterable[Path]) -> str:
    states = [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(files) if path.is_file()]
    return hashlib.sha256(repr(states).encode()).hexdigest()


def outdated(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Sphinx asks which pages to read again beside those whose own text changed."""
    style = _states(path for name in app.config.html_static_path for path in (Path(app.confdir) / name).rglob("*"))
    before, env.companion_style = getattr(env, "companion_style", style), style
    if style != before:
        return list(env.found_docs)  # or Sphinx, with no page to write, would keep the old styles and scripts
    found = chapters_in_book(env)
    now = {chapter.name: signature(chapter) for chapter in found} | {_ALL: _names(found)}
    return [
        page
        for page, used in _uses(env).items()
        if page in env.found_docs and any(now.get(name) != mark for name, mark in used.items())
    ]


def purge(app: Any, env: Any, docname: str) -> None:
    """Forget what a page used before it is read again."""
    _uses(env).pop(docname, None)


def merge(app: Any, env: Any, docnames: set[str], other: Any) -> None:
    """Collect what the pages used that another process read."""
    _uses(env).update({page: used for page, used in _uses(other).items() if page in docnames})


@functools.lru_cache(maxsize=256)
def _read(chapter: Chapter, mark: str) -> ChapterLedger:
    return chapter_ledger(chapter)


def _names(found: list[Chapter]) -> str:
    return " ".join(chapter.name for chapter in found)


def _uses(env: Any) -> dict[str, dict[str, str]]:
    if not hasattr(env, "companion_uses"):
        env.companion_uses = {}
    return env.companion_uses
