"""Learning-rate schedules: each gives a function from a step, 0 .. steps - 1, to a multiplier of the peak rate.

All begin with a linear warm-up over the first share `warmup` of the steps; its last step has the peak rate and no step
of it has rate 0. Shares and floors lie in [0, 1]; ValueError otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def constant(steps: int, warmup: float = 0.0) -> Schedule:
    """1 after the warm-up."""
    return _after_warmup(steps, warmup, 0.0, lambda progress: 1.0)


def cosine(steps: int, warmup: float = 0.0, floor: float = 0.0) -> Schedule:
    """Half a cosine from 1, which would reach `floor` at step `steps`."""
    return _after_warmup(steps, warmup, floor, lambda progress: (1 + math.cos(math.pi * progress)) / 2)


def linear(steps: int, warmup: float = 0.0, floor: float = 0.0) -> Schedule:
    """A straight line from 1, which would reach `floor` at step `steps`."""
    return _after_warmup(steps, warmup, floor, lambda progress: 1 - progress)


def wsd(steps: int, warmup: float = 0.0, decay: float = 0.1, floor: float = 0.0) -> Schedule:
    """Warm-up, stable, decay: 1 until the last share `decay`, then a line that would reach `floor` at step `steps`."""
    if not 0 <= decay <= 1 or warmup + decay > 1:
        raise ValueError(f"decay={decay}: must be between 0 and 1 - warmup, with warmup={warmup}")
    share = round(decay * steps) / max(steps - round(warmup * steps), 1)  # of what comes after the warm-up
    return _after_warmup(steps, warmup, floor, lambda progress: min(1.0, (1 - progress) / share) if share else 1.0)


SCHEDULES = {"constant": constant, "cosine": cosine, "linear": linear, "wsd": wsd}


def _after_warmup(steps: int, warmup: float, floor: float, shape: Callable[[float], float]) -> Schedule:
    """Warm-up, then from 1 to `floor` by `shape` of the progress in [0, 1] through the rest."""
    if steps < 1:
        raise ValueError(f"steps={steps}: must be at least 1")
    for name, share in (("warmup", warmup), ("floor", floor)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name}={share}: must be between 0 and 1")
    rising = round(warmup * steps)

    def multiplier(step: int) -> float:
        if step < rising:
            return (step + 1) / rising
        progress = min((step - rising) / max(steps - rising, 1), 1.0)
        return floor + (1 - floor) * shape(progress)

    return multiplier
