"""A decoder-only transformer to read in one sitting.

Shapes: B sequences, T new tokens, S tokens seen so far (cached and new), D model width, H query heads, G key/value
heads (H a multiple of G), E = D / H head width, L layers, V vocabulary.

PyTorch's tools apply as they are: `torch.compile(model)`, `torch.autocast(device, dtype=torch.bfloat16)`, and
`torch.func` for several seeds at once (`vmap` of `functional_call`) or Hessian-vector products. The fused attention
kernels lack the last two on a CPU: wrap such calls in `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.lmconfig import LMConfig

__all__ = ["MLP", "Attention", "Block", "DecoderLM", "KVCache", "LMConfig", "rotary_angles", "rotate"]


class KVCache:
    """Preallocated keys and values of `batch` sequences of equal length.

    `length` is how many positions are filled; `truncate(n)` keeps the first n, `rewind(n)` drops the last n (both free:
    a rejected draft costs nothing). With keys = values one tensor is stored.

    keys, values: (L, B, G, max_len, E); values is None where values are the keys
    """

    def __init__(self, config: LMConfig, batch: int = 1, max_len: int | None = None, device=None, dtype=None):
        if batch < 1:
            raise ValueError(f"batch={batch}: must be at least 1")
        if max_len is not None and not 1 <= max_len <= config.max_len:
            raise ValueError(f"max_len={max_len}: must be between 1 and the model's {config.max_len}")
        shape = (config.n_layers, batch, config.groups, max_len or config.max_len, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = None if config.one_cache else torch.zeros_like(self.keys)
        self.length = 0

    @property
    def batch(self) -> int:
        return self.keys.shape[1]

    @property
    def max_len(self) -> int:
        return self.keys.shape[3]

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self.keys.nbytes + (0 if self.values is None else self.values.nbytes)

    def truncate(self, n: int) -> None:
        """Forget all but the first n positions."""
        if not 0 <= n <= self.length:
            raise ValueError(f"n={n}: must be between 0 and the cached length {self.length}")
        self.length = n

    def rewind(self, n: int) -> None:
        """Forget the last n positions."""
        self.truncate(self.length - n)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes k, v (B, G, T, E) after `length` and returns all of them so far, (B, G, S, E), in k's type.

        `length` moves when all layers have written: `DecoderLM.trunk` does that.
        """
        end = self.length + k.shape[2]
        stores = (self.keys,) if self.values is None else (self.keys, self.values)
        for store, new in zip(stores, (k, v), strict=False):
            store[layer, :, :, self.length : end] = new.detach()
        seen = [store[layer, :, :, :end].to(k.dtype) for store in stores]
        return seen[0], seen[-1]


def rotary_angles(positions: Tensor, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine, each (T, E/2) float64, of the angle p * base^(-2i/E) at position p for the pair (2i, 2i+1)."""
    pairs = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float64)
    angles = positions.to(torch.float64)[:, None] * base ** (-pairs / head_dim)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pairs (2i, 2i+1) of x (..., T, E) by the angles of (T, E/2) tables (Su et al. 2021); keeps x's type."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).type_as(x)


class Attention(nn.Module):
    """Grouped-query attention with optional ties between the three projections. (B, T, D) -> (B, T, D)."""

    def __init__(self, config: LMConfig):
        super().__init__()
        self.config = config
        width, kv_width = config.d_model, config.groups * config.head_dim
        if config.sharing in ("none", "k=v"):
            self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, kv_width, bias=False)
        if not config.one_cache:
            self.value = nn.Linear(width, kv_width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, angles=None, cache: KVCache | None = None, layer: int = 0) -> Tensor:
        """angles: tables of `rotary_angles` for positions 0..S-1, or None for no rotation."""
        config = self.config
        T = x.shape[1]

        def heads(y: Tensor) -> Tensor:  # (B, T, heads * E) -> (B, heads, T, E)
            return y.unflatten(-1, (-1, config.head_dim)).transpose(1, 2)

        k = heads(self.key(x))
        q = heads(self.query(x)) if hasattr(self, "query") else k
        v = k if config.one_cache else heads(self.value(x))

        start = 0 if cache is None else cache.length
        if angles is not None:
            q = rotate(q, angles[0][start:], angles[1][start:])
            if not config.one_cache:
                k = rotate(k, angles[0][start:], angles[1][start:])
        if cache is not None:
            k, v = cache.append(layer, k, v)
        if angles is not None and config.one_cache:
            k = rotate(k, *angles)  # the stored key is also the value, so it stays unrotated in the cache

        S = k.shape[2]
        mask = None
        if config.causal and 1 < T < S:  # a chunk after cached tokens: query t sees keys up to start + t
            mask = torch.arange(S, device=x.device) <= torch.arange(start, S, device=x.device)[:, None]
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=config.causal and T == S, enable_gqa=config.groups < config.n_heads
        )
        return self.out(y.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    """out(silu(gate x) * up x) for "swiglu", out(gelu(up x)) for "gelu". (B, T, D) -> (B, T, D)."""

    def __init__(self, config: LMConfig):
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.hidden, bias=False) if config.mlp == "swiglu" else None
        self.up = nn.Linear(config.d_model, config.hidden, bias=False)
        self.out = nn.Linear(config.hidden, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Pre-norm residual block: x + attention(norm x), then x + MLP(norm x)."""

    def __init__(self, config: LMConfig):
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.attention = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, angles=None, cache: KVCache | None = None, layer: int = 0) -> Tensor:
        x = x + self.attention(self.attention_norm(x), angles, cache, layer)
        return x + self.mlp(self.mlp_norm(x))


class DecoderLM(nn.Module):
    """Embedding, `n_layers` blocks, RMS norm, head. The weights are drawn with `generator` (on the CPU)."""

    def __init__(self, config: LMConfig, generator: torch.Generator | None = None):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.d_model)
        if config.positions == "learned":
            self.position = nn.Embedding(config.max_len, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.head = nn.Linear(config.d_model, config.vocab, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        self.init_weights(generator)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Normal weights; the two matrices of a block that write to the residual stream are smaller by sqrt(2 L)."""
        for name, p in self.named_parameters():
            if p.ndim == 2:
                depth = 2 * self.config.n_layers if name.endswith(".out.weight") else 1
                p.normal_(0.0, self.config.initial_std / math.sqrt(depth), generator=generator)

    def new_cache(self, batch: int = 1, max_len: int | None = None, dtype=None) -> KVCache:
        """An empty cache on the model's device, in its type unless `dtype` says otherwise (bfloat16 under autocast)."""
        weight = self.embedding.weight
        return KVCache(self.config, batch, max_len, weight.device, dtype or weight.dtype)

    def embed(self, ids: Tensor, start: int = 0) -> Tensor:
        """ids (B, T) at positions start.. -> (B, T, D)."""
        x = self.embedding(ids)
        if self.config.positions == "learned":
            x = x + self.position.weight[start : start + ids.shape[1]]
        return x

    def trunk(self, x: Tensor, cache: KVCache | None = None) -> list[Tensor]:
        """The residual stream of x (B, T, D): the L + 1 states (B, T, D), x itself first, the last before the norm."""
        config = self.config
        start = 0 if cache is None else cache.length
        end = start + x.shape[1]
        angles = None
        if config.positions == "rotary":
            dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
            tables = rotary_angles(torch.arange(end, device=x.device), config.head_dim, config.rotary_base)
            angles = tuple(table.to(dtype) for table in tables)
        states = [x]
        for layer, block in enumerate(self.blocks):
            states.append(block(states[-1], angles, cache, layer))
        if cache is not None:
            cache.length = end
        return states

    def forward(self, ids: Tensor, cache: KVCache | None = None, return_hidden: bool = False):
        """ids (B, T) -> logits (B, T, V), and with `return_hidden` also the head's input (B, T, D).

        With a cache, ids are the tokens after the cached ones; the call adds them (gradients don't flow into it).
        Raises ValueError for ids of another shape, too long a sequence, or a cache with a bidirectional model.
        """
        self._check(ids, cache)
        x = self.embed(ids, 0 if cache is None else cache.length)
        hidden = self.norm(self.trunk(x, cache)[-1])
        logits = self.head(hidden)
        return (logits, hidden) if return_hidden else logits

    def _check(self, ids: Tensor, cache: KVCache | None) -> None:
        if ids.ndim != 2 or ids.shape[1] < 1:
            raise ValueError(f"ids has shape {tuple(ids.shape)}: must be (batch, tokens) with at least one token")
        if cache is None:
            limit, end = self.config.max_len, ids.shape[1]
        else:
            if not self.config.causal:
                raise ValueError("cache: must be None for causal=False, where new tokens change the old ones' states")
            if cache.batch != ids.shape[0]:
                raise ValueError(f"ids has {ids.shape[0]} rows: must be the cache's {cache.batch}")
            limit, end = cache.max_len, cache.length + ids.shape[1]
        if end > limit:
            raise ValueError(f"ids reaches position {end}: must be at most max_len={limit}")

    @torch.no_grad()
    def generate(self, ids: Tensor, max_new: int, temperature: float = 1.0, generator=None) -> Tensor:
        """Continues ids (B, T) by `max_new` sampled tokens: (B, T + max_new). Temperature 0 takes the likeliest."""
        if not self.config.causal:
            raise ValueError("generate: needs a model with causal=True")
        if max_new < 0:
            raise ValueError(f"max_new={max_new}: must be at least 0")
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature={temperature}: must be 0 (greedy) or positive")
        if ids.ndim == 2 and ids.shape[1] + max_new > self.config.max_len:
            raise ValueError(f"max_new={max_new}: prompt and continuation must fit in max_len={self.config.max_len}")
        cache = self.new_cache(ids.shape[0], ids.shape[1] + max_new)
        new = ids
        for _ in range(max_new):
            logits = self(new, cache)[:, -1].float()  # (B, V)
            if temperature == 0:
                new = logits.argmax(-1, keepdim=True)
            else:
                new = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
            ids = torch.cat((ids, new), dim=1)
        return ids
