"""The command line: ``companion list | run | record | new | execute | build | sync``."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import yaml

from companion.errors import CompanionError
from companion.project import NOTEBOOKS, chapters, find_notebook, find_root


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what a user can mend into one clear line and exit status 2, a failed run into status 1."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        from companion.execution import RunFailed

        try:
            return command(*args, **kwargs)
        except CompanionError as error:
            click.echo(f"companion: {error}", err=True)
            sys.exit(2)
        except RunFailed as error:
            click.echo(f"companion: {error}", err=True)
            sys.exit(1)
        except KeyboardInterrupt as error:
            click.echo(f"companion: {str(error) or 'interrupted'}", err=True)
            sys.exit(130)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"companion: {where}{error.strerror or error}", err=True)
            sys.exit(2)

    return wrapper


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="companion")
def main() -> None:
    """Run, record and extend the chapters of the companion."""


@main.command("list")
@guarded
def list_command() -> None:
    """Chapters, notebooks, claims, and the verdicts of the last run."""
    from companion.execution import is_fresh
    from companion.records import chapter_ledger
    from companion.show import SIGNS

    for chapter in chapters(find_root()):
        ledger = chapter_ledger(chapter)
        click.echo(f"{chapter.name}: {ledger.declared.paper['title']}")
        for notebook in chapter.notebooks:
            state = "up to date" if is_fresh(notebook) else "stale" if notebook.product.is_file() else "not yet run"
            click.echo(f"  {notebook.name} ({state})")
            for row in ledger.rows:
                if row.claim.checked_in == notebook.name:
                    click.echo(f"    {SIGNS.get(row.verdict, ' ')} {row.claim.id}: {row.verdict}")
        untested = [row.claim.id for row in ledger.rows if row.claim.checked_in is None]
        if untested:
            click.echo(f"  untested: {', '.join(untested)}")


@main.command()
@click.argument("notebook", metavar="CHAPTER/NOTEBOOK")
@click.option("--preset", help="quick (default), full or gpu.")
@click.option(
    "-p", "--parameters", "typed", nargs=2, multiple=True, metavar="NAME VALUE", help="Set a parameter; YAML."
)
@click.option("-r", "--parameters_raw", "raw", nargs=2, multiple=True, metavar="NAME VALUE", help="Set it to a string.")
@click.option("-f", "--parameters_file", "file", type=click.Path(exists=True, dir_okay=False), help="A YAML file.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Where to put the notebook.")
@click.option("--threads", type=click.IntRange(1), help="Threads of the kernel; 1 for quick, else all cores.")
@guarded
def run(
    notebook: str,
    preset: str | None,
    typed: tuple[tuple[str, str], ...],
    raw: tuple[tuple[str, str], ...],
    file: str | None,
    output: Path | None,
    threads: int | None,
) -> None:
    """Run a notebook with other parameters; the executed copy goes to runs/."""
    from companion.execution import execute, single_threaded
    from companion.parameters import read_signature

    found = find_notebook(find_root(), notebook)
    parameters = gather_parameters(preset, typed, raw, file)
    read_signature(found.source, found.label).validate(parameters)
    if parameters.get("preset", "quick") == "quick" and threads is None:
        threads = 1
    os.environ.update(
        {name: str(threads or os.cpu_count()) for name in single_threaded() if name.endswith("_NUM_THREADS")}
    )
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    name = f"{found.name}-{parameters.get('preset', 'quick')}-{stamp}.ipynb"
    target = output.absolute() if output else found.chapter.root / "runs" / found.chapter.name / name
    if target == found.product:
        raise CompanionError(f"{target} belongs to the book; choose another output")
    target.parent.mkdir(parents=True, exist_ok=True)
    execute(found, parameters, target, progress=sys.stderr.isatty())
    print_verdicts(target)
    click.echo(os.path.relpath(target))


def gather_parameters(
    preset: str | None,
    typed: tuple[tuple[str, str], ...],
    raw: tuple[tuple[str, str], ...],
    file: str | None,
) -> dict[str, Any]:
    """Merge the options that set parameters, later ones first in rank: file, -p, -r, --preset."""
    parameters: dict[str, Any] = {}
    if file:
        try:
            loaded = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise CompanionError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error
        if not isinstance(loaded, dict) or not all(isinstance(name, str) for name in loaded):
            raise CompanionError(f"{file}: must map parameter names to values")
        parameters.update(loaded)
    for name, value in typed:
        parameters[name] = parse_value(name, value)
    parameters.update(raw)
    if preset is not None:
        parameters["preset"] = preset
    return parameters


def parse_value(name: str, text: str) -> Any:
    """Read a value from the command line as YAML, with ``1e5`` a number as everybody means it."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise CompanionError(f"{name}: cannot read the value {text!r} as YAML") from error
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def print_verdicts(path: Path) -> None:
    """Print the verdicts that an executed notebook holds, one a line."""
    from companion.records import read_outputs
    from companion.show import SIGNS

    for record in read_outputs(path).claims.values():
        click.echo(f"{SIGNS[record['verdict']]} {record['verdict']:<9} {record['id']}")


@main.command()
@click.argument("path", metavar="RUN.ipynb", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@guarded
def record(path: Path) -> None:
    """Keep a run's claims and numbers under results/, with where they come from."""
    from companion.recording import keep

    click.echo(os.path.relpath(keep(find_root(), path)))


@main.command()
@click.argument("name")
@guarded
def new(name: str) -> None:
    """Start a chapter: a skeleton that already passes the structure tests."""
    from companion.skeleton import create

    chapter = create(find_root(), name)
    click.echo(f"{os.path.relpath(chapter.folder)}: now write claims.yml, then method.py; run it with")
    click.echo(f"  companion run {name}/theory")


@main.command()
@click.argument("notebook", metavar="CHAPTER/NOTEBOOK")
@guarded
def execute(notebook: str) -> None:
    """Bring one notebook of the book up to date with a quick run."""
    from companion.execution import update

    seconds = update(find_notebook(find_root(), notebook))
    click.echo(f"{notebook}: " + ("up to date" if seconds is None else f"done in {seconds:.1f} s"))


@main.command()
@click.argument("names", metavar="[CHAPTER]...", nargs=-1)
@click.option(
    "-j", "--jobs", type=click.IntRange(1), default=2, show_default=True, help="Notebooks executed at a time."
)
@guarded
def build(names: tuple[str, ...], jobs: int) -> None:
    """Execute what is stale and build the HTML of the book, or of some chapters."""
    from companion.build import build_book

    page = build_book(find_root(), names, jobs)
    click.echo(f"The book is at {os.path.relpath(page)}")


@main.command()
@guarded
def sync() -> None:
    """Write the .ipynb beside each .py whose cells it lacks."""
    from companion.execution import sync as sync_notebook

    for chapter in chapters(find_root()):
        if missing := chapter.missing_files():
            raise CompanionError(f"notebooks/{chapter.name}: missing {', '.join(missing)}")
        for notebook in chapter.notebooks:
            assert notebook.name in NOTEBOOKS
            sync_notebook(notebook)
