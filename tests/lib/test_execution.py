"""Runs are atomic and incremental: only what is stale runs, and no bad run replaces a good one."""

import json
import os
import random
import signal
import subprocess
import time

import nbformat
import pytest

from companion.build import build_book, execute_stale, select
from companion.errors import CompanionError
from companion.execution import is_fresh, read_source, refuse_to_lose_edits, sync
from companion.project import find_chapter, find_notebook
from companion.records import read_outputs


@pytest.fixture
def sums(checkout, monkeypatch):
    """The chapter, with its checkout the one that subprocesses find."""
    monkeypatch.setenv("COMPANION_ROOT", str(checkout.root))
    return find_chapter(checkout.root, "sums")


def stale(chapter):
    return [notebook.name for notebook in chapter.notebooks if not is_fresh(notebook)]


def test_executes_only_what_is_stale(checkout, sums):
    assert execute_stale([sums]) == 3
    assert stale(sums) == []
    assert execute_stale([sums]) == 0
    checkout.edit("theory.py", "# # Theory", "# # The theory")
    assert stale(sums) == ["theory"]
    checkout.edit("method.py", "# # Method", "# # The method")
    assert stale(sums) == ["method", "theory", "experiments"]
    outputs = read_outputs(sums.notebooks[1].product)
    assert outputs.claims["two-is-two"]["verdict"] == "holds"
    assert outputs.reports["size"]["value"] == 1
    assert outputs.metadata["complete"]


def test_a_new_library_makes_everything_stale(sums, monkeypatch, tmp_path):
    execute_stale([sums])
    monkeypatch.setattr("companion.execution.__file__", str(tmp_path / "execution.py"))
    assert stale(sums) == ["method", "theory", "experiments"]


def test_a_failed_run_keeps_the_partial_notebook_and_the_good_one(checkout, sums):
    execute_stale([sums])
    good = sums.notebooks[1].product.read_bytes()
    checkout.edit("method.py", "return a + b", "return a - b")
    failed = checkout.companion("execute", "sums/theory")
    assert failed.returncode == 1
    assert "two-is-two: fails, expected holds" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert sums.notebooks[1].product.read_bytes() == good
    partial = checkout.root / "runs" / "sums" / "theory.failed.ipynb"
    assert str(partial.relative_to(checkout.root)) in failed.stderr
    assert read_outputs(partial).claims["two-is-two"]["verdict"] == "fails"
    assert not is_fresh(sums.notebooks[1])


def test_a_missing_verdict_fails_the_run(checkout, sums):
    checkout.edit("theory.py", "check.verdict()", "")
    assert "no verdict was given" in checkout.companion("execute", "sums/theory").stderr
    checkout.edit("theory.py", "run.finish()", "")
    assert "no verdict on two-is-two" in checkout.companion("execute", "sums/theory").stderr


def test_a_flood_of_output_is_stopped(checkout, sums):
    checkout.edit("theory.py", "run.finish()", "for _ in range(100): print('x' * 1_000_000)\nrun.finish()")
    flooded = checkout.companion("execute", "sums/theory")
    assert flooded.returncode == 2
    assert "sums/theory: stopped, it printed more than 10 MB" in flooded.stderr
    assert not sums.notebooks[1].product.exists()
    assert (checkout.root / "runs" / "sums" / "theory.failed.ipynb").stat().st_size < 20e6


@pytest.mark.parametrize("attempt", range(4))
def test_kill_at_any_time_leaves_old_or_new(checkout, sums, attempt):
    execute_stale([sums])
    before = checkout.files()
    checkout.edit("theory.py", "# # Theory", "# # The theory")
    with subprocess.Popen(checkout.command("execute", "sums/theory"), env=checkout.environment()) as process:
        time.sleep(random.Random(attempt).uniform(0.2, 4.0))
        process.send_signal(signal.SIGKILL)
    nbformat.validate(nbformat.read(sums.notebooks[1].product, as_version=4))
    left = {path for path in checkout.files() - before if not path.startswith("runs/.partial/")}
    assert left == set()
    assert checkout.companion("execute", "sums/theory").returncode == 0
    assert is_fresh(sums.notebooks[1])


def test_interrupt_ends_cleanly(checkout, sums):
    checkout.edit("theory.py", "run.finish()", "import time; time.sleep(60)\nrun.finish()")
    process = subprocess.Popen(
        checkout.command("build", "sums"),
        cwd=checkout.root,
        env=checkout.environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(6)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
    assert not sums.notebooks[1].product.exists()


def test_two_at_once_execute_once(checkout, sums):
    checkout.edit("theory.py", "run.finish()", "open('count.txt', 'a').write('x')\nrun.finish()")
    both = [subprocess.Popen(checkout.command("execute", "sums/theory"), env=checkout.environment()) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert (checkout.chapter / "count.txt").read_text() == "x"


def test_two_runs_at_once_give_two_notebooks(checkout):
    command = checkout.command("run", "sums/theory", "-p", "size", "2")
    both = [subprocess.Popen(command, env=checkout.environment(), stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert len(list((checkout.root / "runs" / "sums").glob("theory-quick-*.ipynb"))) == 2


def test_two_runs_give_identical_notebooks_but_for_time(checkout, sums):
    from companion.records import comparable

    records = []
    for _ in range(2):
        assert checkout.companion("run", "sums/theory", "-o", "out.ipynb").returncode == 0
        records.append([comparable(r) for r in read_outputs(checkout.root / "out.ipynb").claims.values()])
    assert records[0] == records[1]


def test_sync_keeps_outputs_and_refuses_to_lose_an_edit(checkout, sums):
    theory = sums.notebooks[1]
    execute_stale([sums])
    sync(theory)
    assert is_fresh(theory)
    node = nbformat.read(theory.product, as_version=4)
    node.cells[0].source += "\n\nA thought."
    nbformat.write(node, theory.product)
    os.utime(theory.product, (time.time() + 10, time.time() + 10))
    with pytest.raises(CompanionError, match="jupytext --sync"):
        refuse_to_lose_edits(theory)
    result = checkout.companion("sync")
    assert result.returncode == 2
    assert "edited after theory.py" in result.stderr


def test_notebook_cells_have_stable_ids(sums):
    assert json.dumps(read_source(sums.notebooks[1])) == json.dumps(read_source(sums.notebooks[1]))


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("theory.py", "run.finish()", "run", "must end with run.finish()"),
        ("theory.py", '# %%\ncheck = claim("two-is-two")', '# %%\ncheck = claim("at-scale")', "but not both"),
        ("theory.py", '# %%\ncheck = claim("two-is-two")', '# %%\nname = "x"\ncheck = claim(name)', "literal text"),
        ("theory.py", "check.verdict()", 'check.verdict()\nclaim("two-is-two")', "more than once"),
        ("method.py", '# %% tags=["parameters"]', "# %%", "0 cells tagged"),
    ],
)
def test_a_chapter_of_another_shape_is_refused_before_anything_runs(checkout, sums, name, old, new, words):
    checkout.edit(name, old, new)
    before = checkout.files()
    with pytest.raises(CompanionError, match=words) as error:
        select(checkout.root, [])
    assert name in str(error.value)
    assert checkout.files() == before


def test_a_missing_file_is_named(checkout, sums):
    (checkout.chapter / "index.md").unlink()
    with pytest.raises(CompanionError, match=r"notebooks/sums: missing index\.md"):
        build_book(checkout.root)


def test_unknown_notebook(checkout):
    with pytest.raises(CompanionError, match="did you mean 'theory'"):
        find_notebook(checkout.root, "sums/theroy")
