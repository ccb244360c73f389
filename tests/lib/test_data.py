"""The corpus is what it says it is, and its tokeniser can be trained again."""

import re

import numpy as np
import pytest

from companion import data
from companion.data import corpus, token_ids, tokenizer, train_tokenizer


def test_works_and_split():
    works = corpus("shakespeare").works
    assert len(works["train"]) == 39 and set(works["valid"]) == {"macbeth", "richard_ii", "twelfth_night"}
    assert not set(works["train"]) & set(works["valid"])
    assert "To be, or not to be,--that is the question:" in works["train"]["hamlet"]
    assert "Is this a dagger which I see before me" in works["valid"]["macbeth"]


def test_text_is_plain():
    both = corpus()
    assert len(both.train) > 4_500_000 and len(both.valid) > 300_000
    for text in (both.train, both.valid):
        assert text.isascii() and not re.search(r"[\r\t\f\0]", text)
        assert not re.search(r"gutenberg|copyright|public domain", text, re.IGNORECASE)


def test_no_long_passage_is_in_both_splits():
    lines = [{line for line in text.split("\n") if len(line) > 40} for text in (corpus().train, corpus().valid)]
    assert len(lines[0] & lines[1]) < 0.001 * len(lines[1])


def test_the_standard_library_as_a_corpus():
    stdlib = corpus("stdlib")
    assert "class JSONDecoder" not in stdlib.train  # only top-level modules
    assert "def dataclass" in stdlib.train + stdlib.valid
    assert len(stdlib.train) > 1_000_000 and len(stdlib.valid) > 50_000


def test_tokens_decode_to_the_text():
    decoded = tokenizer().decode(token_ids("valid", 5_000).tolist())
    assert len(decoded) > 10_000 and corpus().works["valid"]["macbeth"].startswith(decoded)
    for text in ("Naïve — 🎭\x00\n\n  double", "", " leading"):
        assert tokenizer().decode(tokenizer().encode(text).ids) == text


def test_token_ids():
    ids = token_ids("train", 20_000)
    assert ids.shape == (20_000,) and ids.dtype == np.int32 and ids.min() >= 0 and ids.max() < 2048
    np.testing.assert_array_equal(token_ids("train", 1_000), ids[:1_000])
    everything = token_ids("valid")
    assert tokenizer().decode(everything.tolist()) == corpus().valid + data.BETWEEN_WORKS
    np.testing.assert_array_equal(token_ids("valid", 10**9), everything)
    assert len(corpus().valid) / len(everything) > 2.5  # characters a token


def test_callers_own_what_they_get():
    ids = token_ids("train", 100)
    ids[:] = 0
    assert token_ids("train", 100).any()


def test_only_what_is_needed_is_tokenised(monkeypatch):
    asked = []
    original = data._work_ids
    monkeypatch.setattr(data, "_work_ids", lambda *args: asked.append(args) or original(*args))
    token_ids("train", 60_000)
    assert len(asked) == 2


def test_training_again_gives_the_same_tokeniser():
    assert train_tokenizer().to_str() == tokenizer().to_str()
    assert tokenizer().get_vocab_size() == 2048


def test_assets_come_from_the_source_archive(tmp_path, monkeypatch):
    (tmp_path / "shksprdata/texts").mkdir(parents=True)
    with pytest.raises(ValueError, match="42 files"):
        data.build_assets(tmp_path)


def test_bad_input():
    with pytest.raises(ValueError, match="name='bible'"):
        corpus("bible")
    with pytest.raises(ValueError, match="split='test'"):
        token_ids("test")
    with pytest.raises(ValueError, match="limit=0"):
        token_ids("train", 0)
