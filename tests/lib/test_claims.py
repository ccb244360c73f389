"""claims.yml is read strictly, and every refusal names the file and the line."""

import pytest

from companion.claims import load_claims
from companion.errors import CompanionError


def refusal(checkout) -> str:
    with pytest.raises(CompanionError) as error:
        load_claims(checkout.chapter / "claims.yml")
    assert "claims.yml" in str(error.value)
    return str(error.value)


def test_reads_claims(checkout):
    declared = load_claims(checkout.chapter / "claims.yml")
    assert list(declared.claims) == ["two-is-two", "at-scale"]
    assert [claim.id for claim in declared.checked_in("theory")] == ["two-is-two"]
    assert declared.claims["at-scale"].because == "They are large."


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("    kind: theorem", "\tkind: theorem", 9, "tab"),
        ("id: at-scale", "id: two-is-two", 13, "used twice"),
        ("expect: holds", "expect: hold", 12, "hold"),
        ("    because: They are large.\n", "", 13, "because"),
        ("expect: holds", "expect: fails", 8, "because"),
        ("    checked_in: theory\n", "", 8, "checked_in"),
        ("    expect: untested", "    checked_in: theory\n    expect: untested", 16, "untested"),
        ("  source: abstract", "  source: abstract\n  year: 2026", 2, "year"),
        ("url: https:", "url: http:", 5, "https"),
        ("id: two-is-two", "id: Two", 8, "Two"),
        ("    kind: theorem", "    kind: theorem\n    kind: empirical", 10, "twice"),
        ("title: A paper", "title: A: paper", 2, "not valid YAML"),
        ("authors: [A. Author]", "authors: []", 3, "authors"),
    ],
)
def test_refuses(checkout, old, new, line, words):
    checkout.edit("claims.yml", old, new)
    message = refusal(checkout)
    assert f"claims.yml:{line}:" in message
    assert words in message


@pytest.mark.parametrize("text", ["", "claims", "[]", "&a [*a]", "\x00", "a: !!python/object:os.system {}"])
def test_refuses_what_is_no_claims_file(checkout, text):
    (checkout.chapter / "claims.yml").write_text(text)
    refusal(checkout)


def test_refuses_bytes_that_are_no_text(checkout):
    (checkout.chapter / "claims.yml").write_bytes(b"\xff\xfe\x00")
    refusal(checkout)
