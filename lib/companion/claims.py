"""The claims a chapter declares: ``claims.yml``, read strictly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from companion.errors import CompanionError

VERDICTS = ("holds", "qualified", "fails", "untested")

_TEXT = {"type": "string", "minLength": 1}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["paper", "claims"],
    "properties": {
        "paper": {
            "type": "object",
            "additionalProperties": False,
            "required": ["title", "authors", "venue", "url", "source"],
            "properties": {
                "title": _TEXT,
                "authors": {"type": "array", "items": _TEXT, "minItems": 1},
                "venue": _TEXT,
                "url": {"type": "string", "pattern": "^https://"},
                "source": {"enum": ["full text", "summary", "abstract"]},
                "note": _TEXT,
            },
        },
        "claims": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["id", "kind", "says", "expect"],
                "properties": {
                    "id": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
                    "kind": {"enum": ["theorem", "empirical"]},
                    "says": _TEXT,
                    "origin": {"enum": ["paper", "derived"]},
                    "checked_in": {"enum": ["theory", "experiments"]},
                    "expect": {"enum": list(VERDICTS)},
                    "because": _TEXT,
                },
                "if": {"properties": {"expect": {"const": "untested"}}},
                "then": {"required": ["because"], "properties": {"checked_in": {"not": {}}}},
                "else": {
                    "required": ["checked_in"],
                    "if": {"properties": {"expect": {"const": "holds"}}},
                    "else": {"required": ["because"]},
                },
            },
        },
    },
}


@dataclass(frozen=True)
class Claim:
    """One claim of a paper, as declared."""

    id: str
    kind: str
    says: str
    expect: str
    checked_in: str | None = None
    because: str | None = None
    origin: str = "paper"


@dataclass(frozen=True)
class ClaimsFile:
    """The parsed ``claims.yml`` of a chapter."""

    path: Path
    paper: dict[str, Any]
    claims: dict[str, Claim]

    def checked_in(self, notebook: str) -> list[Claim]:
        return [claim for claim in self.claims.values() if claim.checked_in == notebook]


def load_claims(path: Path) -> ClaimsFile:
    """Read and validate ``claims.yml``.

    Raises:
        CompanionError: with file and line, for what is not YAML, not of the schema, or an id used twice.
    """
    import jsonschema  # here, not above: a second that importing a method should not cost

    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_repeated_keys(root, path)
        data = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise CompanionError(f"{path}: cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        tab = " (indent with spaces, not tabs)" if "\\t" in str(error.problem) else ""
        raise CompanionError(f"{path}{line}: not valid YAML: {error.problem}{tab}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CompanionError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    errors = jsonschema.Draft202012Validator(SCHEMA).iter_errors(data)
    # the innermost error is the one to mend: those around it follow from it
    if error := max(errors, key=lambda error: len(error.absolute_path), default=None):
        where = "/".join(map(str, error.absolute_path)) or "the file"
        raise CompanionError(f"{path}:{_line(root, error.absolute_path)}: {where}: {_explain(error)}")
    claims: dict[str, Claim] = {}
    for index, entry in enumerate(data["claims"]):
        if entry["id"] in claims:
            raise CompanionError(
                f"{path}:{_line(root, ['claims', index, 'id'])}: claim id {entry['id']!r} is used twice"
            )
        claims[entry["id"]] = Claim(**entry)
    return ClaimsFile(path, data["paper"], claims)


def _explain(error: Any) -> str:
    if error.validator == "not":
        return "an untested claim is checked nowhere: remove checked_in, or change expect"
    return error.message[:300]


def _refuse_repeated_keys(node: yaml.Node | None, path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key.value, str) and key.value in seen:
                raise CompanionError(f"{path}:{key.start_mark.line + 1}: key {key.value!r} is given twice")
            seen.add(key.value if isinstance(key.value, str) else id(key))
            _refuse_repeated_keys(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, path)


def _line(node: yaml.Node | None, keys: Any) -> int:
    """Follow ``keys`` down the YAML tree and return the 1-based line where that value starts."""
    line = node.start_mark.line if node is not None else 0
    for key in keys:
        children = (
            {k.value: v for k, v in node.value} if isinstance(node, yaml.MappingNode) else dict(enumerate(node.value))
        )
        if key not in children:
            break
        node = children[key]
        line = node.start_mark.line
    return line + 1
