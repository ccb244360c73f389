"""environment.yml, pyproject.toml and requirements.lock agree; notebooks survive a round trip."""

import re
import tomllib

import jupytext
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from companion.project import chapters, find_root

ROOT = find_root()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines if line)}


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    listed = [*PROJECT["dependencies"], *(line for name, lines in extras.items() if name != "all" for line in lines)]
    return [Requirement(line) for line in listed]


def test_the_lock_pins_what_the_project_asks_for():
    locked = pins()
    for requirement in requirements():
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


def test_all_means_all_extras():
    (line,) = PROJECT["optional-dependencies"]["all"]
    assert Requirement(line).extras == set(PROJECT["optional-dependencies"]) - {"all"}


def test_environment_installs_this_package_with_all_its_extras():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, packages = environment["dependencies"]
    assert (pip, packages) == ("pip", {"pip": ["-e .[all]"]})
    lowest = re.search(r">=(\d+)\.(\d+)", PROJECT["requires-python"]).groups()
    assert tuple(re.match(r"python=(\d+)\.(\d+)", python).groups()) >= lowest


def test_torch_is_pinned_everywhere():
    assert pins()["torch"] == "2.13.0"
    assert "torch==2.13.0" in PROJECT["dependencies"]


@pytest.mark.parametrize("notebook", [n for c in chapters(ROOT) for n in c.notebooks], ids=lambda n: n.label)
def test_saving_in_jupyterlab_leaves_no_noise(notebook):
    config = tomllib.loads((ROOT / "jupytext.toml").read_text())
    text = notebook.source.read_text(encoding="utf-8")
    node = jupytext.reads(text, fmt="py:percent")
    node.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    for cell in node.cells:
        cell.metadata["execution"] = {"iopub.status.busy": "now"}
    node.metadata["jupytext"] = {key: config[key] for key in ("notebook_metadata_filter", "cell_metadata_filter")}
    assert jupytext.writes(node, fmt="py:percent") == text
