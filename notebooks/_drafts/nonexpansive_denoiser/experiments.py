# %% [markdown]
# # Experiments
#
# Denoising and reconstruction with trained weights, beside fixed weights (DSG-NLM), scikit-image's total variation and
# wavelets, and networks of the same size whose Lipschitz constant is free, softly constrained by spectral normalisation
# {cite}`ryu2019plug`, or penalised {cite}`pesquet2021learning`. Photographs are split by image. BM3D and DRUNet, which
# the paper compares with, need packages or weights that are not here.

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"
steps = None
cnn_steps = None
batch = None
patch = None
lr = None
features = None
window = None
blocks = None
layers = None
pair = None
colour = None
seeds = None
windows = None
sigmas = None
crops = None
test_size = None
image_size = None
warmup = None
iterations = None
images_folder = None

# %%
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import method
import numpy as np
import pandas as pd
import torch
from method import NECTR, GaussianWeights, PairWeights
from skimage import restoration
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from companion import claim, report, start
from companion.imaging import SPLITS, Blur, Downsample, gaussian_kernel, motion_kernel, patches, psnr
from companion.plotting import show
from companion.stats import mean_interval, paired_difference
from companion.timing import speed_ratio
from companion.training import train

PRESETS = {
    "quick": {
        "steps": 250, "cnn_steps": 500, "batch": 8, "patch": 24, "lr": 1e-2,
        "features": 16, "window": 3, "blocks": 1, "layers": 1, "pair": "difference", "colour": False, "seeds": 1,
        "windows": [1], "sigmas": [10, 15, 25, 50], "crops": 4, "test_size": 48,
        "image_size": 48, "warmup": 6, "iterations": 40, "images_folder": "",
    },
    "full": {
        "steps": 1500, "cnn_steps": 3000, "batch": 8, "patch": 32, "lr": 5e-3,
        "features": 16, "window": 3, "blocks": 1, "layers": 1, "pair": "difference", "colour": False, "seeds": 3,
        "windows": [1, 2], "sigmas": [10, 15, 25, 50], "crops": 8, "test_size": 64,
        "image_size": 64, "warmup": 20, "iterations": 100, "images_folder": "",
    },
    "gpu": {  # the paper's sizes; images_folder: a folder with CBSD68, instead of the photographs of scikit-image
        "steps": 20_000, "cnn_steps": 40_000, "batch": 2, "patch": 128, "lr": 5e-4,
        "features": 128, "window": 7, "blocks": 3, "layers": 2, "pair": "concat", "colour": True, "seeds": 1,
        "windows": [1], "sigmas": [10, 15, 25, 50], "crops": 2, "test_size": 128,
        "image_size": 128, "warmup": 20, "iterations": 100, "images_folder": "",
    },
}  # fmt: skip
run = start("experiments", PRESETS, preset=preset, seed=seed, device=device, steps=steps, cnn_steps=cnn_steps,
            batch=batch, patch=patch, lr=lr, features=features, window=window, blocks=blocks, layers=layers, pair=pair,
            colour=colour, seeds=seeds, windows=windows, sigmas=sigmas, crops=crops, test_size=test_size,
            image_size=image_size, warmup=warmup, iterations=iterations, images_folder=images_folder)  # fmt: skip
CHANNELS = 3 if run.colour else 1


def read_folder(folder: str, size: int) -> torch.Tensor:
    """Central crops of the images in a folder: (n, c, size, size). FileNotFoundError for a folder without any."""
    files = sorted(path for path in Path(folder).glob("*") if path.suffix.lower() in (".png", ".jpg"))
    if not files:
        raise FileNotFoundError(
            f"images_folder={folder!r} has no PNG or JPEG files. CBSD68 is at "
            "https://github.com/clausmichele/CBSD68-dataset: download it and name the folder of its originals"
        )
    images = []
    for file in files:
        image = plt.imread(file)
        image = torch.from_numpy(image / (255 if image.dtype == np.uint8 else 1)).float().movedim(-1, 0)[:3]
        top, left = ((side - size) // 2 for side in image.shape[1:])
        image = image[:, top : top + size, left : left + size]
        images.append(image if run.colour else image.mean(0, keepdim=True))
    return torch.stack(images)


def cut_out(split: str, size: int, per_image: int, stream: str) -> torch.Tensor:
    """Crops (per_image * n, c, size, size), the n images of the split in turn."""
    if run.images_folder and split == "test":
        return read_folder(run.images_folder, size).to(run.device)
    x = patches(split, size, per_image * len(SPLITS[split]), run.rng(stream), run.colour)
    return (x if run.colour else x[:, None]).to(run.device)


def by_image(values: torch.Tensor, per_image: int) -> np.ndarray:
    """Means over the crops of each image, the unit of all intervals: (n,)."""
    return values.view(1 if run.images_folder else per_image, -1).mean(0).cpu().numpy()


def score(x: torch.Tensor, clean: torch.Tensor, per_image: int) -> np.ndarray:
    """PSNR in dB for each image: (n,)."""
    return by_image(psnr(x, clean).mean(1), per_image)


# %% [markdown]
# ## Training
#
# All networks see the same patches, noise levels from 0 to 50 and the mean squared error. The rivals are DnCNNs
# $x-N(x,s)$ {cite}`zhang2017beyond` without batch normalisation, as wide as the parameters of NECTR allow. They are
# cheaper, so they get twice the steps. *Spectral*: PyTorch's `spectral_norm` with one power iteration a step on each
# layer. *Penalised*: the loss adds $10\,\max(\|J\|-0.95,0)^2$, with $\|J\|$ from three power iterations at a point
# between the clean and the noisy patch.


# %%
class DnCNN(nn.Module):
    def __init__(self, width: int, spectral=False, depth=4, *, generator: torch.Generator):
        super().__init__()
        widths = [CHANNELS + 1, *[width] * (depth - 1), CHANNELS]
        convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        method.initialise(convs, generator)
        if spectral:
            with torch.random.fork_rng([]):  # its first vector comes from the global stream
                torch.manual_seed(generator.initial_seed())
                convs = [spectral_norm(conv, n_power_iterations=1) for conv in convs]
        self.N = nn.Sequential(*[layer for conv in convs for layer in (conv, nn.ReLU())][:-1])

    def forward(self, x, sigma):
        s = torch.as_tensor(sigma, dtype=x.dtype, device=x.device).reshape(-1, 1, 1, 1)
        return x - self.N(torch.cat([x, s.expand(len(x), 1, *x.shape[-2:])], 1))


def penalised_loss(model, batch, generator):
    clean, noisy, sigma = batch
    t = torch.rand(len(clean), 1, 1, 1, generator=generator, device=clean.device)
    norm = method.jacobian_norm(lambda y: model(y, sigma), t * clean + (1 - t) * noisy, 3, generator)
    return method.denoising_loss(model, batch) + 10 * F.relu(norm - 0.95).square().mean()


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def fit(model, name, steps, lr, loss=method.denoising_loss):
    batches = method.noisy_batches("train", run.patch, run.batch, run.rng(f"patches {name}"),
                                   run.torch_generator(f"batches {name}"), run.colour)  # fmt: skip
    model = model.to(run.device)
    history = train(model, batches, loss, steps=steps, lr=lr, optimizer=torch.optim.Adam,
                    generator=run.torch_generator(f"loss {name}"))  # fmt: skip
    return model.eval().requires_grad_(False), history.seconds


def pair_weights(R: int, name: str) -> PairWeights:
    return PairWeights(run.features, R, CHANNELS, run.blocks, run.layers, run.pair, 16 if run.window > 3 else None,
                       generator=run.torch_generator(name, "cpu"))  # fmt: skip


ours, seconds = [], {}
for index in range(run.seeds):
    model, seconds["NECTR"] = fit(NECTR(pair_weights(run.window, f"net {index}")), f"{index}", run.steps, run.lr)
    ours.append(model)
nectr = ours[0]
width = next(w for w in range(200, 1, -1) if size(DnCNN(w, generator=torch.Generator())) <= size(nectr))
cnns = {}
for name, spectral, loss in (("DnCNN", False, method.denoising_loss), ("spectral", True, method.denoising_loss),
                             ("penalised", False, penalised_loss)):  # fmt: skip
    cnn = DnCNN(width, spectral, generator=run.torch_generator(name, "cpu"))
    cnns[name], seconds[name] = fit(cnn, name, run.cnn_steps, 5e-3, loss)
report("parameters of NECTR", size(nectr))
report("parameters of each DnCNN", size(cnns["DnCNN"]))

# %% [markdown]
# ## Denoising
#
# DSG-NLM has the same window and $7\times7$ patches. Its bandwidth and the weight of total variation are tuned for each
# noise level on other images. The interval is over images, paired. Broken: the trained network's weights are given to
# the wrong translations, so that they don't belong to the pixels that they multiply.


# %%
class Scrambled(nn.Module):
    """The weights of a network, given to the wrong translations."""

    def __init__(self, weights: nn.Module):
        super().__init__()
        self.weights = weights

    def forward(self, guide, sigma):
        w = self.weights(guide, sigma)
        return {pi: w[q] * method.stays_inside(pi, *guide.shape[-2:]).to(guide)
                for pi, q in zip(w, reversed(list(w)), strict=True)}  # fmt: skip


def noisy(clean: torch.Tensor, sigma: float, stream: str) -> torch.Tensor:
    return clean + sigma * torch.randn(clean.shape, generator=run.torch_generator(stream), device=run.device)


def each(function, x: torch.Tensor) -> torch.Tensor:
    """A function of numpy images (c, h, w), applied to a batch."""
    return torch.stack([torch.from_numpy(np.ascontiguousarray(function(im))) for im in x.cpu().numpy()]).to(x)


def tv(x, sigma, c):
    return each(lambda im: restoration.denoise_tv_chambolle(im, c * sigma, channel_axis=0), x)


def wavelet(x, sigma):
    return each(lambda im: restoration.denoise_wavelet(im, sigma, channel_axis=0, rescale_sigma=True), x)


def dsg(x, sigma, c):
    return NECTR(GaussianWeights(run.window, 3, c, CHANNELS))(x, sigma)


def tune(name: str, denoise, grid) -> dict[int, float]:
    """The best parameter for each noise level, on the images for validation; not on the edge of the grid."""
    best = {}
    for sigma in run.sigmas:
        y = noisy(valid, sigma / 255, f"valid {sigma}")
        values = [float(psnr(denoise(y, sigma / 255, c), valid).mean()) for c in grid]
        best[sigma] = grid[(index := int(np.argmax(values)))]
        assert 0 < index < len(grid) - 1, f"{name}, sigma={sigma}: the optimum {best[sigma]} is on the edge of {grid}"
    return best


clean, valid = cut_out("test", run.test_size, run.crops, "test"), cut_out("valid", run.test_size, 2, "valid")
bandwidth = tune("DSG-NLM", dsg, [0.5, 0.7, 0.9, 1.2, 1.6, 2.1, 2.8])
tv_weight = tune("TV", tv, [0.25, 0.4, 0.6, 0.9, 1.4, 2.2])
denoisers = {
    "NECTR": lambda y, s: nectr(y, s / 255),
    "DSG-NLM": lambda y, s: dsg(y, s / 255, bandwidth[s]),
    "TV": lambda y, s: tv(y, s / 255, tv_weight[s]),
    "wavelet": lambda y, s: wavelet(y, s / 255),
    **{name: lambda y, s, cnn=cnn: cnn(y, s / 255) for name, cnn in cnns.items()},
    "noisy": lambda y, s: y,
}
images = {sigma: noisy(clean, sigma / 255, f"test {sigma}") for sigma in run.sigmas}
quality = {name: {s: score(denoise(y, s), clean, run.crops) for s, y in images.items()}
           for name, denoise in denoisers.items()}  # fmt: skip
for s, y in images.items():
    quality["NECTR"][s] = np.mean([score(model(y, s / 255), clean, run.crops) for model in ours], 0)
scrambled = {s: score(NECTR(Scrambled(nectr.pair_weights))(y, s / 255), clean, run.crops) for s, y in images.items()}

check = claim("denoising-gain")
for s in run.sigmas:
    gain, control = (paired_difference(q[s], quality["DSG-NLM"][s]) for q in (quality["NECTR"], scrambled))
    check.that(f"NECTR - DSG-NLM, sigma = {s}", gain.value, within=(0, None), interval=gain.interval,
               interval_within=(0, None), control=control.value, control_interval=control.interval,
               broken="weights given to the wrong translations", unit="dB", beyond=s < 25)  # fmt: skip
    check.note(f"DnCNN - NECTR, sigma = {s}", np.mean(quality["DnCNN"][s] - quality["NECTR"][s]), unit="dB")
check.verdict()

# %%
fig, ax = plt.subplots()
for index, (name, values) in enumerate(quality.items()):
    if name == "noisy":
        continue
    over = mean_interval(np.array([values[s] - quality["DSG-NLM"][s] for s in run.sigmas]).T)
    at = np.array(run.sigmas) * 1.03 ** (index - 3)  # so that the intervals don't hide each other
    ax.errorbar(at, over.value, yerr=over.high - over.value, marker="o", capsize=3, label=name)
ax.set(xscale="log", xlabel="noise level (of 255)", ylabel="PSNR above DSG-NLM (dB)")
ax.set_xticks(run.sigmas, map(str, run.sigmas))
ax.minorticks_off()
ax.legend(ncols=2)
show(fig, alt="PSNR over DSG-NLM against the noise level for seven denoisers; NECTR gains most at strong noise",
     caption="Held-out photographs; 95 % intervals over images of the paired difference.")  # fmt: skip

# %% [markdown]
# What the network learned: the weights of one pixel for all translations, on an edge, in a flat part and in a texture.

# %%
guide = images[25 if 25 in images else run.sigmas[0]]
rows = method.mirror(nectr.pair_weights(guide, 25 / 255))
gradient = (guide.diff(dim=-1)[..., 4:-4, 4:-3].abs() + guide.diff(dim=-2)[..., 4:-3, 4:-4].abs()).mean(1)
smooth = F.avg_pool2d(gradient, 5, 1)
spots = {"flat": smooth.flatten().argmin(), "textured": smooth.flatten().argmax(),
         "between": (smooth - smooth.median()).abs().flatten().argmin()}  # fmt: skip
fig, axes = plt.subplots(2, 3, figsize=(6.4, 4.4))
for (name, spot), (top, bottom) in zip(spots.items(), axes.T, strict=True):
    image, y, x = (int(i) for i in np.unravel_index(int(spot), smooth.shape))
    y, x, R = y + 6, x + 6, run.window
    top.imshow(guide[image, 0, y - 6 : y + 7, x - 6 : x + 7].cpu(), cmap="gray", vmin=0, vmax=1)
    top.add_patch(plt.Rectangle((5.5 - R, 5.5 - R), 2 * R + 1, 2 * R + 1, fill=False, edgecolor="C1", linewidth=2))
    bottom.imshow(rows[image, 0, :, :, y, x].cpu(), cmap="viridis")
    top.set(title=name, xticks=[], yticks=[])
    bottom.set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("guide")
axes[1, 0].set_ylabel("weights")
show(fig, alt="A flat, a textured and a middling pixel of a noisy guide, and the weights of their neighbours",
     caption="Above: the guide around a pixel, with the window. Below: the weights of its neighbours.")  # fmt: skip

# %% [markdown]
# ## The window
#
# Networks for smaller windows, trained alike. Broken: the large network with its outer translations dropped.

# %%
check = claim("window-size")
nets = {R: fit(NECTR(pair_weights(R, f"window {R}")), f"window {R}", run.steps, run.lr)[0] for R in run.windows}
nets[run.window] = nectr
s, smallest = 25, min(nets)
y = noisy(clean, s / 255, "window")
by_window = {R: score(net(y, s / 255), clean, run.crops) for R, net in nets.items()}


class Inner(nn.Module):
    def forward(self, guide, sigma):
        return {pi: w for pi, w in nectr.pair_weights(guide, sigma).items() if max(map(abs, pi)) <= smallest}


truncated = paired_difference(score(NECTR(Inner())(y, s / 255), clean, run.crops), by_window[smallest])
gain = paired_difference(by_window[run.window], by_window[smallest])
check.that(f"gain of R = {run.window} over R = {smallest}, sigma = 25", gain.value, within=(0, None), unit="dB",
           interval=gain.interval, interval_within=(0, None), control=truncated.value,
           control_interval=truncated.interval, broken="outer translations dropped")  # fmt: skip
part = y[:1, :, :16, :16].double()
frozen = {R: net.double().freeze(part, s / 255) for R, net in nets.items()}
norms = {R: float(torch.linalg.matrix_norm(W.dense(), 2).max()) for R, W in frozen.items()}
plain = [W.dense(lambda x, K=W.K: method.kernel_apply(K, x) / K.sum((-4, -3))) for W in frozen.values()]
for net in nets.values():
    net.float()
check.that("largest deviation of the norm from 1", max(abs(n - 1) for n in norms.values()), within=(0, 1e-12),
           control=min(abs(float(torch.linalg.matrix_norm(M, 2).max()) - 1) for M in plain),
           broken="rows normalised instead")  # fmt: skip
for R in sorted(nets):
    check.note(f"PSNR with R = {R}", by_window[R].mean(), unit="dB")
cost = speed_ratio(lambda: nectr.freeze(y[:1], s / 255), lambda: nets[smallest].freeze(y[:1], s / 255), repeats=9)
check.note(f"time with R = {run.window} / with R = {smallest}", cost.value, interval=cost.interval, timing=True)
check.verdict()

# %% [markdown]
# ## Does it expand anywhere?
#
# Norms of Jacobians by power iteration at four kinds of input: noisy photographs, white noise, saturated images (noise
# rounded to black and white) and photographs amplified ten times. Broken, for NECTR: the guide moves with the input.

# %%
check = claim("no-power-iteration-needed")
small = cut_out("test", 24, 1, "attack")
g = run.torch_generator("inputs")
random = torch.rand(small.shape, generator=g, device=run.device)
inputs = {
    "noisy photographs": noisy(small, 25 / 255, "attacked"),
    "white noise": torch.randn(small.shape, generator=g, device=run.device),
    "saturated": random.round(),
    "amplified": 10 * small,
}
attacked = {}
for kind, x in inputs.items():
    maps = {name: (lambda y, cnn=cnn: cnn(y, 25 / 255)) for name, cnn in cnns.items()}
    maps |= {"NECTR": nectr.freeze(x, 25 / 255), "NECTR, moving guide": lambda y: nectr(y, 25 / 255)}
    for name, f in maps.items():
        norm = method.jacobian_norm(f, x, 12, run.torch_generator(f"attack {kind}"))
        attacked[name, kind] = norm.max().item()
attacks = pd.Series(attacked).unstack()[list(inputs)]
worst = attacks.max(axis=1)
check.that("NECTR: largest norm", worst["NECTR"], within=(None, 1 + 1e-5), control=worst["NECTR, moving guide"],
           broken="the guide moves with the input")  # fmt: skip
for name in ("spectral", "penalised"):
    check.that(f"{name}: largest norm", worst[name], within=(1.02, None), control=worst["NECTR"],
               broken="doubly stochastic weights instead")  # fmt: skip
check.note("DnCNN: largest norm", worst["DnCNN"])
check.note("penalised: largest norm at noisy photographs", attacks.loc["penalised", "noisy photographs"])
check.verdict()

# %%
fig, ax = plt.subplots()
for index, name in enumerate(worst.index):
    ax.plot(np.arange(4) + 0.08 * (index - 2), attacks.loc[name], "o", label=name)
ax.axhline(1, color="0.3", linestyle="--", linewidth=1)
ax.set_xticks(range(4), list(inputs))
ax.set(ylabel="largest Jacobian norm", yscale="log")
ax.legend(ncols=2)
show(fig, alt="Largest Jacobian norms of five denoisers at four kinds of input: NECTR with a frozen guide stays at 1",
     caption="Largest norm over six images; the dashed line is nonexpansive.")  # fmt: skip

# %% [markdown]
# ## Reconstruction
#
# Deblurring (a Gaussian and a shaken camera, noise .03) and superresolution (factor 2, noise .01) by HQS with the
# paper's $\mu=6.5$ for all. The denoiser's noise level $s$ is tuned for each method and problem on other images.
# Broken: NECTR without training.

# %%
shape = (run.image_size, run.image_size)
problems = {
    "Gaussian blur": (Blur(shape, gaussian_kernel(9, 1.6)), 0.03),
    "motion blur": (Blur(shape, motion_kernel(9, run.rng("shake"))), 0.03),
    "superresolution": (Downsample(shape, 2, gaussian_kernel(5, 0.8)), 0.01),
}
untrained = NECTR(pair_weights(run.window, "untrained")).to(run.device)
MU, LEVELS = 6.5, [2, 4, 8, 16, 32, 64, 128]


def solve(name, A, b, s, watch=None):
    x0 = F.interpolate(b, shape, mode="bicubic") if b.shape[-2:] != shape else b
    if name in cnns:
        return method.pnp_hqs(lambda y: cnns[name](y, s), A, b, MU, x0, run.iterations, watch)
    model = {"NECTR": nectr, "untrained": untrained}[name]
    return method.reconstruct(model, A, b, s, MU, x0, run.warmup, run.iterations, watch)


full, held = cut_out("test", run.image_size, 2, "reconstruction"), cut_out("valid", run.image_size, 1, "level")
results, trajectories, levels = {}, {}, {}
for problem, (A, noise) in problems.items():
    for name in ("NECTR", "untrained", *cnns):
        b = noisy(A.A(held), noise, f"held {problem}")
        values = [float(psnr(solve(name, A, b, s / 255), held).mean()) for s in LEVELS]
        best = int(np.nanargmax(values))
        assert 0 < best < len(LEVELS) - 1, f"{name}, {problem}: level {LEVELS[best]} is on the edge of {LEVELS}"
        levels[problem, name] = LEVELS[best]
        path, b = [], noisy(A.A(full), noise, f"measured {problem}")
        x = solve(name, A, b, LEVELS[best] / 255, lambda x, path=path: path.append(float(psnr(x, full).mean())))
        results[problem, name], trajectories[problem, name] = score(x, full, 2), path
    results[problem, "start"] = score(F.interpolate(b, shape, mode="bicubic"), full, 2)

check = claim("competitive-reconstruction")
for problem in problems:
    soft = max(("spectral", "penalised"), key=lambda name: results[problem, name].mean())
    gap, control = (paired_difference(results[problem, name], results[problem, soft])
                    for name in ("NECTR", "untrained"))  # fmt: skip
    check.that(f"NECTR - best soft constraint, {problem}", gap.value, within=(-0.5, None), interval=gap.interval,
               control=control.value, broken="no training", unit="dB")  # fmt: skip
check.verdict()
psnr_table = pd.Series({key: value.mean() for key, value in results.items()}).unstack()

# %%
fig, axes = plt.subplots(1, 3, figsize=(6.4, 3.2), sharex=True)
for ax, problem in zip(axes, problems, strict=True):
    for name in ("NECTR", *cnns):
        ax.plot(range(1, run.iterations + 1), trajectories[problem, name], label=name)
    ax.set_title(problem)
axes[0].set_ylabel("PSNR (dB)")
axes[1].set_xlabel("iteration")
axes[1].legend()
show(fig, alt="PSNR against iterations for three problems and four denoisers",
     caption="Mean over twelve crops of six held-out photographs. NECTR: the second phase.")  # fmt: skip

# %% [markdown]
# ## A guide that moves
#
# The same HQS step with the guide taken from the denoiser's own input at every iteration, as in the warm-up, without
# end. At its iterates we measure the Jacobian of one step. The control freezes the guide there.

# %%
check = claim("guide-drift")
A, noise = problems["Gaussian blur"]
one = full[:4].double()
b, s = noisy(A.A(full), noise, "measured Gaussian blur")[:4].double(), levels["Gaussian blur", "NECTR"] / 255
nectr.double()
moving, frozen_path = [], []
method.pnp_hqs(lambda y: nectr(y, s), A, b, MU, b, 2 * run.iterations, moving.append)
method.reconstruct(nectr, A, b, s, MU, b, run.warmup, 2 * run.iterations, frozen_path.append)
expansion = {"moving": [], "frozen": []}
data_step = lambda u: A.prox(u, b, MU)  # noqa: E731
for x in (moving[0], moving[-1]):
    W = nectr.freeze(data_step(x), s)
    for kind, f in (("moving", lambda u: nectr(data_step(u), s)), ("frozen", lambda u, W=W: W(data_step(u)))):
        norms_here = method.jacobian_norm(f, x, 15, run.torch_generator("drift"))
        expansion[kind].append(norms_here.max().item())
nectr.float()
check.that("largest Jacobian norm of a step", max(expansion["moving"]), within=(1 + 1e-3, None),
           control=max(expansion["frozen"]), broken="the guide is frozen")  # fmt: skip
for kind, path in (("moving", moving), ("frozen", frozen_path)):
    track = [float(psnr(x, one).mean()) for x in path]
    check.note(f"{kind} guide: highest PSNR - last", max(track) - track[-1], unit="dB")
    check.note(f"{kind} guide: last PSNR", track[-1], unit="dB")
    shrunk = float((path[-1] - path[-2]).norm() / (path[1] - path[0]).norm())
    check.note(f"{kind} guide: size of the last step / of the first", shrunk)
check.verdict()

# %% [markdown]
# ## What a guarantee costs
#
# "Norm 1" is for a frozen guide. Parameters are equal, seconds are for training in this run. The paper's figures are not
# known to us.

# %%
guarantee = {"NECTR": "norm 1", "DSG-NLM": "norm 1", "spectral": "soft", "penalised": "soft"}
table = pd.DataFrame({
    "guarantee": {name: guarantee.get(name, "none") for name in quality},
    **{f"sigma {s}": {name: values[s].mean() for name, values in quality.items()} for s in run.sigmas},
    **{problem: psnr_table.loc[problem] for problem in problems},
    "largest Jacobian": worst,
    "training (s)": seconds,
})  # fmt: skip
table.reindex(list(quality)).round(2).astype(object).fillna("")

# %% [markdown]
# ## Speed
#
# A denoised image of $128\times128$ pixels: NECTR with its guide new, against scikit-image's non-local means with an
# equal window and $7\times7$ patches; and a plug-and-play step with the weights cached against one that evaluates them.

# %%
big = noisy(cut_out("test", 128, 1, "speed")[:1], 25 / 255, "speed")
plane = big[0, 0].cpu().numpy()
W = nectr.freeze(big, 25 / 255)
nlm = lambda: restoration.denoise_nl_means(plane, 7, run.window, h=0.1, sigma=0.1, fast_mode=True)  # noqa: E731
with torch.no_grad():
    peer = speed_ratio(lambda: nectr(big, 25 / 255), nlm, repeats=9)
    cached = speed_ratio(lambda: W(big), lambda: nectr(big, 25 / 255), repeats=9)
report("time of NECTR / time of scikit-image's non-local means", peer.value, interval=peer.interval, timing=True)
report("time of a step with cached weights / without", cached.value, interval=cached.interval, timing=True)

# %%
run.finish()
