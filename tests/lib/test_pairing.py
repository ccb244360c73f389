"""JupyterLab's own way of saving: it updates the paired .py, and brings no noise into it."""

import shutil

from jupyter_server.services.contents.largefilemanager import LargeFileManager
from jupytext.sync_contentsmanager import build_sync_jupytext_contents_manager_class

from companion.execution import sync
from companion.project import find_chapter, find_root


def test_saving_updates_the_text_without_noise(checkout):
    shutil.copy(find_root() / "jupytext.toml", checkout.root)
    notebook = find_chapter(checkout.root, "sums").notebooks[1]
    sync(notebook)
    text = notebook.source.read_text()
    manager = build_sync_jupytext_contents_manager_class(LargeFileManager)(root_dir=str(checkout.root))
    path = "notebooks/sums/theory.ipynb"
    model = manager.get(path)
    assert model["content"].cells[0].source == "# Theory"
    model["content"].metadata["language_info"] = {"name": "python", "version": "3.99"}
    model["content"].cells[1].metadata["execution"] = {"iopub.status.busy": "now"}
    model["content"].cells[1].metadata["collapsed"] = True
    manager.save(model, path)
    assert notebook.source.read_text() == text
    model["content"].cells[0].source = "# The theory"
    manager.save(model, path)
    assert notebook.source.read_text() == text.replace("# # Theory", "# # The theory")
