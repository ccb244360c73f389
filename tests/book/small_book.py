"""A small Sphinx project to build chapters in that were made up."""

from __future__ import annotations

import io
import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

RATE = {"id": "rate-t", "kind": "theorem", "says": "Falls as $1/t$.", "checked_in": "theory", "expect": "holds"}
SCALE = {
    "id": "at-scale",
    "kind": "empirical",
    "says": "Also *large*.",
    "expect": "untested",
    "because": "See `rate-t`.",
}
PAGES = {
    "index": "# Front\n\n```{verdict-counts}\n```\n\n```{gallery}\n```\n",
    "book/ledger": "# All\n\n```{ledger}\n```\n",
}


class Project:
    """A small book: a front page, a ledger, and the chapters that a test writes."""

    def __init__(self, root: Path):
        self.root = root
        self.read: set[str] = set()
        self.warnings = ""
        self.exclude: list[str] = []
        (root / "static").mkdir()
        (root / "static" / "style.css").write_text("p { color: red }")
        for name, text in PAGES.items():
            self.write(name, text)

    def write(self, page: str, text: str) -> None:
        path = self.root / f"{page}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def build(self, parallel: int = 0) -> Project:
        """Build what changed; note which pages were read, and the warnings."""
        warnings = io.StringIO()
        overrides = {
            "extensions": ["myst_nb", "companion.sphinx_ext"],
            "exclude_patterns": ["_build", "results", *self.exclude],
            "nb_execution_mode": "off",
            "myst_enable_extensions": ["dollarmath"],
            "html_theme": "basic",
            "html_static_path": ["static"],
        }
        build = self.root / "_build"
        with patch_docutils(), docutils_namespace():
            app = Sphinx(
                self.root,
                None,
                build / "html",
                build / "doctrees",
                "html",
                confoverrides=overrides,
                status=None,
                warning=warnings,
                parallel=parallel,
            )
            self.read = set()
            app.connect("env-before-read-docs", lambda app, env, docnames: self.read.update(docnames))
            app.build()
        lines = re.sub(r"\x1b\[[\d;]*m", "", warnings.getvalue()).splitlines()
        self.warnings = "\n".join(line for line in lines if "included in any toctree" not in line)
        return self

    def page(self, name: str) -> str:
        return (self.root / "_build" / "html" / f"{name}.html").read_text(encoding="utf-8")

    def text(self, name: str) -> str:
        return " ".join(re.sub(r"<[^>]+>", " ", self.page(name)).split())
