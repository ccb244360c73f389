"""Sizes and options of the decoder-only transformer, checked when they are set."""

from __future__ import annotations

import math
from dataclasses import dataclass

SHARING = ("none", "k=v", "q=k", "q=k=v")
POSITIONS = ("rotary", "learned", "none")
MLPS = ("swiglu", "gelu")


@dataclass(frozen=True)
class LMConfig:
    """Sizes and options of a `DecoderLM`.

    vocab, d_model, n_layers (0: embedding, norm and head only), n_heads
    kv_heads: heads of keys and values; None: n_heads (multi-head), 1: multi-query, between: grouped-query attention
    d_ff: hidden width of the MLP; None: 4 d_model for "gelu", 8/3 d_model (the same parameter count) for "swiglu"
    max_len: the longest sequence
    causal: False lets every position see all others
    sharing: which projections are one: "none", "k=v", "q=k" or "q=k=v"
    positions: "rotary", "learned" (added to the embedding) or "none";  mlp: "swiglu" or "gelu"
    tied: the head is the transposed embedding
    rotary_base, norm_eps: of the rotary angles, of the norms
    init_std: standard deviation of the initial weights; None: 0.4 / sqrt(d_model), which is the usual 0.02 at width 400
        and trains far faster than 0.02 does at width 64

    Raises ValueError naming the field, its value and what is allowed.
    """

    vocab: int
    d_model: int = 64
    n_layers: int = 2
    n_heads: int = 4
    kv_heads: int | None = None
    d_ff: int | None = None
    max_len: int = 256
    causal: bool = True
    sharing: str = "none"
    positions: str = "rotary"
    mlp: str = "swiglu"
    tied: bool = True
    rotary_base: float = 10_000.0
    norm_eps: float = 1e-5
    init_std: float | None = None

    def __post_init__(self):
        def check(field: str, ok: bool, allowed: str) -> None:
            if not ok:
                raise ValueError(f"{field}={getattr(self, field)!r}: must be {allowed}")

        def is_int(x) -> bool:
            return isinstance(x, int) and not isinstance(x, bool)

        for field, least in {"vocab": 1, "d_model": 1, "n_layers": 0, "n_heads": 1, "max_len": 1}.items():
            value = getattr(self, field)
            check(field, is_int(value) and value >= least, f"an integer of at least {least}")
        for field in ("kv_heads", "d_ff"):
            value = getattr(self, field)
            check(field, value is None or (is_int(value) and value >= 1), "None or an integer of at least 1")
        for field, names in {"sharing": SHARING, "positions": POSITIONS, "mlp": MLPS}.items():
            check(field, getattr(self, field) in names, f"one of {', '.join(map(repr, names))}")
        for field in ("rotary_base", "norm_eps", "init_std"):
            value = getattr(self, field)
            if value is None and field == "init_std":
                continue
            check(field, isinstance(value, int | float) and 0 < value < math.inf, "a positive number")
        for field in ("causal", "tied"):
            check(field, isinstance(getattr(self, field), bool), "True or False")
        check("n_heads", self.d_model % self.n_heads == 0, f"a divisor of d_model={self.d_model}")
        check("kv_heads", self.n_heads % self.groups == 0, f"a divisor of n_heads={self.n_heads}")
        if "q=k" in self.sharing:  # with fewer keys than queries, heads of a group would be copies of each other
            check("kv_heads", self.groups == self.n_heads, f"n_heads={self.n_heads} when sharing={self.sharing!r}")
        if self.positions == "rotary":  # rotary positions turn pairs of coordinates
            check("d_model", self.head_dim % 2 == 0, f"an even multiple of n_heads={self.n_heads} for rotary positions")

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    @property
    def groups(self) -> int:
        """Number of key/value heads, G."""
        return self.kv_heads or self.n_heads

    @property
    def one_cache(self) -> bool:
        """Whether values are the keys, so that the cache holds one tensor."""
        return self.sharing in ("k=v", "q=k=v")

    @property
    def initial_std(self) -> float:
        return self.init_std or 0.4 / math.sqrt(self.d_model)

    @property
    def hidden(self) -> int:
        """Hidden width of the MLP."""
        if self.d_ff:
            return self.d_ff
        return 4 * self.d_model if self.mlp == "gelu" else 8 * math.ceil(self.d_model / 3)
