"""Build the book: execute what is stale, several notebooks at a time, then let Jupyter Book write the pages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import yaml
from filelock import FileLock
from tqdm import tqdm

from companion.errors import CompanionError
from companion.execution import RunFailed, is_fresh, python_command, single_threaded
from companion.project import Chapter, Notebook, chapters, find_chapter
from companion.structure import check_chapter

DEFAULT_JOBS = 2


def select(root: Path, names: tuple[str, ...] | list[str]) -> list[Chapter]:
    """Return the named chapters, all of them for no name, each of the right shape.

    Raises:
        CompanionError: an unknown chapter, or one that lacks something.
    """
    chosen = [find_chapter(root, name) for name in names] if names else chapters(root)
    for chapter in chosen:
        check_chapter(chapter)
    return chosen


def execute_stale(chosen: list[Chapter], jobs: int = DEFAULT_JOBS) -> int:
    """Execute the notebooks whose sources changed since their last good run, ``jobs`` at a time.

    Returns:
        How many were executed.

    Raises:
        RunFailed: naming every notebook that failed; the others were executed all the same.
    """
    stale = [notebook for chapter in chosen for notebook in chapter.notebooks if not is_fresh(notebook)]
    if not stale:
        return 0
    failures: list[str] = []
    finished = 0
    processes: dict[str, subprocess.Popen[str]] = {}

    def run(notebook: Notebook) -> tuple[Notebook, int, str]:
        process = subprocess.Popen(
            python_command("execute", notebook.label),
            cwd=notebook.chapter.root,
            env=single_threaded(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes[notebook.label] = process
        output, _ = process.communicate()
        return notebook, process.returncode, output.strip()

    with ThreadPoolExecutor(jobs) as pool, tqdm(total=len(stale), unit="notebook", disable=None) as bar:
        pending: set[Future[tuple[Notebook, int, str]]] = {pool.submit(run, notebook) for notebook in stale}
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    notebook, status, output = future.result()
                    last = output.splitlines()[-1] if output else f"exit status {status}"
                    finished += 1
                    bar.update()
                    bar.write(f"[{finished}/{len(stale)}] {last}", file=sys.stdout)
                    sys.stdout.flush()
                    if status:
                        failures.append(f"{notebook.label}:\n{output}")
        except KeyboardInterrupt:
            for future in pending:
                future.cancel()
            for process in processes.values():
                if process.poll() is None:
                    process.terminate()
            raise
    if failures:
        raise RunFailed(f"{len(failures)} of {len(stale)} notebooks failed:\n\n" + "\n\n".join(failures))
    return len(stale)


def build_book(root: Path, names: tuple[str, ...] | list[str] = (), jobs: int = DEFAULT_JOBS) -> Path:
    """Execute what is stale and write the HTML, with warnings as errors.

    Args:
        root: the repository.
        names: chapters to build for; none means all.
        jobs: notebooks executed at a time.

    Returns:
        The front page's path.

    Raises:
        CompanionError: the book could not be built; Sphinx has printed why.
        RunFailed: a notebook failed.
    """
    chosen = select(root, names)
    execute_stale(chosen, jobs)
    output = root / "_build" / ("part" if names else "book")
    output.mkdir(parents=True, exist_ok=True)
    with FileLock(output / ".lock"):
        command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
        command += ["build", ".", "-W", "--keep-going", "-q"]
        command += ["--path-output", str(output)]
        if names:
            command += ["--toc", str(partial_toc(root, {chapter.name for chapter in chosen}, output))]
        result = subprocess.run(command, cwd=root, capture_output=True, text=True)
        page = output / "_build" / "html" / "index.html"
        if result.returncode or not page.is_file():
            # Sphinx would not repeat its warnings for pages that it keeps
            shutil.rmtree(output / "_build" / ".doctrees", ignore_errors=True)
            raise CompanionError(f"the book was not built:\n{result.stdout[-8000:]}\n{result.stderr[-8000:]}")
    return page


def partial_toc(root: Path, names: set[str], folder: Path) -> Path:
    """Write a table of contents that keeps, of the chapters, only ``names``; return its path."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))

    def keep(entry: dict[str, str]) -> bool:
        parts = Path(entry["file"]).parts
        return parts[0] != "notebooks" or parts[1] in names

    for part in toc["parts"]:
        part["chapters"] = [entry for entry in part["chapters"] if keep(entry)]
    toc["parts"] = [part for part in toc["parts"] if part["chapters"]]
    path = folder / "_toc.yml"
    path.write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")
    return path
