"""Does a chapter have the shape that every chapter has? Asked before anything is executed."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from companion.claims import load_claims
from companion.errors import CompanionError
from companion.parameters import read_signature
from companion.project import Chapter, find_chapter

CHECKED_NOTEBOOKS = ("theory", "experiments")


def check_chapter(chapter: Chapter) -> None:
    """Check files, claims, parameters, and that each claim is checked once, where it is declared.

    Raises:
        CompanionError: naming the file and what is wrong in it.
    """
    find_chapter(chapter.root, chapter.name)
    declared = load_claims(chapter.folder / "claims.yml")
    for notebook in chapter.notebooks:
        read_signature(notebook.source, notebook.label)
        if notebook.name not in CHECKED_NOTEBOOKS:
            continue
        checked = claim_calls(notebook.source)
        expected = {claim.id for claim in declared.checked_in(notebook.name)}
        if repeated := [claim_id for claim_id, count in checked.items() if count > 1]:
            raise CompanionError(f"{notebook.source}: claims checked more than once: {', '.join(repeated)}")
        if odd := set(checked) ^ expected:
            raise CompanionError(
                f"{notebook.source}: checked here or declared for it in claims.yml, but not both: "
                + ", ".join(sorted(odd))
            )
        last = notebook.source.read_text(encoding="utf-8").rstrip().rsplit("\n", 1)[-1]
        if last != "run.finish()":
            raise CompanionError(f"{notebook.source}: must end with run.finish(), not {last!r}")


def claim_calls(path: Path) -> Counter[str]:
    """Count the literal ``claim("...")`` calls of a notebook.

    Raises:
        CompanionError: an id is not a literal, so that nobody could tell what is checked.
    """
    calls: Counter[str] = Counter()
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise CompanionError(f"{path}:{error.lineno}: {error.msg}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "claim":
            if not (node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)):
                raise CompanionError(f"{path}:{node.lineno}: claim(...) takes the id as a literal text")
            calls[node.args[0].value] += 1
    return calls
