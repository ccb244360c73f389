"""Errors that a user can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CompanionError(Exception):
    """Something the user asked for cannot be done; the message says what and how to mend it.

    The command line prints the message as one line and exits with status 2.
    """


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return a hint that ends an error message: the nearest valid name, or all of them."""
    choices = sorted(choices)
    match = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    if match:
        return f"did you mean {match[0]!r}?"
    return f"choose from: {', '.join(choices)}" if choices else "there are none"
