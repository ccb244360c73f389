"""Imaging: photographs split by image, and forward operators with exact adjoints.

Images are tensors (..., h, w) of real numbers, photographs in [0, 1]. All operators act on the last two axes, on any
leading axes at once, with periodic boundaries, and keep type and device.
"""

from __future__ import annotations

import math
from importlib import resources

import numpy as np
import torch
from torch import Tensor

TRAIN = ("astronaut", "chelsea", "coffee", "brick", "grass", "gravel", "moon", "rocket")
VALID = ("coins", "hubble_deep_field")
TEST = ("camera", "motorcycle_left", "ihc", "retina", "page", "clock_motion")
SPLITS = {"train": TRAIN, "valid": VALID, "test": TEST}


def photographs(split: str, colour: bool = False) -> dict[str, np.ndarray]:
    """Images of scikit-image's wheel, by name: (h, w) float32 in [0, 1], or (3, h, w) with ``colour``.

    Splits are by image, so that no patch of a test image was trained on. Grey images have three equal channels.

    Raises ValueError for an unknown split.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: must be one of {', '.join(map(repr, SPLITS))}")
    from matplotlib.image import imread

    folder = resources.files("skimage") / "data"
    images = {}
    for name in SPLITS[split]:
        (file,) = (folder / f"{name}{end}" for end in (".png", ".jpg") if (folder / f"{name}{end}").is_file())
        with file.open("rb") as stream:
            image = imread(stream, format=file.name.rpartition(".")[2])
        image = image.astype(np.float32) / (255 if image.dtype == np.uint8 else 1)
        image = np.repeat(image[..., None], 3, axis=-1) if image.ndim == 2 else image[..., :3]
        weights = np.array([0.2125, 0.7154, 0.0721], dtype=np.float32)  # luminance of ITU-R BT.709
        images[name] = np.ascontiguousarray(image.transpose(2, 0, 1)) if colour else image @ weights
    return images


def patches(split: str, size: int, count: int, rng: np.random.Generator, colour: bool = False) -> Tensor:
    """Random square crops, as many of each image up to rounding: (count, size, size), or (count, 3, size, size).

    Raises ValueError for an unknown split, a size larger than an image, or no patches.
    """
    if count < 1:
        raise ValueError(f"count={count}: must be at least 1")
    images = list(photographs(split, colour).values())
    smallest = min(min(image.shape[-2:]) for image in images)
    if not 1 <= size <= smallest:
        raise ValueError(f"size={size}: must be between 1 and {smallest}, the smallest side of an image")
    crops = []
    for index in range(count):
        image = images[index % len(images)]
        top, left = (int(rng.integers(side - size + 1)) for side in image.shape[-2:])
        crops.append(image[..., top : top + size, left : left + size])
    return torch.from_numpy(np.stack(crops))


def gaussian_kernel(size: int, sigma: float) -> Tensor:
    """Gaussian blur kernel (size, size) that sums to 1; ``size`` odd, ``sigma`` in pixels."""
    if size < 1 or size % 2 == 0:
        raise ValueError(f"size={size}: must be odd and positive")
    if not 0 < sigma < math.inf:
        raise ValueError(f"sigma={sigma}: must be positive")
    x = torch.arange(size, dtype=torch.float64) - size // 2
    line = torch.exp(-(x**2) / (2 * sigma**2))
    kernel = line[:, None] * line[None, :]
    return kernel / kernel.sum()


def motion_kernel(size: int, rng: np.random.Generator, steps: int = 200) -> Tensor:
    """Kernel (size, size) of a shaken camera: the occupation of a smooth random walk kept inside; it sums to 1."""
    if size < 3 or size % 2 == 0:
        raise ValueError(f"size={size}: must be odd and at least 3")
    half = size // 2
    path = np.cumsum(np.cumsum(rng.standard_normal((steps, 2)), axis=0), axis=0)
    path -= path.mean(axis=0)
    path *= half / np.abs(path).max()
    kernel = np.zeros((size, size))
    np.add.at(kernel, tuple((np.rint(path).astype(int) + half).T), 1.0)
    return torch.from_numpy(kernel / kernel.sum())


class LinearOperator:
    """A linear map A on images, with its adjoint, its squared norm, and the proximal map of its least-squares term."""

    norm_sq: float
    """The squared spectral norm of A."""

    def A(self, x: Tensor) -> Tensor:
        """Apply A: (..., h, w) to the measurements."""
        raise NotImplementedError

    def AT(self, y: Tensor) -> Tensor:
        """Apply the adjoint, so that <A x, y> = <x, AT y>."""
        raise NotImplementedError

    def grad(self, x: Tensor, b: Tensor) -> Tensor:
        """Gradient AT(A x - b) of half the squared residual."""
        return self.AT(self.A(x) - b)

    def prox(self, x: Tensor, b: Tensor, mu: float) -> Tensor:
        """(I + mu AT A)^-1 (x + mu AT b): the minimiser over u of |u - x|^2 + mu |A u - b|^2.

        By Woodbury's identity from the operators' closed forms of (I + mu A AT)^-1. Raises ValueError for mu < 0.
        """
        if not mu >= 0:
            raise ValueError(f"mu={mu}: must be at least 0")
        v = x + mu * self.AT(b)
        return v - mu * self.AT(self._solve(self.A(v), mu))

    def _solve(self, y: Tensor, mu: float) -> Tensor:
        """(I + mu A AT)^-1 y in the space of measurements."""
        raise NotImplementedError


class Downsample(LinearOperator):
    """Blur with ``kernel``, then keep every ``factor``-th pixel in both directions; factor 1 is a blur.

    In Fourier space A AT is diagonal: the mean of |K|^2 over the ``factor``^2 frequencies that alias into one.
    """

    def __init__(self, shape: tuple[int, int], factor: int, kernel: Tensor | None = None):
        """shape: (h, w), multiples of ``factor``. kernel: (k, k) with k odd; None averages ``factor`` x ``factor``."""
        height, width = shape
        if factor < 1 or height % factor or width % factor:
            raise ValueError(f"factor={factor}: must be positive and divide the image's shape {shape}")
        if kernel is None:
            kernel = torch.full((factor, factor), 1 / factor**2, dtype=torch.float64)
        elif kernel.ndim != 2 or kernel.shape[0] % 2 == 0 or kernel.shape[1] % 2 == 0:
            raise ValueError(f"kernel has shape {tuple(kernel.shape)}: must be two odd numbers")
        if kernel.shape[0] > height or kernel.shape[1] > width:
            raise ValueError(f"kernel has shape {tuple(kernel.shape)}: must fit into the image's {shape}")
        self.shape, self.factor = (height, width), factor
        padded = torch.zeros(shape, dtype=torch.float64)
        padded[: kernel.shape[0], : kernel.shape[1]] = kernel.to(torch.float64)
        # An odd kernel is centred on the pixel kept; the box covers the block that begins there.
        centre = (-(kernel.shape[0] // 2), -(kernel.shape[1] // 2)) if kernel.shape[0] % 2 else (1 - factor, 1 - factor)
        self._spectrum = torch.fft.fft2(padded.roll(centre, dims=(0, 1)))
        aliases = self._spectrum.abs().square().unflatten(0, (factor, -1)).unflatten(2, (factor, -1))
        self._power = aliases.mean(dim=(0, 2))  # spectrum of A AT
        self.norm_sq = float(self._power.max())

    def A(self, x: Tensor) -> Tensor:
        """(..., h, w) -> (..., h / factor, w / factor)."""
        if x.shape[-2:] != self.shape:
            raise ValueError(f"x has shape {tuple(x.shape)}: must end in {self.shape}")
        return self._filter(x, self._spectrum)[..., :: self.factor, :: self.factor]

    def AT(self, y: Tensor) -> Tensor:
        x = y.new_zeros((*y.shape[:-2], *self.shape))
        x[..., :: self.factor, :: self.factor] = y
        return self._filter(x, self._spectrum.conj())

    def _solve(self, y: Tensor, mu: float) -> Tensor:
        return self._filter(y, 1 / (1 + mu * self._power))

    @staticmethod
    def _filter(x: Tensor, spectrum: Tensor) -> Tensor:
        complex_type = torch.complex128 if x.dtype == torch.float64 else torch.complex64
        return torch.fft.ifft2(torch.fft.fft2(x) * spectrum.to(x.device, complex_type)).real.to(x.dtype)


class Blur(Downsample):
    """Convolution with ``kernel`` (k, k), k odd."""

    def __init__(self, shape: tuple[int, int], kernel: Tensor):
        super().__init__(shape, 1, kernel)


class Inpaint(LinearOperator):
    """Multiplication by a mask (h, w) of zeros and ones: only pixels with a one are seen."""

    norm_sq = 1.0

    def __init__(self, mask: Tensor):
        if mask.ndim != 2 or not ((mask == 0) | (mask == 1)).all() or not mask.any():
            raise ValueError("mask: must be a matrix of zeros and ones, with at least one 1")
        self.mask = mask.to(torch.float64)

    def A(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != self.mask.shape:
            raise ValueError(f"x has shape {tuple(x.shape)}: must end in {tuple(self.mask.shape)}")
        return x * self.mask.to(x)

    def AT(self, y: Tensor) -> Tensor:
        return self.A(y)

    def _solve(self, y: Tensor, mu: float) -> Tensor:
        return y / (1 + mu * self.mask.to(y))


def psnr(x: Tensor, reference: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB for a peak of 1, over the last two axes: (..., h, w) -> (...)."""
    return -10 * (x - reference).square().mean(dim=(-2, -1)).log10()
