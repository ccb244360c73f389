"""The book as readers get it, built once for all tests of a run."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from small_book import Project

from companion.project import find_root

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = [
    *["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
    *["--disable-component-update", "--disable-sync"],
    # Whatever a page may ask of another host fails at once
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the book's HTML. With pytest-xdist one worker builds it while the others wait."""
    from companion.build import build_book

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    outcome = shared / "book.built"
    with FileLock(shared / "book.lock"):
        if not outcome.is_file():
            try:
                outcome.write_text(str(build_book(find_root(), jobs=2).parent), encoding="utf-8")
            except Exception as error:
                outcome.write_text(f"error: {error}", encoding="utf-8")
    text = outcome.read_text(encoding="utf-8")
    if text.startswith("error: "):
        pytest.fail(text, pytrace=False)
    return Path(text)


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def address(book: Path) -> Iterator[str]:
    """Address at which the book is served, on this machine only."""
    handler = functools.partial(_Handler, directory=str(book))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless browser; without one on the machine the test is skipped."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(BROWSERS)} is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=path, args=OPTIONS)
        yield started
        started.close()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A book of a front page and a ledger, to which a test adds chapters."""
    return Project(tmp_path)
