# %% [markdown]
# # Method
#
# A denoiser that averages pixels can be trained and still be **nonexpansive by construction**. A network looks at a
# *guide* image and gives a positive weight to each pair of pixels; the weights become a symmetric doubly stochastic
# matrix $W$; the denoiser is $x\mapsto Wx$ {cite}`sinha2026trainable`. Whatever the network, $\|W\|_2=1$. Put into a
# plug-and-play iteration with a forward operator $A$ that sees constants, such a $W$ gives a contraction.
#
# Images are tensors $(b,c,h,w)$ with values in $[0,1]$, each channel a vector $x\in\mathbb R^N$, $N=hw$; noise levels
# are in the same unit.

# %%
import math
from itertools import pairwise

import numpy as np
import torch
from scipy.sparse import linalg
from torch import Tensor, nn
from torch.nn import functional as F

from companion.imaging import Blur, Downsample, Inpaint, gaussian_kernel, patches, photographs, psnr

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"

# %% [markdown]
# ## Permutations of the lattice
#
# The translation $\pi=(d_x,d_y)$ sends pixel $i$ to $\pi(i)=i+(d_x,d_y)$ on the torus, and $(P_\pi x)_i=x_{\pi(i)}$.
# All translations of the window $|d_x|,|d_y|\le R$ come in pairs $\pi,\pi^{-1}$. The half $H$ holds one of each pair,
# and the identity.


# %%
def _require(ok, name, value, allowed):
    if not ok:
        raise ValueError(f"{name}={value}: must be {allowed}")


def lattice_translations(R: int) -> list[tuple[int, int]]:
    """The (2R+1)^2 translations (dx, dy), row by row: the k-th from the end is the inverse of the k-th."""
    _require(R >= 0, "R", R, "at least 0")
    return [(dx, dy) for dy in range(-R, R + 1) for dx in range(-R, R + 1)]


def half_set(R: int) -> list[tuple[int, int]]:
    """H: the identity, then one translation of each pair (dx, dy), (-dx, -dy)."""
    return lattice_translations(R)[2 * R * (R + 1) :]


def permute(x: Tensor, pi: tuple[int, int], dims=(-2, -1)) -> Tensor:
    """P_pi x; rows and columns are the axes ``dims``."""
    dx, dy = pi
    return x.roll((-dy, -dx), dims)


def stays_inside(pi: tuple[int, int], h: int, w: int) -> Tensor:
    """m_pi: (h, w), 1 where pi(i) = i + (dx, dy) doesn't wrap around the border, else 0."""
    dx, dy = pi
    y, x = torch.arange(h)[:, None] + dy, torch.arange(w) + dx
    return ((y >= 0) & (y < h) & (x >= 0) & (x < w)).float()


# %% [markdown]
# ## A network that weighs pairs of pixels
#
# Features $\phi(r,s)$ of the guide $r$ and the noise level $s$ come from a convolution and residual blocks
# $z\leftarrow\mathrm{LN}(z+\mathrm{MLP}(z))$. On each pair of pixels a small network
# $N_\theta(\phi_i,\phi_{\pi(i)})$ gives three numbers $(k,a,\beta)$ for each channel, and
#
# $$w_\pi(i)=m_\pi(i)\,\bigl[\mathrm{softplus}(a)\,\mathrm{sigmoid}(\mathrm{sigmoid}(\beta)\,k)+10^{-8}\bigr].$$
#
# The paper's $N_\theta$ sees $[\phi_i,\phi_{\pi(i)}]$ (`pair="concat"`). Its first layer is linear, so we apply it once
# to each pixel and not once to each pair: $B\,[\phi_i,\phi_{\pi(i)}]=B_1\phi_i+(P_\pi B_2\phi)_i$. With
# `pair="difference"` it sees $(\phi_i-\phi_{\pi(i)})^2$, which learns in hundreds of steps what takes the
# other thousands.


# %%
def initialise(network: nn.Module, generator: torch.Generator) -> nn.Module:
    """Draws all weights of linear and convolutional layers (He's law) from ``generator``; biases are zero."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network


class PairWeights(nn.Module):
    """The network of the weights. The paper: features=128, R=7, channels=3, blocks=3, layers=2, pair="concat".

    layers: hidden layers of N_theta after its first, each half as wide as the one before ("concat" normalises each).
    at_once: translations worked on together, which bounds memory; None: all.
    """

    def __init__(self, features=16, R=3, channels=1, blocks=1, layers=1, pair="difference", at_once=None, *, generator):
        super().__init__()
        _require(R >= 0, "R", R, "at least 0")
        _require(
            layers >= 1 and features >= 2**layers, "features, layers", (features, layers), "features >= 2^layers >= 2"
        )
        _require(pair in ("concat", "difference"), "pair", repr(pair), "'concat' or 'difference'")
        self.R, self.channels, self.at_once = R, channels, at_once
        self.first = nn.Conv2d(channels + 1, features, 7, padding=3)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(features, 4 * features), nn.LeakyReLU(), nn.Linear(4 * features, features))
            for _ in range(blocks)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(features) for _ in range(blocks))
        widths, concat = [features >> k for k in range(layers + 1)], pair == "concat"
        self.split = nn.Linear(features, 2 * features) if concat else None  # B_1 and B_2
        N_theta = [nn.LayerNorm(features), nn.LeakyReLU()] if concat else []
        for before, after in pairwise(widths):
            N_theta += [nn.Linear(before, after), *([nn.LayerNorm(after)] if concat else []), nn.LeakyReLU()]
        self.N_theta = nn.Sequential(*N_theta, nn.Linear(widths[-1], 3 * channels, bias=False))
        initialise(self, generator)

    def features(self, guide: Tensor, sigma) -> Tensor:
        """phi(r, s): (b, h, w, features)."""
        s = torch.as_tensor(sigma, dtype=guide.dtype, device=guide.device).reshape(-1, 1, 1, 1)
        z = self.first(torch.cat([guide, s.expand(len(guide), 1, *guide.shape[-2:])], 1)).movedim(1, -1)
        for block, norm in zip(self.blocks, self.norms, strict=True):
            z = norm(z + block(z))
        return z

    def forward(self, guide: Tensor, sigma) -> dict[tuple[int, int], Tensor]:
        """{pi: m_pi w_pi} for pi in H, each (b, c, h, w), from the guide (b, c, h, w) and sigma, a number or (b,).

        Raises ValueError for a guide of the wrong shape, an image smaller than the window, or a negative sigma.
        """
        check_guide(guide, sigma, self.R, self.channels)
        phi, H, weights = self.features(guide, sigma), half_set(self.R), {}
        here, there = (phi, phi) if self.split is None else self.split(phi).chunk(2, -1)
        for start in range(0, len(H), self.at_once or len(H)):
            block = H[start : start + (self.at_once or len(H))]
            shifted = torch.stack([permute(there, pi, (1, 2)) for pi in block])
            z = (here - shifted).square() if self.split is None else here + shifted
            k, a, beta = self.N_theta(z).movedim(-1, 2).chunk(3, 2)  # (|block|, b, c, h, w) each
            w = F.softplus(a) * torch.sigmoid(torch.sigmoid(beta) * k) + 1e-8
            weights |= {pi: stays_inside(pi, *guide.shape[-2:]).to(guide) * w[i] for i, pi in enumerate(block)}
        return weights


def check_guide(guide: Tensor, sigma, R: int, channels: int) -> None:
    shape = tuple(guide.shape)
    _require(guide.ndim == 4 and shape[1] == channels, "guide.shape", shape, f"(b, {channels}, h, w)")
    _require(min(shape[-2:]) > R, "guide.shape", shape, f"larger than the window's radius R={R} in both directions")
    _require(bool(torch.as_tensor(sigma >= 0).all()), "sigma", sigma, "at least 0")


# %% [markdown]
# ## A symmetric kernel
#
# Each translation acts together with its inverse and with the same weights (the identity once):
#
# $$K=\sum_{\pi\in H}\bigl[\mathrm{diag}(m_\pi w_\pi)\,P_\pi+P_\pi^\top\,\mathrm{diag}(m_\pi w_\pi)\bigr]=K^\top\ge0.$$
#
# Row $i$ of $K$ has the entry $w_\pi(i)$ in column $\pi(i)$ and, from the second term, the entry
# $w_\pi(\pi^{-1}(i))=(P_\pi^\top w_\pi)_i$ in column $\pi^{-1}(i)$. `mirror` collects these rows once;
# `kernel_apply` is then a single product and sum over the window.


# %%
def inverse(pi: tuple[int, int]) -> tuple[int, int]:
    return -pi[0], -pi[1]


def stack_window(rows: dict[tuple[int, int], Tensor]) -> Tensor:
    """(b, c, h, w) for each translation of a window -> (b, c, 2R+1, 2R+1, h, w), at [..., dy+R, dx+R, :, :]."""
    R = max(dx for dx, _ in rows)
    window = torch.stack([rows[pi] for pi in lattice_translations(R)], -3)
    return window.unflatten(-3, (2 * R + 1, 2 * R + 1))


def mirror(weights: dict[tuple[int, int], Tensor]) -> Tensor:
    """Rows of K: (b, c, 2R+1, 2R+1, h, w); the entry [..., dy+R, dx+R, i] couples pixel i with i + (dx, dy)."""
    # P_pi^T w_pi for the other half, w_pi for H
    return stack_window({inverse(pi): permute(w, inverse(pi)) for pi, w in weights.items()} | weights)


def neighbours(x: Tensor, R: int) -> Tensor:
    """x_i+(dx, dy) for the window, zero outside the image: (..., h, w) -> (..., 2R+1, 2R+1, h, w), without a copy."""
    h, w = x.shape[-2:]
    return F.pad(x, (R, R, R, R)).unfold(-2, h, 1).unfold(-2, w, 1)


def kernel_apply(K: Tensor, x: Tensor) -> Tensor:
    """K x: (b, c, h, w) for the rows K of ``mirror``."""
    return (K * neighbours(x, K.shape[-3] // 2)).sum((-4, -3))


# %% [markdown]
# ## Doubly stochastic in two passes
#
# $$d=K\mathbf1,\qquad\hat W=D^{-1/2}KD^{-1/2},\qquad h=\hat W\mathbf1,\qquad\alpha=1/\max_ih_i,\qquad
# W=\alpha\hat W+\mathrm{diag}(\mathbf1-\alpha h).$$
#
# $W=W^\top$, $W\ge0$ and $W\mathbf1=\alpha h+\mathbf1-\alpha h=\mathbf1$. A nonnegative matrix whose rows sum to 1 has
# spectral radius 1; a symmetric one has that as its norm. The maximum is taken over the pixels of one channel of one
# image. Sreehari et al. {cite}`sreehari2016plug` use the same normalisation for fixed weights.


# %%
def normalisers(K: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(D^{-1/2} 1, alpha, h), each (b, c, h, w) or, alpha, (b, c, 1, 1)."""
    q = K.sum((-4, -3)).rsqrt()
    h = q * kernel_apply(K, q)
    return q, 1 / h.amax((-2, -1), keepdim=True), h


def doubly_stochastic_apply(K: Tensor, x: Tensor, cache=None) -> Tensor:
    """W x, without forming W. cache: ``normalisers(K)``, which costs two passes of K and doesn't depend on x."""
    q, alpha, h = cache or normalisers(K)
    return alpha * q * kernel_apply(K, q * x) + (1 - alpha * h) * x


# %% [markdown]
# ## The denoiser
#
# `NECTR.freeze(guide, sigma)` evaluates the network once and returns the *linear* map $x\mapsto W(r,s)\,x$: this is
# the nonexpansive denoiser. Calling the model itself takes the noisy image as its own guide, $x\mapsto W(x,s)\,x$. That
# map isn't linear, and the guarantee doesn't cover it.


# %%
class LinearDenoiser:
    """x -> W x for a frozen guide: symmetric, doubly stochastic, of norm 1."""

    def __init__(self, K: Tensor):
        self.K, self.cache = K, normalisers(K)

    def __call__(self, x: Tensor) -> Tensor:
        """W x: (b, c, h, w), or any number of images b if there was one guide."""
        guides, shape = len(self.K), (self.K.shape[1], *self.K.shape[-2:])
        allowed = f"({guides if guides > 1 else 'any'}, {', '.join(map(str, shape))}), that of the guide"
        _require(x.shape[1:] == shape and guides in (1, len(x)), "x.shape", tuple(x.shape), allowed)
        return doubly_stochastic_apply(self.K, x, self.cache)

    def dense(self, apply=None, at_once=16) -> Tensor:
        """W as a matrix for each channel: (c, N, N); for tests, with one guide. apply: another map of the kernel."""
        _, c, *_, h, w = self.K.shape
        basis = torch.eye(h * w, dtype=self.K.dtype, device=self.K.device).view(-1, 1, h, w).expand(-1, c, -1, -1)
        columns = torch.cat([(apply or self)(part) for part in basis.split(at_once)])
        return columns.flatten(-2).permute(1, 2, 0)

    def lambda2(self, tol=1e-9) -> float:
        """max over i >= 2 of |lambda_i(W)|, by Lanczos on W - e e^T in each channel; one guide."""
        return abs(_extreme_eigenvalue(lambda x: self(x) - x.mean((-2, -1), keepdim=True), self.K, tol))


class NECTR(nn.Module):
    """Denoiser from a network of weights {pi: w_pi}; any positive weights will do."""

    def __init__(self, pair_weights: nn.Module):
        super().__init__()
        self.pair_weights = pair_weights

    def freeze(self, guide: Tensor, sigma) -> LinearDenoiser:
        """W(r, s) for the guide r: (b, c, h, w) and the noise level s, without gradients."""
        with torch.no_grad():
            return LinearDenoiser(mirror(self.pair_weights(guide, sigma)))

    def forward(self, x: Tensor, sigma, guide: Tensor | None = None) -> Tensor:
        """W(guide, sigma) x; the guide is x itself unless given. Differentiable in everything."""
        return doubly_stochastic_apply(mirror(self.pair_weights(x if guide is None else guide, sigma)), x)


# %% [markdown]
# The fixed rival, DSG-NLM {cite}`sreehari2016plug`, has the same normalisation and the weights of non-local means
# {cite}`buades2005review`: $w_\pi(i)=\exp(-\|p_i-p_{\pi(i)}\|^2/(2\tau^2))$ with patches $p_i$ and a bandwidth $\tau$.


# %%
class GaussianWeights(nn.Module):
    """Weights from patches of (2 patch + 1)^2 pixels; tau = bandwidth * sigma is per pixel of a patch."""

    def __init__(self, R=3, patch=1, bandwidth=1.0, channels=1):
        super().__init__()
        _require(bandwidth > 0, "bandwidth", bandwidth, "positive")
        self.R, self.patch, self.bandwidth, self.channels = R, patch, bandwidth, channels

    def forward(self, guide: Tensor, sigma) -> dict[tuple[int, int], Tensor]:
        check_guide(guide, sigma, self.R, self.channels)
        s = torch.as_tensor(sigma, dtype=guide.dtype, device=guide.device).reshape(-1, 1, 1, 1)
        weights, size = {}, 2 * self.patch + 1
        for pi in half_set(self.R):
            difference = F.pad((guide - permute(guide, pi)).square(), (self.patch,) * 4, mode="reflect")
            distance = F.avg_pool2d(difference, size, 1).mean(1, keepdim=True)  # all channels share a weight
            w = torch.exp(-distance / (2 * (self.bandwidth * s) ** 2)) + 1e-8
            weights[pi] = stays_inside(pi, *guide.shape[-2:]).to(guide) * w.expand_as(guide)
        return weights


# %% [markdown]
# ## Plug-and-play reconstruction
#
# From measurements $b=Ax+n$, with $L=\|A\|_2^2$: forward-backward splitting (FBS) and half-quadratic splitting (HQS),
#
# $$x\leftarrow W\bigl(x-\gamma A^\top(Ax-b)\bigr),\quad0<\gamma<2/L;\qquad
# x\leftarrow W\,(I+\mu A^\top A)^{-1}(x+\mu A^\top b),\quad\mu>0.$$
#
# Both are $x\mapsto WGx+\mathrm{const}$ with $G=I-\gamma A^\top A$ or $G=(I+\mu A^\top A)^{-1}$. `reconstruct` has the
# paper's two phases: a warm-up in which each denoiser call is guided by its own input; then the guide is **frozen**
# and the iteration starts again. Only the second phase has the guarantee.


# %%
def _data_step(A, gamma=None, mu=None):
    """(x, b) -> the data step of FBS (gamma given) or of HQS (mu given)."""
    _require((gamma is None) != (mu is None), "gamma, mu", (gamma, mu), "one number and one None")
    if gamma is None:
        _require(0 < mu < math.inf, "mu", mu, "positive")
        return lambda x, b: A.prox(x, b, mu)
    _require(0 < gamma < 2 / A.norm_sq, "gamma", gamma, f"in (0, 2/L) = (0, {2 / A.norm_sq:g})")
    return lambda x, b: x - gamma * A.grad(x, b)


def _iterate(W, A, b, x, iterations, watch, **step):
    data_step = _data_step(A, **step)
    for _ in range(iterations):
        x = W(data_step(x, b))
        if watch is not None:
            watch(x)
    return x


def pnp_fbs(W, A, b: Tensor, gamma: float, x0: Tensor, iterations: int, watch=None) -> Tensor:
    """The last iterate of FBS from x0. W: any denoiser x -> x. watch(x) sees every iterate."""
    return _iterate(W, A, b, x0, iterations, watch, gamma=gamma)


def pnp_hqs(W, A, b: Tensor, mu: float, x0: Tensor, iterations: int, watch=None) -> Tensor:
    """The last iterate of HQS from x0."""
    return _iterate(W, A, b, x0, iterations, watch, mu=mu)


def reconstruct(model: NECTR, A, b, sigma, mu, x0, warmup=20, iterations=100, watch=None) -> Tensor:
    """HQS in two phases; ``watch`` sees the iterates of the second."""
    with torch.no_grad():
        guide = pnp_hqs(lambda y: model(y, sigma), A, b, mu, x0, warmup)
        return pnp_hqs(model.freeze(guide, sigma), A, b, mu, x0, iterations, watch)


# %% [markdown]
# ## Certificates
#
# Let $e=\mathbf1/\sqrt N$ and $\lambda=\max_{i\ge2}|\lambda_i(W)|$. If $\|WGx\|=\|x\|$ for some $x\ne0$, then $Gx$
# has to be constant ($\lambda<1$) and $\|Gx\|=\|x\|$, which needs $Ax=0$ and hence $Gx=x$; so $x$ is constant and
# $A\mathbf1=0$. If $A$ sees constants, $\|WG\|<1$. A bound follows from
# $\|Wy\|^2\le\lambda^2\|y\|^2+(1-\lambda^2)(e^\top y)^2$ and $\|G\|\le1$:
#
# $$\|WG\|^2\le\lambda^2+(1-\lambda^2)\,\|Ge\|^2.$$


# %%
def _extreme_eigenvalue(apply, like: Tensor, tol: float) -> float:
    """Eigenvalue of largest modulus of a symmetric map of images (1, c, h, w), by Lanczos from a fixed start."""
    _require(len(like) == 1, "guides", len(like), "1")
    shape = (1, like.shape[1], *like.shape[-2:])

    def matvec(v):
        return (
            apply(torch.as_tensor(v, dtype=like.dtype, device=like.device).view(shape)).cpu().double().numpy().ravel()
        )

    size = math.prod(shape)
    operator = linalg.LinearOperator((size, size), matvec=matvec, dtype=float)
    start = np.random.default_rng(0).standard_normal(size)
    return float(linalg.eigsh(operator, 1, which="LM", v0=start, tol=tol, return_eigenvectors=False)[0])


def contraction_factor(W: LinearDenoiser, A, gamma=None, mu=None, tol=1e-9) -> float:
    """The norm of W G for FBS (gamma) or HQS (mu), from the largest eigenvalue of (W G)^T (W G) = G W W G."""
    data_step = _data_step(A, gamma, mu)

    def apply(x):
        nothing = torch.zeros_like(A.A(x))
        return data_step(W(W(data_step(x, nothing))), nothing)

    return math.sqrt(max(_extreme_eigenvalue(apply, W.K, tol), 0.0))


def contraction_bound(lambda2: float, A, shape: tuple[int, int], gamma=None, mu=None) -> float:
    """The bound on the norm of W G from lambda = lambda2 and |G e|, for images of the shape (h, w)."""
    e = torch.full((1, 1, *shape), 1 / math.sqrt(math.prod(shape)), dtype=torch.float64)
    Ge = _data_step(A, gamma, mu)(e, torch.zeros_like(A.A(e)))
    return math.sqrt(lambda2**2 + (1 - lambda2**2) * float(Ge.square().sum()))


def jacobian_norm(f, x: Tensor, iterations: int, generator: torch.Generator) -> Tensor:
    """Norms of the Jacobians of f at each image of a batch x: (b, c, h, w) -> (b,); f treats images independently.

    Power iteration on J^T J with forward and reverse derivatives; a lower bound that grows with ``iterations``.
    """
    _require(iterations >= 1, "iterations", iterations, "at least 1")
    unit = lambda v: v / v.flatten(1).norm(dim=1).clamp_min(1e-30).view(-1, 1, 1, 1)  # noqa: E731
    v = unit(torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device))
    with torch.no_grad():  # only the last product has gradients for the parameters of f
        _, pull_back = torch.func.vjp(f, x)
        for _ in range(iterations):
            v = unit(pull_back(torch.func.jvp(f, (x,), (v,))[1])[0])
    return torch.func.jvp(f, (x,), (v,))[1].flatten(1).norm(dim=1)


# %% [markdown]
# ## Training
#
# Patches of photographs, $s$ uniform in $[0,50]/255$ for each patch, mean squared error, Adam with a cosine schedule;
# the guide is the noisy patch.


# %%
def noisy_batches(split: str, size: int, batch: int, rng: np.random.Generator, generator, colour=False, pool=512):
    """Endless (clean, noisy, sigma): (batch, c, size, size) twice and (batch,), from ``pool`` patches of a split."""
    device = generator.device
    clean = patches(split, size, pool, rng, colour).to(device)
    clean = clean if colour else clean[:, None]
    while True:
        x = clean[torch.randint(pool, (batch,), generator=generator, device=device)]
        sigma = torch.rand(batch, generator=generator, device=device) * 50 / 255
        noise = torch.randn(x.shape, generator=generator, device=device)
        yield x, x + sigma.view(-1, 1, 1, 1) * noise, sigma


def denoising_loss(model: nn.Module, batch) -> Tensor:
    """Mean squared error of model(noisy, sigma)."""
    clean, noisy, sigma = batch
    return F.mse_loss(model(noisy, sigma), clean)


# %% [markdown]
# ## One run
# An untrained network has the guarantee already. Here is the spectrum's edge, and the contraction for three operators.

# %%
if __name__ == "__main__":
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    model = NECTR(PairWeights(generator=generator)).double()
    x = torch.from_numpy(photographs("test")["camera"][None, None, 100:132, 200:232]).double()
    guide = x + 25 / 255 * torch.randn(x.shape, generator=generator, dtype=x.dtype)
    W = model.freeze(guide, 25 / 255)
    eigenvalues, lambda2 = torch.linalg.eigvalsh(W.dense()[0]), W.lambda2()
    print(f"eigenvalues of W from {eigenvalues[0]:.3f} to {eigenvalues[-1]:.15f}; the second is {lambda2:.4f}")
    print(
        f"PSNR: noisy {psnr(guide, x).item():.1f} dB, averaged with untrained weights {psnr(W(guide), x).item():.1f} dB"
    )
    mask = torch.from_numpy(rng.random((32, 32)) < 0.3)
    operators = {
        "blur": Blur((32, 32), gaussian_kernel(9, 1.6)),
        "2 x 2 averages": Downsample((32, 32), 2),
        "30 % of the pixels": Inpaint(mask),
    }
    for name, A in operators.items():
        factor, bound = contraction_factor(W, A, gamma=1 / A.norm_sq), contraction_bound(lambda2, A, (32, 32), mu=1.0)
        print(f"{name}: norm of W G = {factor:.4f} for gamma = 1/L; bound for HQS with mu = 1: {bound:.4f}")
