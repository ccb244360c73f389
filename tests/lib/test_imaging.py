"""Forward operators against dense matrices, and a split that keeps images apart."""

import numpy as np
import pytest
import torch

from companion.imaging import (
    SPLITS,
    Blur,
    Downsample,
    Inpaint,
    gaussian_kernel,
    motion_kernel,
    patches,
    photographs,
    psnr,
)

SHAPE = (12, 8)
GENERATOR = torch.Generator().manual_seed(0)
OPERATORS = {
    "blur": Blur(SHAPE, gaussian_kernel(5, 1.2)),
    "motion": Blur(SHAPE, motion_kernel(7, np.random.default_rng(0))),
    "average": Downsample(SHAPE, 2),
    "average 4": Downsample(SHAPE, 4),
    "blur and keep": Downsample(SHAPE, 2, gaussian_kernel(3, 0.8)),
    "inpaint": Inpaint((torch.rand(SHAPE, generator=GENERATOR) < 0.5).float()),
}


def dense(operator) -> torch.Tensor:
    basis = torch.eye(SHAPE[0] * SHAPE[1], dtype=torch.float64).reshape(-1, *SHAPE)
    return operator.A(basis).flatten(1).T


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_operator_agrees_with_its_dense_matrix(operator):
    matrix = dense(operator)
    x = torch.randn(3, *SHAPE, dtype=torch.float64, generator=GENERATOR)
    y = operator.A(torch.randn(3, *SHAPE, dtype=torch.float64, generator=GENERATOR))
    assert torch.allclose(operator.AT(y).flatten(1), y.flatten(1) @ matrix, atol=1e-12)
    assert operator.norm_sq == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)) ** 2, abs=1e-10)
    mu = 3.7
    system = torch.eye(matrix.shape[1], dtype=torch.float64) + mu * matrix.T @ matrix
    expected = torch.linalg.solve(system, (x + mu * operator.AT(y)).flatten(1).T).T
    assert torch.allclose(operator.prox(x, y, mu).flatten(1), expected, atol=1e-10)
    assert torch.allclose(operator.grad(x, y).flatten(1), (x.flatten(1) @ matrix.T - y.flatten(1)) @ matrix, atol=1e-12)
    assert torch.equal(operator.prox(x, y, 0.0), x)


def test_average_is_the_mean_of_blocks():
    x = torch.randn(*SHAPE, dtype=torch.float64, generator=GENERATOR)
    blocks = x.reshape(6, 2, 4, 2).mean(dim=(1, 3))
    assert torch.allclose(OPERATORS["average"].A(x), blocks, atol=1e-12)


def test_blur_is_a_convolution():
    x = torch.zeros(SHAPE, dtype=torch.float64)
    x[6, 4] = 1
    kernel = torch.arange(9.0, dtype=torch.float64).reshape(3, 3)
    assert torch.allclose(Blur(SHAPE, kernel).A(x)[5:8, 3:6], kernel, atol=1e-12)


def test_float32_stays_float32():
    assert OPERATORS["blur"].A(torch.zeros(SHAPE)).dtype == torch.float32


def test_splits_share_no_image_and_load():
    names = [name for split in SPLITS.values() for name in split]
    assert len(set(names)) == len(names)
    for split in SPLITS:
        for image in photographs(split, colour=True).values():
            assert image.shape[0] == 3
            assert 0 <= image.min() < image.max() <= 1
    grey = photographs("test")["camera"]
    assert grey.shape == (512, 512)


def test_patches_are_reproducible_crops():
    first, second = (patches("valid", 16, 5, np.random.default_rng(1)) for _ in range(2))
    assert first.shape == (5, 16, 16)
    assert torch.equal(first, second)


def test_psnr():
    x = torch.zeros(2, 4, 4)
    assert torch.allclose(psnr(x + 0.1, x), torch.tensor(20.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: photographs("tests"), "split='tests'"),
        (lambda: patches("valid", 10_000, 1, np.random.default_rng(0)), "size=10000"),
        (lambda: patches("valid", 8, 0, np.random.default_rng(0)), "count=0"),
        (lambda: gaussian_kernel(4, 1.0), "size=4"),
        (lambda: gaussian_kernel(5, 0.0), r"sigma=0\.0"),
        (lambda: motion_kernel(4, np.random.default_rng(0)), "size=4"),
        (lambda: Downsample((9, 8), 2), "factor=2"),
        (lambda: Blur((8, 8), torch.ones(2, 2)), "kernel has shape"),
        (lambda: Blur((4, 4), torch.ones(5, 5)), "must fit"),
        (lambda: Inpaint(torch.zeros(4, 4)), "mask"),
        (lambda: OPERATORS["blur"].A(torch.zeros(3, 3)), "x has shape"),
        (lambda: OPERATORS["blur"].prox(torch.zeros(SHAPE), torch.zeros(SHAPE), -1.0), "mu="),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
