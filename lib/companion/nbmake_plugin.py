"""nbmake over the book's notebooks, where one execution serves both the tests and the book.

Load it with ``pytest -p companion.nbmake_plugin --nbmake notebooks``. A notebook that is fresh (its outputs are of a
good quick run of exactly the present sources) is not executed again: its stored verdicts are read. A stale one is
executed by nbmake, and what it gave becomes the book's.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from nbmake import nb_run, pytest_items

from companion.errors import CompanionError
from companion.execution import OutputMeter, fingerprint, is_fresh, single_threaded, stamp, sync, write_atomically
from companion.parameters import read_signature
from companion.project import chapters, find_notebook, find_root
from companion.records import read_outputs
from companion.structure import check_chapter


class _MeteredClient(nb_run.NotebookClient):
    meter: OutputMeter | None = None

    def process_message(self, msg, *args, **kwargs):
        self.meter = self.meter or OutputMeter("notebook")
        self.meter.add(msg)
        return super().process_message(msg, *args, **kwargs)


def _runtest(item: pytest_items.NotebookItem) -> None:
    path = Path(item.filename)
    notebook = find_notebook(find_root(path.parent), f"{path.parent.name}/{path.stem}")
    if is_fresh(notebook):
        read_outputs(notebook.product)
        return
    mark, started = fingerprint(notebook), time.perf_counter()
    timeout = item.config.option.nbmake_timeout
    result = nb_run.NotebookRun(path, timeout, verbose=bool(item.config.option.verbose)).execute()
    if result.error is not None:
        raise pytest_items.NotebookFailedException(result)
    defaults = read_signature(notebook.source, notebook.label).defaults
    stamp(result.nb, notebook, defaults, time.perf_counter() - started, mark)
    write_atomically(result.nb, notebook.product)


def pytest_configure(config: pytest.Config) -> None:
    """Write the notebooks that nbmake is about to collect, once, and check the shape of their chapters."""
    os.environ.update(single_threaded())
    nb_run.NotebookClient = _MeteredClient
    pytest_items.NotebookItem.runtest = _runtest
    if hasattr(config, "workerinput"):
        return
    try:
        for chapter in chapters(find_root()):
            check_chapter(chapter)
            for notebook in chapter.notebooks:
                sync(notebook)
    except CompanionError as error:
        raise pytest.UsageError(str(error)) from error
