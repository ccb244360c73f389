"""Start a chapter: the five files, a test, and its line in the table of contents."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import yaml

from companion.errors import CompanionError
from companion.project import PARTS, Chapter

TEMPLATES = Path(__file__).parent / "assets" / "skeleton"


def create(root: Path, name: str) -> Chapter:
    """Create the chapter ``name`` from the templates.

    Raises:
        CompanionError: the name is not ``lower_case_words``, or a file of that chapter exists; nothing is written then.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise CompanionError(f"{name!r} is no chapter name: use lower-case words joined by _, e.g. sharp_minima")
    chapter = Chapter(root / "notebooks" / name)
    test = root / "tests" / "chapters" / f"test_{name}.py"
    for path in (chapter.folder, test):
        if path.exists():
            raise CompanionError(f"{path} exists already; choose another name")
    chapter.folder.mkdir(parents=True)
    try:
        for template in sorted(TEMPLATES.glob("*.txt")):
            target = test if template.stem == "test.py" else chapter.folder / template.stem
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(template.read_text(encoding="utf-8").replace("CHAPTER", name), encoding="utf-8")
        add_to_contents(chapter)
    except OSError:
        shutil.rmtree(chapter.folder, ignore_errors=True)
        test.unlink(missing_ok=True)
        raise
    return chapter


def add_to_contents(chapter: Chapter) -> None:
    """Add a chapter to its part of ``_toc.yml``, in the order of ``PARTS``; a part that is new gets its place."""
    path = chapter.root / "_toc.yml"
    toc = yaml.safe_load(path.read_text(encoding="utf-8"))
    folder = f"notebooks/{chapter.name}"
    entry = {"file": f"{folder}/index", "sections": [{"file": f"{folder}/{n.name}"} for n in chapter.notebooks]}
    part = next((part for part in toc["parts"] if part["caption"] == chapter.part), None)
    if part is None:
        part = {"caption": chapter.part, "chapters": []}
        toc["parts"].append(part)
    part["chapters"].append(entry)
    order = [name for names in PARTS.values() for name in names.split()]
    part["chapters"].sort(key=lambda e: _rank(Path(e["file"]).parent.name, order))
    toc["parts"].sort(key=lambda p: _rank(p["caption"], list(PARTS)) if p["caption"] != "About" else len(PARTS) + 1)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(yaml.safe_dump(toc, sort_keys=False, allow_unicode=True), encoding="utf-8")
    temporary.replace(path)


def _rank(name: str, order: list[str]) -> int:
    return order.index(name) if name in order else len(order)
