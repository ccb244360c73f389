# %% [markdown]
# # Method
#
# A small **draft** $q$ proposes tokens; the large **target** $p$ checks several of them in one pass. A proposed token
# $v$ is kept with probability $\min(1, p_v/q_v)$, so a position is accepted with probability
#
# $$\alpha(p, q) = \sum_v q_v \min\!\Big(1, \frac{p_v}{q_v}\Big) = \sum_v \min(p_v, q_v) = 1 - \mathrm{TV}(p, q).$$
#
# Drafts are usually trained with $\mathrm{KL}(p\,\|\,q)$, which has the same optimum $q = p$. A small draft never
# gets there, and on the way the two disagree. LK losses {cite}`samarin2026lk` train on $\alpha$ itself. This page
# derives them, implements them, and adds the two drafts and the sampler that the experiments need.
#
# Symbols: $z$ draft logits, $q = \mathrm{softmax}(z)$, $V$ vocabulary, $K$ draft positions, "..." any leading
# dimensions.

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"

# %%
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.models import DecoderLM
from companion.training import History, train

# %% [markdown]
# ## From logits to the overlap
#
# Everything starts from log-probabilities in float32 (float64 stays). A draft may know only a part $S$ of the
# vocabulary, as in EAGLE-3 {cite}`li2025eagle3`. Then $q$ lives on $S$, while $p$ keeps its whole normalisation: mass
# outside $S$ is never accepted, so $\alpha = \sum_{v \in S} \min(p_v, q_v) \le \sum_{v \in S} p_v$.


# %%
def log_probabilities(
    p_logits: Tensor, q_logits: Tensor, draft_vocab: Tensor | None = None, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """log p restricted to the draft's tokens, without renormalising, and log q; both (..., S), S = V by default.

    p_logits (..., V), held constant; q_logits (..., S). draft_vocab (S,): which of the target's tokens the draft knows.
    Temperature 0 is greedy: one-hot distributions at the largest logit.
    Raises ValueError if the shapes don't match, for logits that aren't floats, or for a negative temperature.
    """
    _check(p_logits, q_logits, draft_vocab, temperature)
    log_p, log_q = (_log_softmax(logits, temperature) for logits in (p_logits.detach(), q_logits))
    return (log_p if draft_vocab is None else log_p[..., draft_vocab]), log_q


def _check(p_logits: Tensor, q_logits: Tensor, draft_vocab: Tensor | None = None, temperature: float = 1.0) -> None:
    S = p_logits.shape[-1] if draft_vocab is None else draft_vocab.numel()
    if q_logits.shape != (*p_logits.shape[:-1], S):
        raise ValueError(f"q_logits has shape {tuple(q_logits.shape)}: must be {(*p_logits.shape[:-1], S)}")
    for name, logits in (("p_logits", p_logits), ("q_logits", q_logits)):
        if not logits.is_floating_point():
            raise ValueError(f"{name} has type {logits.dtype}: must be floating point")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature={temperature}: must be 0 (greedy) or positive and finite")


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits).log()
    return F.log_softmax(logits if temperature == 1 else logits / temperature, dim=-1)


def _reduce(per_position: Tensor, reduction: str) -> Tensor:
    """The end of every loss. A NaN is looked for here, in the small result, and not in the V times larger logits."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction={reduction!r}: must be 'mean', 'sum' or 'none'")
    if not torch.compiler.is_compiling() and per_position.isnan().any():
        raise ValueError("p_logits or q_logits: must not contain NaN")
    return per_position if reduction == "none" else getattr(per_position, reduction)()


def acceptance_rate(
    p_logits: Tensor, q_logits: Tensor, temperature: float = 1.0, draft_vocab: Tensor | None = None
) -> Tensor:
    r"""$\alpha = \sum_v \min(p_v, q_v)$: (..., V), (..., V) -> (...). Errors as `log_probabilities`; NaN logits too."""
    log_p, log_q = log_probabilities(p_logits, q_logits, draft_vocab, temperature)
    return _reduce(torch.minimum(log_p, log_q).exp().sum(-1), "none")


# %% [markdown]
# ## The losses
#
# **KL** pulls $q$ over all of $p$; its gradient in $z$ is $q - p$, of length $\|q - p\|_1 = 2(1 - \alpha)$.
#
# **TV** is the objective itself. With $a_v = 1[q_v < p_v]$ and $Q_a = \sum_v a_v q_v$,
#
# $$\frac{\partial\,\mathrm{TV}}{\partial z_v} = -q_v (a_v - Q_a), \qquad
#   \|\nabla \mathrm{TV}\|_1 = 2 Q_a (1 - Q_a) \le 2\alpha .$$
#
# The last step uses $Q_a = \sum_v a_v q_v \le \sum_v \min(p_v, q_v)$. So TV's gradient vanishes exactly where the
# draft is bad.


# %%
def kl_loss(p_logits: Tensor, q_logits: Tensor, reduction: str = "mean", draft_vocab: Tensor | None = None) -> Tensor:
    r"""$\mathrm{KL}(p\,\|\,q)$, the usual loss. With `draft_vocab`, $p$ is renormalised on it, or KL would be infinite.

    p_logits (..., V), q_logits (..., S) -> scalar, or (...) for reduction="none". Errors as `acceptance_rate`.
    """
    log_p, log_q = log_probabilities(p_logits, q_logits, draft_vocab)
    return _reduce(_kl(log_p if draft_vocab is None else log_p.log_softmax(-1), log_q), reduction)


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    p = log_p.exp()
    return (p * (log_p - log_q).masked_fill(p == 0, 0.0)).sum(-1)  # 0 log 0 = 0


def tv_loss(p_logits: Tensor, q_logits: Tensor, reduction: str = "mean", draft_vocab: Tensor | None = None) -> Tensor:
    r"""$\mathrm{TV}(p, q) = 1 - \alpha = \sum_v (q_v - p_v)_+$; the sum doesn't cancel near $q = p$. As `kl_loss`."""
    log_p, log_q = log_probabilities(p_logits, q_logits, draft_vocab)
    return _reduce(torch.relu(log_q.exp() - log_p.exp()).sum(-1), reduction)


# %% [markdown]
# **LK$_\alpha$** takes the logarithm. This divides the vanishing factor out:
#
# $$L_\alpha = -\log \alpha, \qquad \nabla L_\alpha = \frac{\nabla \mathrm{TV}}{\alpha}, \qquad
#   \|\nabla L_\alpha\|_1 = 2\,\frac{Q_a}{\alpha}\,(1 - Q_a).$$
#
# In the log domain, $\log\alpha = \operatorname{logsumexp}_v \min(\log p_v, \log q_v)$ needs no clamp: its gradient
# stays exact for an overlap of $10^{-30}$ or $10^{-300}$. If nothing overlaps at all, the position counts 0, as in
# the authors' code.

# %%
NO_OVERLAP = -1e4  # a log-probability that only masked tokens (logit -inf) go below


def lk_alpha_loss(
    p_logits: Tensor, q_logits: Tensor, reduction: str = "mean", draft_vocab: Tensor | None = None
) -> Tensor:
    r"""$-\log \alpha$, the negative log-likelihood of acceptance. Arguments and errors as `kl_loss`."""
    log_p, log_q = log_probabilities(p_logits, q_logits, draft_vocab)
    log_alpha = torch.logsumexp(torch.minimum(log_p, log_q).clamp_min(NO_OVERLAP), -1)
    return _reduce(-log_alpha.masked_fill(log_alpha < NO_OVERLAP / 2, 0.0), reduction)


# %% [markdown]
# **LK$_\lambda$** starts as KL and ends as TV. The weight falls as the mean acceptance $\bar\alpha$ of the batch
# rises, and the stop-gradient $\mathrm{sg}$ keeps the draft from gaining by moving the weight:
#
# $$L_\lambda = \lambda\,\mathrm{KL} + (1 - \lambda)\,\mathrm{TV}, \qquad
#   \lambda = \exp(-\eta\,\mathrm{sg}[\bar\alpha]).$$
#
# $\eta = 0$ is KL, $\eta = \infty$ is TV. The authors' cards use $\eta = 3$ (MLP speculator) and $10$ (MEDUSA). Each
# head has its own $\bar\alpha$: `group_dims` says how many leading dimensions are heads, not batch.


# %%
def lk_lambda_loss(
    p_logits: Tensor,
    q_logits: Tensor,
    eta: float = 3.0,
    reduction: str = "mean",
    draft_vocab: Tensor | None = None,
    group_dims: int = 0,
) -> Tensor:
    r"""$\lambda\,\mathrm{KL} + (1 - \lambda)\,\mathrm{TV}$ with $\lambda = \exp(-\eta\,\mathrm{sg}[\bar\alpha])$.

    As `kl_loss`; $\bar\alpha$ is the mean over all but the first `group_dims` dimensions. ValueError if eta < 0.
    """
    if not eta >= 0:
        raise ValueError(f"eta={eta}: must be at least 0")
    log_p, log_q = log_probabilities(p_logits, q_logits, draft_vocab)
    tv = torch.relu(log_q.exp() - log_p.exp()).sum(-1)
    kl = _kl(log_p if draft_vocab is None else log_p.log_softmax(-1), log_q)
    lambda_ = kl_weight(1 - tv, eta, group_dims)
    return _reduce(lambda_ * kl + (1 - lambda_) * tv, reduction)


def kl_weight(alpha: Tensor, eta: float, group_dims: int = 0) -> Tensor:
    r"""$\lambda = \exp(-\eta\,\mathrm{sg}[\bar\alpha])$, broadcastable to alpha (...), one value a group."""
    batch = tuple(range(group_dims, alpha.ndim))
    mean = alpha.detach().mean(batch, keepdim=True) if batch else alpha.detach()
    return torch.exp(-eta * mean.clamp_min(torch.finfo(mean.dtype).tiny))


# %% [markdown]
# ## Peers
# The divergences one would try instead.


# %%
def reverse_kl_loss(p_logits: Tensor, q_logits: Tensor, reduction: str = "mean") -> Tensor:
    r"""$\mathrm{KL}(q\,\|\,p)$: mode-seeking. As `kl_loss`."""
    log_p, log_q = log_probabilities(p_logits, q_logits)
    return _reduce(_kl(log_q, log_p), reduction)


def jensen_shannon_loss(p_logits: Tensor, q_logits: Tensor, reduction: str = "mean") -> Tensor:
    r"""Mean of $\mathrm{KL}(p\,\|\,m)$ and $\mathrm{KL}(q\,\|\,m)$ with $m = (p + q)/2$. As `kl_loss`."""
    log_p, log_q = log_probabilities(p_logits, q_logits)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return _reduce((_kl(log_p, log_m) + _kl(log_q, log_m)) / 2, reduction)


def entropy_weighted_kl_loss(p_logits: Tensor, q_logits: Tensor, reduction: str = "mean") -> Tensor:
    r"""KL with a weight proportional to the target's entropy, mean 1: uncertain positions count more. As `kl_loss`."""
    log_p, log_q = log_probabilities(p_logits, q_logits)
    entropy = -torch.special.xlogy(log_p.exp(), log_p.exp()).sum(-1)
    return _reduce(_kl(log_p, log_q) * entropy / entropy.mean().clamp_min(1e-12), reduction)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "KL": kl_loss,
    "TV": tv_loss,
    "LK-alpha": lk_alpha_loss,
    "LK-lambda": lk_lambda_loss,
    "reverse KL": reverse_kl_loss,
    "Jensen-Shannon": jensen_shannon_loss,
    "entropy-weighted KL": entropy_weighted_kl_loss,
}

# %% [markdown]
# A draft that knows nothing against a peaked target: the losses and the lengths of their gradients.

# %%
if __name__ == "__main__":
    p_logits = torch.full((1000,), -math.inf)
    p_logits[:8] = torch.as_tensor(np.random.default_rng(seed).normal(size=8))
    z = torch.zeros(1000, requires_grad=True)
    for name, loss in LOSSES.items():
        value = loss(p_logits, z)
        (gradient,) = torch.autograd.grad(value, z)
        print(f"{name:20} {float(value.detach()):8.4f}   gradient {float(gradient.abs().sum()):.4f}")

# %% [markdown]
# ## One pass, one buffer
#
# Autograd would keep half a dozen tensors of the logits' size. The gradients above are closed forms in $p$ and $q$,
# so the forward pass can finish the work: both LK losses have $\nabla L = \kappa\,(q - p) + \omega\,q\,(Q_a - a)$
# with $(\kappa, \omega) = (0, 1/\alpha)$ for $L_\alpha$ and $(\lambda, 1 - \lambda)$ for $L_\lambda$. Rows are taken
# in pieces that stay in the processor's cache. Only the finished gradient is kept.


# %%
class _FusedLK(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p_logits: Tensor, q_logits: Tensor, eta: float | None) -> Tensor:
        log_p, z = (x.flatten(0, -2) if x.ndim > 1 else x[None] for x in (p_logits, q_logits))
        N, V = z.shape
        rows = max(1, 2**15 // V) if z.device.type == "cpu" else N
        pieces = [slice(start, start + rows) for start in range(0, N, rows)]
        dtype = torch.float64 if z.dtype == torch.float64 else torch.float32
        p, q = (torch.empty(N, V, device=z.device, dtype=dtype) for _ in range(2))
        kl, tv = (torch.zeros(N, 1, device=z.device, dtype=dtype) for _ in range(2))
        for piece in pieces:
            log_q = torch.log_softmax(z[piece], -1, dtype=dtype)
            torch.exp(log_q, out=q[piece])
            if eta is None:
                torch.softmax(log_p[piece], -1, dtype=dtype, out=p[piece])
            else:
                log_ratio = torch.log_softmax(log_p[piece], -1, dtype=dtype)
                torch.exp(log_ratio, out=p[piece])
                kl[piece, 0] = torch.linalg.vecdot(p[piece], log_ratio.sub_(log_q))
            tv[piece] = torch.sub(q[piece], p[piece], out=log_q).relu_().sum(-1, keepdim=True)
        alpha = (1 - tv).clamp_min(torch.finfo(dtype).tiny)
        if eta is None:
            kappa, omega, loss = torch.zeros_like(alpha), 1 / alpha, -alpha.log()
        else:
            kappa = kl_weight(alpha, eta).expand_as(alpha)
            omega, loss = 1 - kappa, kappa * kl + (1 - kappa) * tv
        for piece in pieces:  # q becomes the gradient
            a_q = q[piece] * (q[piece] < p[piece])
            Q_a = a_q.sum(-1, keepdim=True)
            q[piece].mul_(kappa[piece] + omega[piece] * Q_a).sub_(a_q.mul_(omega[piece]))
            if eta is not None:
                q[piece].sub_(p[piece].mul_(kappa[piece]))
        ctx.save_for_backward(q)
        ctx.shape, ctx.dtype = q_logits.shape, q_logits.dtype
        return loss.mean()

    @staticmethod
    def backward(ctx, upstream: Tensor):
        (gradient,) = ctx.saved_tensors
        return None, (gradient * (upstream / len(gradient))).view(ctx.shape).to(ctx.dtype), None


def fused_lk_loss(p_logits: Tensor, q_logits: Tensor, eta: float | None = 3.0) -> Tensor:
    r"""Mean `lk_lambda_loss`, or `lk_alpha_loss` for eta=None, with the gradient computed in the forward pass.

    p_logits, q_logits (..., V) -> scalar. Meant for healthy overlaps: below float32's tiny, $-\log\alpha$ is cut off.
    """
    _check(p_logits, q_logits)
    if eta is not None and not eta >= 0:
        raise ValueError(f"eta={eta}: must be at least 0, or None for LK-alpha")
    return _reduce(_FusedLK.apply(p_logits.detach(), q_logits, eta), "mean")


# %% [markdown]
# ## Several heads, and what acceptance buys
#
# A call of the target keeps drafted tokens up to the first rejection and adds one of its own. With acceptance
# $\alpha_k$ after the accepted prefix, a call yields on average $\tau = 1 + \sum_{k=1}^{K} \mathbb{E}\prod_{j \le k}
# \alpha_j$ tokens. The product belongs inside the expectation: acceptances along one prefix are dependent.
#
# The prefixes are those that *were accepted*, not all that the target writes. Both agree in one exact identity: along
# the target's own tokens $x_j \sim p_j$, weight step $k$ by $\prod_{j<k} r_j$, $r_j = \min(1, q_j(x_j)/p_j(x_j))$.
# Since $p_j r_j = \min(p_j, q_j)$, this is the law of accepted prefixes, so $\tau = 1 + \sum_k
# \mathbb{E}\big[\prod_{j<k} r_j\,\alpha_k\big]$.


# %%
def expected_accepted_length(alphas: Tensor, ratios: Tensor | None = None) -> Tensor:
    r"""$\tau$ for each prefix: alphas (..., K) -> (...), between 1 and K + 1. Average it over prefixes, not the alphas.

    ratios (..., K-1): $r_1 \dots r_{K-1}$ along the target's own continuation make that average exact; without them
    $r_j = \alpha_j$. Raises ValueError for K = 0, another shape of ratios, or entries outside [0, 1].
    """
    if alphas.ndim == 0 or alphas.shape[-1] < 1:
        raise ValueError(f"alphas has shape {tuple(alphas.shape)}: must be (..., K) with K of at least 1")
    ratios = alphas[..., :-1] if ratios is None else ratios
    if ratios.shape != alphas[..., 1:].shape:
        raise ValueError(f"ratios has shape {tuple(ratios.shape)}: must be {tuple(alphas[..., 1:].shape)}")
    for name, values in (("alphas", alphas), ("ratios", ratios)):
        if not ((values >= 0) & (values <= 1 + 1e-5)).all():
            raise ValueError(f"{name}: must lie between 0 and 1")
    reached = F.pad(ratios, (1, 0), value=1.0).cumprod(-1)  # the probability that step k is reached
    return 1 + (reached * alphas).sum(-1)


def multi_head_loss(
    loss: Callable[..., Tensor], p_logits: Tensor, q_logits: Tensor, gamma: float = 0.8, **options
) -> Tensor:
    r"""$\sum_k \gamma^{k-1} L_k$ over the first dimension: (K, ..., V), (K, ..., S) -> scalar. gamma in (0, 1]."""
    if not 0 < gamma <= 1:
        raise ValueError(f"gamma={gamma}: must be above 0 and at most 1")
    per_head = loss(p_logits, q_logits, reduction="none", **options).flatten(1).mean(1)  # L_k: (K,)
    return (per_head * gamma ** torch.arange(len(per_head), device=per_head.device)).sum()


# %% [markdown]
# ## Two drafts
#
# The target has read $x_{\le t}$, has hidden state $h_t$, and has drawn $x_{t+1}$. Draft position $k$ guesses
# $x_{t+1+k}$.
#
# *Heads* (MEDUSA {cite}`cai2024medusa`): each $k$ has its own low-rank map of $h_t$. It sees neither $x_{t+1}$ nor
# the other guesses. *Draft model* (EAGLE {cite}`li2024eagle`): one transformer layer reads $(h_t, x_{t+1})$ for $k =
# 1$; from then on it reads its own state and its own last guess. It attends to the whole prefix and to its own chain
# of guesses.


# %%
class TargetStates(NamedTuple):
    """What a target computed on B sequences of T tokens: tokens (B, T), hidden (B, T, D), logits (B, T, V)."""

    tokens: Tensor
    hidden: Tensor
    logits: Tensor

    def targets(self, K: int) -> Tensor:
        """The target's logits for x_{t+1+k}, k = 1 .. K, at each anchor t < T - K: (K, B, T - K, V)."""
        N = self.tokens.shape[1] - K
        return torch.stack([self.logits[:, k : k + N] for k in range(1, K + 1)])


@torch.no_grad()
def read_target(target: DecoderLM, tokens: Tensor) -> TargetStates:
    """Runs the target once over tokens (B, T)."""
    logits, hidden = target(tokens, return_hidden=True)
    return TargetStates(tokens, hidden, logits)


class _Draft(nn.Module):
    """What both drafts share: K positions, and optionally a smaller vocabulary."""

    def __init__(self, vocab: int, K: int, draft_vocab: Tensor | None):
        super().__init__()
        if K < 1:
            raise ValueError(f"K={K}: must be at least 1")
        self.vocab, self.K = vocab, K
        self.register_buffer("draft_vocab", draft_vocab)
        self.outputs = vocab if draft_vocab is None else draft_vocab.numel()

    def full(self, logits: Tensor) -> Tensor:
        """(..., S) -> (..., V): tokens outside the draft's vocabulary have probability 0."""
        if self.draft_vocab is None:
            return logits
        return logits.new_full((*logits.shape[:-1], self.vocab), -math.inf).index_copy(-1, self.draft_vocab, logits)


class DraftHeads(_Draft):
    """MEDUSA-like: logits_k = up_k silu(down_k h), with `up` zero at the start, so that q starts uniform."""

    def __init__(self, d_model: int, rank: int, vocab: int, K: int, draft_vocab=None, generator=None):
        super().__init__(vocab, K, draft_vocab)
        self.down = nn.Parameter(torch.randn(K, d_model, rank, generator=generator) / math.sqrt(d_model))
        self.up = nn.Parameter(torch.zeros(K, rank, self.outputs))

    def forward(self, hidden: Tensor, tokens: Tensor | None = None) -> Tensor:
        """hidden (B, N, D) -> logits (K, B, N, S). Needs no tokens."""
        x = F.silu(hidden.flatten(0, 1) @ self.down)  # (K, B N, rank)
        return (x @ self.up).unflatten(1, hidden.shape[:2])

    def proposer(self) -> Callable[..., Tensor]:
        """See `speculative_sample`."""
        guesses = []

        def propose(k: int, tokens: Tensor, hidden: Tensor) -> Tensor:
            if k == 0:
                guesses[:] = self(hidden[:, -1:])
            return self.full(guesses[k][:, 0])

        return propose


class DraftModel(_Draft):
    """EAGLE-like: one attention layer of width `width` over pairs (hidden state, next token)."""

    def __init__(self, d_model: int, width: int, vocab: int, K: int, heads: int = 4, draft_vocab=None, generator=None):
        super().__init__(vocab, K, draft_vocab)
        self.heads = heads
        self.embedding = nn.Embedding(vocab, width)
        self.enter = nn.Linear(d_model, width, bias=False)
        self.fuse = nn.Linear(2 * width, width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.head = nn.Linear(width, self.outputs, bias=False)
        with torch.no_grad():
            for weight in self.parameters():
                weight.normal_(0.0, weight.shape[-1] ** -0.5, generator=generator)
            self.head.weight.zero_()

    def layer(self, state: Tensor, token: Tensor, memory: list[Tensor], mask: Tensor | None) -> Tensor:
        """New state (B, N, width) from the last state and token (B, N); extends memory, [keys, values]."""
        x = self.fuse(torch.cat((norm(state), norm(self.embedding(token))), -1))
        q, *new = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(norm(x)).chunk(3, -1))
        memory[:] = [torch.cat((old, y), 2) for old, y in zip(memory, new, strict=True)] if memory else new
        y = F.scaled_dot_product_attention(q, *memory, attn_mask=mask)
        x = x + self.mix(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(norm(x))))

    def forward(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """hidden (B, N, D) and tokens (B, at least N + K) from the same first position -> logits (K, B, N, S)."""
        N = hidden.shape[1]
        own = torch.eye(N, dtype=torch.bool, device=hidden.device)
        mask = torch.ones_like(own).tril()  # anchor t sees the prefix up to t and, of the later entries, its own chain
        state, memory, logits = self.enter(hidden), [], []
        for k in range(1, self.K + 1):
            state = self.layer(state, tokens[:, k : k + N], memory, mask)
            logits.append(self.head(norm(state)))
            mask = torch.cat((mask, own), 1)
        return torch.stack(logits)

    def proposer(self) -> Callable[..., Tensor]:
        """See `speculative_sample`. Keys and values of the prefix are kept, those of rejected guesses are dropped."""
        memory: list[Tensor] = []
        seen, state = 0, None

        def propose(k: int, tokens: Tensor, hidden: Tensor) -> Tensor:
            nonlocal seen, state
            if k == 0:
                memory[:] = [x[:, :, :seen] for x in memory]
                n = hidden.shape[1] - seen
                mask = torch.ones(n, seen + n, dtype=torch.bool, device=hidden.device).tril(seen)
                token = tokens[:, seen + 1 : seen + 1 + n]
                state = self.layer(self.enter(hidden[:, seen:]), token, memory, mask)[:, -1:]
                seen += n
            else:
                state = self.layer(state, tokens[:, -1:], memory, None)
            return self.full(self.head(norm(state))[:, 0])

        return propose


def norm(x: Tensor) -> Tensor:
    """RMS norm without weights."""
    return F.rms_norm(x, x.shape[-1:])


# %% [markdown]
# ## Training
#
# Everything the draft learns from is computed once: the target's states on its own samples. The anchors are all $t <
# T - K$.


# %%
def train_draft(
    draft: DraftHeads | DraftModel,
    states: TargetStates,
    loss: Callable[..., Tensor],
    *,
    steps: int,
    lr: float,
    batch: int = 8,
    gamma: float = 0.8,
    generator: torch.Generator | None = None,
    log: bool = False,
    bf16: bool = False,
) -> History:
    """Adam with a cosine schedule, in place, on `batch` of the sequences at each step, drawn with the (CPU) generator.

    loss: one of this page's, called with reduction="none" on (K, batch, T - K, V). log: record the mean acceptance of
    the first position. bf16: draft under autocast, losses in float32. Raises ValueError if T <= K.
    """
    B, T = states.tokens.shape
    if T <= draft.K:
        raise ValueError(f"states holds sequences of {T} tokens: must be more than K={draft.K}")
    options = {} if draft.draft_vocab is None else {"draft_vocab": draft.draft_vocab}

    def batches():
        while True:
            rows = torch.randint(B, (batch,), generator=generator)
            yield TargetStates(*(x[rows.to(x.device)] for x in states))

    def total(draft, some: TargetStates):
        p_logits, q_logits = some.targets(draft.K), draft(some.hidden[:, : T - draft.K], some.tokens)
        logs = {}
        if log:
            with torch.no_grad():
                logs["alpha"] = acceptance_rate(p_logits[0], q_logits[0], **options).mean()
        return multi_head_loss(loss, p_logits, q_logits, gamma, **options), logs

    settings = {"schedule": "cosine", "optimizer": torch.optim.Adam, "clip": None, "bf16": bf16}
    return train(draft, batches(), total, steps=steps, lr=lr, **settings)


def tune(score: Callable[[list[float]], np.ndarray], rates: list[float], most: int = 9) -> list[float]:
    """The best rate for each column of score(rates) (len(rates), n); rates, at least three, in geometric progression.

    While a best one lies on the edge, the grid grows on that side; RuntimeError beyond `most` rates.
    """
    scores, new = {}, list(rates)
    while new:
        scores |= dict(zip(new, np.reshape(score(new), (len(new), -1)), strict=True))
        grid = sorted(scores)
        best = np.argmax([scores[rate] for rate in grid], axis=0)
        new = [grid[0] ** 2 / grid[1]] * (0 in best) + [grid[-1] ** 2 / grid[-2]] * (len(grid) - 1 in best)
        if len(grid) + len(new) > most:
            raise RuntimeError(f"rates: the best of {grid} is still on the edge")
    return [grid[i] for i in best]


@torch.no_grad()
def path_acceptance(draft: DraftHeads | DraftModel, states: TargetStates, temperature: float = 1.0):
    """alphas (B, N, K) and ratios (B, N, K-1) of a draft along the target's own tokens: see `expected_accepted_length`.

    The tokens should be the target's samples at that temperature.
    """
    N, K = states.tokens.shape[1] - draft.K, draft.K
    p_logits, q_logits = states.targets(K), draft.full(draft(states.hidden[:, :N], states.tokens))
    alphas = acceptance_rate(p_logits, q_logits, temperature)
    log_p, log_q = log_probabilities(p_logits, q_logits, temperature=temperature)
    x = states.tokens.unfold(1, N, 1)[:, 2 : K + 1].movedim(1, 0)[..., None]  # x_{t+1+k} for k < K
    ratios = (log_q[:-1].gather(-1, x) - log_p[:-1].gather(-1, x)).clamp_max(0.0).exp()[..., 0]
    return alphas.movedim(0, -1).clamp_max(1.0), ratios.movedim(0, -1)


# %% [markdown]
# ## Speculative sampling
#
# Draft $y_k \sim q_k$; keep it if $u < p_k(y_k) / q_k(y_k)$. At the first rejection draw from the residual
# $(p_k - q_k)_+ / \sum (p_k - q_k)_+$. If all are kept, draw one more from $p_{K+1}$. The output has the target's law,
# whatever the draft {cite}`leviathan2023fast,chen2023accelerating`: token $v$ comes out with probability
# $\min(p_v, q_v) + (1 - \alpha) \frac{(p_v - q_v)_+}{1 - \alpha} = p_v$.


# %%
def accept(p: Tensor, q: Tensor, drafted: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """How many drafted tokens are kept, (B,). p (B, K+1, V), q (B, K, V): laws after each prefix; drafted (B, K)."""
    ratio = (p[:, : q.shape[1]].gather(-1, drafted[..., None]) / q.gather(-1, drafted[..., None]))[..., 0]
    u = torch.rand(ratio.shape, device=p.device, dtype=p.dtype, generator=generator)
    return (u < ratio).long().cumprod(1).sum(1)


def resample(p: Tensor, q: Tensor, kept: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """The token that follows the kept ones, (B,). p (B, K+1, V), q (B, K, V), kept (B,)."""
    row = torch.arange(len(p), device=p.device)
    p_next, q_next = p[row, kept], F.pad(q, (0, 0, 0, 1))[row, kept]  # nothing was drafted at K + 1: q = 0 there
    residual = torch.relu(p_next - q_next)
    residual = torch.where(residual.sum(-1, keepdim=True) > 0, residual, p_next)  # p = q up to rounding
    return torch.multinomial(residual, 1, generator=generator)[:, 0]


class _Reader:
    """A causal model's logits (B, n, V) at positions (B, n); one sequence of a `DecoderLM` goes through a KV cache."""

    def __init__(self, model: Callable[[Tensor], Tensor], batch: int):
        self.model, self.hidden = model, None
        self.cache = model.new_cache() if isinstance(model, DecoderLM) and batch == 1 else None

    def __call__(self, tokens: Tensor, positions: Tensor) -> Tensor:
        if self.cache is None:
            return self.model(tokens)[torch.arange(len(tokens), device=tokens.device)[:, None], positions]
        start = min(self.cache.length, int(positions[0, 0]))  # what was cached after it belongs to rejected tokens
        self.cache.truncate(start)
        logits, hidden = self.model(tokens[:, start:], self.cache, return_hidden=True)
        self.hidden = hidden if self.hidden is None else torch.cat((self.hidden[:, :start], hidden), 1)
        return logits[:, positions[0] - start]


@torch.no_grad()
def speculative_sample(
    target: Callable[[Tensor], Tensor],
    draft: Callable[[Tensor], Tensor] | DraftHeads | DraftModel | None,
    prompt: Tensor,
    K: int,
    max_new: int,
    generator: torch.Generator | None = None,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Continues prompt (T,) or (B, T) by max_new tokens of the target's law.

    target, draft: causal models, ids (B, T) -> logits (B, T, V). A `DecoderLM` reads one sequence through its KV
    cache, other callables get whole sequences. `DraftHeads` and `DraftModel` need a `DecoderLM` as target, and B = 1.
    K = 0 is plain sampling, without a draft. Temperature 0 is greedy.

    Returns the tokens, (T + max_new,) or (B, T + max_new), and how many drafted tokens each call of the target kept,
    (calls,), 0 to K. The call that reads the prompt, and calls with fewer than K left to draft, are not counted.
    Raises ValueError for K < 0, max_new < 1, an empty prompt, temperature < 0, or a draft the target can't feed.
    """
    prompts = prompt if prompt.ndim == 2 else prompt[None]
    B, T = prompts.shape
    fed = isinstance(draft, _Draft)
    limits = {"K": (K, 0), "max_new": (max_new, 1), "prompt": (T, 1), "temperature": (temperature, 0)}
    for name, (value, least) in limits.items():
        if not value >= least:
            raise ValueError(f"{name}={value}: must be at least {least}" + (" tokens" if name == "prompt" else ""))
    if fed and (K > draft.K or B > 1 or not isinstance(target, DecoderLM)):
        raise ValueError(f"draft: has K={draft.K} positions, and needs a DecoderLM as target and a single sequence")

    def draw(probabilities: Tensor) -> Tensor:
        return torch.multinomial(probabilities, 1, generator=generator)[:, 0]

    def law(logits: Tensor) -> Tensor:
        return _log_softmax(logits, temperature).exp()

    read = _Reader(target, B)
    propose = draft.proposer() if fed else _Reader(draft, B)
    row = torch.arange(B, device=prompts.device)
    tokens = F.pad(prompts, (0, max_new + 2 * K + 1))
    length = torch.full((B,), T, device=prompts.device)
    tokens[:, T] = draw(law(read(prompts, length[:, None] - 1))[:, 0])
    length = length + 1
    counts = []
    while (left := T + max_new - int(length.min())) > 0:
        active = length < T + max_new
        k_now, q = min(K, left - 1), []
        for k in range(k_now):
            so_far = tokens[:, : int(length.max()) + k]
            z = (
                propose(k, so_far, read.hidden[:, : so_far.shape[1] - k - 1])
                if fed
                else propose(so_far, length[:, None] + k - 1)[:, 0]
            )
            q.append(law(z))
            tokens[row, length + k] = draw(q[-1])
        after = length[:, None] - 1 + torch.arange(k_now + 1, device=length.device)
        p = law(read(tokens[:, : int(length.max()) + k_now], after))
        q = torch.stack(q, 1) if q else p[:, :0]
        kept = accept(p, q, tokens[row[:, None], after[:, 1:]], generator)
        tokens[row, length + kept] = resample(p, q, kept, generator)
        length = torch.where(active, length + kept + 1, length)
        if k_now == K:
            counts.append(kept[active])
    tokens = tokens[:, : T + max_new]
    return (tokens if prompt.ndim == 2 else tokens[0]), torch.cat(counts) if counts else length.new_zeros(0)


# %% [markdown]
# A Markov target over ten tokens and a draft that is its blurred copy.

# %%
if __name__ == "__main__":
    generator = torch.Generator().manual_seed(seed)
    table = 2 * torch.randn(10, 10, generator=generator)
    blurred = table / 2
    tokens, kept = speculative_sample(
        lambda ids: table[ids], lambda ids: blurred[ids], torch.tensor([0]), 4, 40, generator
    )
    print("tokens:", *tokens.tolist())
    print("kept at each call:", *kept.tolist())
