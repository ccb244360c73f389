"""Load chapters from tests: their method as a module, their notebooks as executed namespaces."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jupytext

from companion.project import Notebook, find_notebook, find_root


def load_method(chapter: str) -> ModuleType:
    """Import ``notebooks/<chapter>/method.py`` as a module of its own (``<chapter>.method``)."""
    source = find_notebook(find_root(), f"{chapter}/method").source
    name = f"{chapter}.method"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, source)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def load_notebook(label: str, **parameters: Any) -> dict[str, Any]:
    """Run the code of a notebook in this process with other parameters and return its namespace.

    Verdicts are printed; ``run.finish()`` raises as it does in a kernel.

    Raises:
        CompanionError: for parameters that ``companion run`` would refuse.
    """
    from companion.parameters import read_signature

    notebook = find_notebook(find_root(), label)
    read_signature(notebook.source, label).validate(parameters)
    namespace: dict[str, Any] = {"__name__": "notebook"}
    with _inside(notebook):
        for cell in jupytext.read(notebook.source, fmt="py:percent").cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, f"{notebook.source.name}", "exec"), namespace)
                if "parameters" in cell.metadata.get("tags", []):
                    namespace.update(parameters)
    return namespace


@contextlib.contextmanager
def _inside(notebook: Notebook) -> Iterator[None]:
    """Be in the chapter's folder, where ``import method`` means this chapter's."""
    before, path, had = Path.cwd(), list(sys.path), sys.modules.pop("method", None)
    os.chdir(notebook.chapter.folder)
    sys.path.insert(0, str(notebook.chapter.folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        sys.modules.pop("method", None)
        if had is not None:
            sys.modules["method"] = had
