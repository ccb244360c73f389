"""nbmake executes what is stale, its run becomes the book's, and what is fresh is not executed again."""

import subprocess
import sys

import pytest

from companion.execution import is_fresh
from companion.project import find_chapter


@pytest.fixture
def nbmake(checkout):
    def run(*arguments):
        command = [sys.executable, "-m", "pytest", "-p", "companion.nbmake_plugin", "--nbmake", "notebooks", *arguments]
        return subprocess.run(command, cwd=checkout.root, env=checkout.environment(), capture_output=True, text=True)

    return run


def test_one_execution_serves_tests_and_book(checkout, nbmake):
    checkout.edit("theory.py", "run.finish()", "open('count.txt', 'a').write('x')\nrun.finish()")
    first = nbmake()
    assert "3 passed" in first.stdout, first.stdout
    assert all(is_fresh(notebook) for notebook in find_chapter(checkout.root, "sums").notebooks)
    assert "3 passed" in nbmake().stdout
    assert (checkout.chapter / "count.txt").read_text() == "x"


def test_a_red_claim_is_a_red_test(checkout, nbmake):
    checkout.edit("method.py", "return a + b", "return a - b")
    result = nbmake()
    assert result.returncode == 1
    assert "1 failed, 2 passed" in result.stdout
    assert "two-is-two: fails, expected holds" in result.stdout
    assert not is_fresh(find_chapter(checkout.root, "sums").notebooks[1])


def test_a_flood_of_output_is_stopped(checkout, nbmake):
    checkout.edit("theory.py", "run.finish()", "for _ in range(100): print('x' * 1_000_000)\nrun.finish()")
    result = nbmake()
    assert result.returncode == 1
    assert "printed more than 10 MB" in result.stdout


def test_a_chapter_of_another_shape_is_a_usage_error(checkout, nbmake):
    (checkout.chapter / "index.md").unlink()
    result = nbmake()
    assert result.returncode == 4
    assert "missing index.md" in result.stderr
