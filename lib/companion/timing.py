"""How fast ours is beside a peer, measured in one run."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np

from companion.stats import Estimate, bootstrap

SHORTEST = 2e-3  # seconds: quicker functions are called several times per measurement, or the clock's noise dominates


def speed_ratio(ours: Callable, peer: Callable, *, repeats: int = 15, warmup: int = 2) -> Estimate:
    """time(ours) / time(peer): the median over `repeats` pairs with a bootstrap interval; below 1, ours is faster.

    Both are called without arguments, in turn and each first in half of the pairs, so that a slow phase of the machine
    hits both. After `warmup` calls of each. CUDA work is waited for.
    """
    if not callable(ours) or not callable(peer):
        raise ValueError("ours, peer: must be functions that can be called without arguments")
    if repeats < 3:
        raise ValueError(f"repeats={repeats}: must be at least 3")
    if warmup < 1:
        raise ValueError(f"warmup={warmup}: must be at least 1")
    functions = (ours, peer)
    for function in functions:
        for _ in range(warmup):
            function()
    calls = [max(1, math.ceil(SHORTEST / _seconds(function, 1))) for function in functions]
    times = np.empty((repeats, 2))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for pair in range(repeats):
            for which in (0, 1) if pair % 2 == 0 else (1, 0):
                times[pair, which] = _seconds(functions[which], calls[which]) / calls[which]
    finally:
        if collecting:
            gc.enable()
    return bootstrap(times[:, 0] / times[:, 1], np.median, np.random.default_rng(0))


def _seconds(function: Callable, calls: int) -> float:
    _wait_for_gpu()
    start = perf_counter()
    for _ in range(calls):
        function()
    _wait_for_gpu()
    return max(perf_counter() - start, 1e-9)


def _wait_for_gpu() -> None:
    torch = sys.modules.get("torch")  # what doesn't import torch has no GPU work to wait for
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
