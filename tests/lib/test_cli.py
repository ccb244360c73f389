"""The command line refuses in one clear line, with status 2, having run and written nothing."""

import json
import os
import subprocess

import pytest
import torch

from companion.records import read_outputs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "sums/theory", "-p", "sise", "3"], "did you mean 'size'"),
        (["run", "sums/theory", "-p", "size", "x"], "size must be of type int"),
        (["run", "sums/theory", "-p", "size", "[1"], "cannot read the value"),
        (["run", "sums/theory", "-r", "size", "3"], "size must be of type int"),
        (["run", "sums/theory", "--preset", "ful"], "did you mean 'full'"),
        (["run", "sum/theory"], "did you mean 'sums'"),
        (["run", "sums"], "CHAPTER/NOTEBOOK"),
        (["run", "sums/thery"], "did you mean 'theory'"),
        (["run", "sums/theory", "-o", "notebooks/sums/theory.ipynb"], "belongs to the book"),
        (["build", "sum"], "did you mean 'sums'"),
        (["new", "Sums"], "no chapter name"),
        (["new", "sums"], "exists already"),
        (["record", "notebooks/sums/theory.py"], "not a readable notebook"),
    ],
)
def test_refusals(checkout, arguments, words):
    before = checkout.files()
    result = checkout.companion(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert checkout.files() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_gpu_without_a_gpu(checkout):
    result = checkout.companion("run", "sums/theory", "--preset", "gpu")
    assert result.returncode == 2
    assert "needs a CUDA GPU" in result.stderr


def test_run_takes_parameters_and_leaves_the_book_alone(checkout):
    (checkout.root / "parameters.yml").write_text("size: 9\nrate: 1e-3\n")
    result = checkout.companion("run", "sums/theory", "-f", "parameters.yml", "-p", "size", "7", "-p", "rate", "1e-3")
    assert result.returncode == 0, result.stderr
    assert "holds     two-is-two" in result.stdout
    path = checkout.root / result.stdout.splitlines()[-1]
    outputs = read_outputs(path)
    assert outputs.reports["size"]["value"] == 7
    assert outputs.metadata["parameters"]["rate"] == 1e-3
    assert not (checkout.chapter / "theory.ipynb").exists()


def test_list(checkout):
    assert checkout.companion("execute", "sums/theory").returncode == 0
    text = checkout.companion("list").stdout
    assert "✓ two-is-two: holds" in text
    assert "experiments (not yet run)" in text
    assert "untested: at-scale" in text


def test_list_in_a_plain_terminal(checkout):
    environment = {**checkout.environment(), "PYTHONIOENCODING": "utf-8", "LC_ALL": "C"}
    result = subprocess.run(checkout.command("list"), env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout


def git(checkout, *arguments):
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=checkout.root, check=True, capture_output=True)


def run_full(checkout):
    result = checkout.companion("run", "sums/theory", "--preset", "full")
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


@pytest.fixture
def committed(checkout):
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "first")
    return checkout


def test_record_keeps_a_full_run(committed):
    result = committed.companion("record", run_full(committed))
    assert result.returncode == 0, result.stderr
    kept = json.loads((committed.root / "results" / "sums" / "theory-full-seed0.json").read_text())
    assert kept["claims"][0]["verdict"] == "holds"
    assert kept["commit"]
    assert kept["packages"]["numpy"]
    assert "full" not in committed.companion("list").stderr
    assert committed.companion("record", run_full(committed)).returncode == 0


def test_record_refuses(committed):
    quick = committed.companion("run", "sums/theory").stdout.splitlines()[-1]
    assert "a 'quick' run" in committed.companion("record", quick).stderr
    path = run_full(committed)
    committed.edit("method.py", "a + b", "b + a")
    assert "another version of sums/theory" in committed.companion("record", path).stderr
    assert "uncommitted changes" in committed.companion("record", run_full(committed)).stderr
    assert not (committed.root / "results").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_record_with_a_read_only_results_folder(committed):
    results = committed.root / "results"
    results.mkdir(mode=0o555)
    result = committed.companion("record", run_full(committed))
    assert result.returncode == 2
    assert "results" in result.stderr


def test_record_where_results_cannot_be_a_folder(committed):
    (committed.root / "results").write_text("in the way")
    result = committed.companion("record", run_full(committed))
    assert result.returncode == 2
    assert "results" in result.stderr
    assert "cannot be written" in result.stderr


def test_without_git(checkout):
    environment = {**checkout.environment(), "PATH": "/nonexistent"}
    result = subprocess.run(
        checkout.command("run", "sums/theory"), cwd=checkout.root, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    outputs = read_outputs(checkout.root / result.stdout.splitlines()[-1])
    assert outputs.metadata["commit"] is None


def test_new_makes_a_chapter_that_runs(checkout):
    (checkout.root / "tests" / "chapters").mkdir(parents=True)
    result = checkout.companion("new", "sharp_minima")
    assert result.returncode == 0, result.stderr
    for notebook in ("method", "theory", "experiments"):
        result = checkout.companion("execute", f"sharp_minima/{notebook}")
        assert result.returncode == 0, result.stderr
    assert "notebooks/sharp_minima/index" in (checkout.root / "_toc.yml").read_text()


def test_a_notebook_is_a_script(checkout):
    script = [*checkout.command()[:1], str(checkout.chapter / "theory.py")]
    result = subprocess.run(script, cwd=checkout.root.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "✓ HOLDS two-is-two" in result.stdout
    assert "1 of 1 verdicts as expected." in result.stdout
