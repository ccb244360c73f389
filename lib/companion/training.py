"""A training loop for small models, batches of text, and learning-rate schedules."""

from __future__ import annotations

import functools
import inspect
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from companion.schedules import SCHEDULES, Schedule
from companion.show import in_kernel


def lm_batches(
    ids: np.ndarray | Tensor, batch: int, context: int, generator: torch.Generator, device="cpu"
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of windows at random places: inputs and next tokens, each (batch, context) int64.

    ids: (n,) token ids, moved to `device` once.  Raises ValueError if n <= context.
    """
    if batch < 1 or context < 1:
        raise ValueError(f"batch={batch}, context={context}: must be at least 1")
    if np.ndim(ids) != 1 or len(ids) <= context:
        raise ValueError(f"ids has shape {tuple(np.shape(ids))}: must be (n,) with n > context={context}")
    data = torch.as_tensor(ids).to(device, torch.int64)
    window = torch.arange(context + 1, device=device)

    def draw():
        while True:
            start = torch.randint(len(data) - context, (batch,), generator=generator, device=generator.device)
            tokens = data[start.to(device)[:, None] + window]
            yield tokens[:, :-1], tokens[:, 1:]

    return draw()  # so that bad arguments raise here and not at the first batch


def lm_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross-entropy in nats per token of `model(inputs)` (B, T, V) against next tokens (B, T)."""
    inputs, targets = batch
    logits = model(inputs)
    if logits.dtype in (torch.bfloat16, torch.float16):  # too coarse for the sum over the vocabulary
        logits = logits.float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate_lm(model: nn.Module, ids: np.ndarray | Tensor, context: int, batch: int = 32, loss_fn=lm_loss) -> float:
    """Mean loss in nats per token over ids (n,) cut into windows of `context` (a shorter rest is left out)."""
    device = next(model.parameters()).device
    data = torch.as_tensor(ids).to(device, torch.int64)
    count = (len(data) - 1) // context
    if count < 1:
        raise ValueError(f"ids has {len(data)} tokens: must be more than context={context}")
    inputs = data[: count * context].view(count, context)
    targets = data[1 : count * context + 1].view(count, context)
    total = 0.0
    for part in range(0, count, batch):
        x, y = inputs[part : part + batch], targets[part : part + batch]
        total += float(loss_fn(model, (x, y))) * len(x)
    return total / count


@dataclass
class History:
    """What a training run recorded.

    steps, loss, lr: (n,), one entry an update: its number from 1, the loss before it, the (first group's) rate used
    logs: by name (n,), what `loss_fn` returned beside the loss
    eval_steps: (m,) updates done at each evaluation;  metrics: by name (m,)
    seconds: wall clock without the evaluations
    """

    steps: np.ndarray
    loss: np.ndarray
    lr: np.ndarray
    eval_steps: np.ndarray
    logs: dict[str, np.ndarray] = field(default_factory=dict)
    metrics: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0


ENDED = object()  # what `next` gives when the batches run out: any value may be a batch
adamw = functools.partial(torch.optim.AdamW, betas=(0.9, 0.95), weight_decay=0.01)


def train(
    model: nn.Module,
    batches: Iterable,
    loss_fn: Callable = lm_loss,
    *,
    steps: int,
    lr: float | None = None,
    schedule: str | Schedule = "cosine",
    warmup: float = 0.0,
    optimizer: Callable | torch.optim.Optimizer = adamw,
    clip: float | None = 1.0,
    generator: torch.Generator | None = None,
    evaluate: Callable[[nn.Module], dict[str, float] | float] | None = None,
    every: int | None = None,
    bf16: bool = False,
    progress: bool = True,
) -> History:
    """Trains `model` in place for `steps` updates.

    loss_fn(model, batch) -> loss, or (loss, {name: number or tensor}) to log more. If it has a parameter named
        `generator`, it gets the one given here: for losses that draw random numbers.
    schedule: "constant", "cosine", "linear", "wsd" with the share `warmup`, or a function step -> multiplier.
    optimizer: from (parameters, lr=lr) to an optimiser, such as `torch.optim.SGD`; or an optimiser that exists, whose
        own rates (then lr=None) are multiplied and restored at the end, so that a later call can go on.
    clip: bound on the norm of the gradient, or None.  bf16: forward pass under bfloat16 autocast.
    evaluate(model) -> metrics (a number is called "loss"), after every `every` updates and after the last, without
        gradients and in eval mode.
    progress: a bar, where someone watches: in a terminal or a notebook opened by hand, not when a book is built.

    A loss that isn't finite is recorded, not raised: sweeps of the learning rate reach divergence on purpose.
    Raises ValueError for bad arguments before the first update, and if the batches end before `steps`.
    """
    if steps < 0:
        raise ValueError(f"steps={steps}: must be at least 0")
    if every is not None and every < 1:
        raise ValueError(f"every={every}: must be None or at least 1")
    if clip is not None and not clip > 0:
        raise ValueError(f"clip={clip}: must be None or positive")
    multiplier = _resolve_schedule(schedule, steps, warmup)
    optimizer = _resolve_optimizer(optimizer, model, lr)
    if generator is not None and "generator" in inspect.signature(loss_fn).parameters:
        loss_fn = functools.partial(loss_fn, generator=generator)
    base_rates = [group["lr"] for group in optimizer.param_groups]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    device = parameters[0].device.type

    losses: list[Tensor] = []
    rates: list[float] = []
    logs: dict[str, list] = {}
    eval_steps: list[int] = []
    metrics: dict[str, list[float]] = {}
    evaluation_seconds, start = 0.0, time.perf_counter()
    batches = iter(batches)
    bar = tqdm(total=steps, disable=not (progress and _someone_watches()), leave=False)
    model.train()
    try:
        for step in range(steps):
            for group, rate in zip(optimizer.param_groups, base_rates, strict=True):
                group["lr"] = rate * multiplier(step)
            rates.append(optimizer.param_groups[0]["lr"])
            batch = next(batches, ENDED)
            if batch is ENDED:
                raise ValueError(f"batches ended after {step}: must last for steps={steps}")
            with torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
                loss, extra = _with_logs(loss_fn(model, batch))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(parameters, clip)
            optimizer.step()
            losses.append(loss.detach())  # not .item(), which would wait for the GPU at every step
            for name, value in extra.items():
                logs.setdefault(name, []).append(value.detach() if isinstance(value, Tensor) else value)
            bar.update()
            if evaluate is not None and (step + 1 == steps or (every and (step + 1) % every == 0)):
                evaluation_start = time.perf_counter()
                eval_steps.append(step + 1)
                for name, value in _evaluate(model, evaluate).items():
                    metrics.setdefault(name, []).append(float(value))
                evaluation_seconds += time.perf_counter() - evaluation_start
                bar.set_postfix({name: f"{values[-1]:.4g}" for name, values in metrics.items()})
        loss_values = np.array([float(x) for x in losses])  # waits for the GPU, so that it counts as time
    finally:
        bar.close()
        for group, rate in zip(optimizer.param_groups, base_rates, strict=True):
            group["lr"] = rate
    return History(
        steps=np.arange(1, steps + 1),
        loss=loss_values,
        lr=np.array(rates),
        eval_steps=np.array(eval_steps, dtype=int),
        logs={name: np.array([float(x) for x in values]) for name, values in logs.items()},
        metrics={name: np.array(values) for name, values in metrics.items()},
        seconds=time.perf_counter() - start - evaluation_seconds,
    )


def _resolve_schedule(schedule: str | Schedule, steps: int, warmup: float) -> Schedule:
    if callable(schedule):
        if warmup:
            raise ValueError(f"warmup={warmup}: must be 0 when schedule is a function, which has its own")
        return schedule
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule={schedule!r}: must be a function or one of {', '.join(map(repr, SCHEDULES))}")
    return SCHEDULES[schedule](max(steps, 1), warmup)


def _resolve_optimizer(optimizer, model: nn.Module, lr: float | None) -> torch.optim.Optimizer:
    if isinstance(optimizer, torch.optim.Optimizer):
        if lr is not None:
            raise ValueError(f"lr={lr}: must be None when optimizer is an optimiser, which has its own rates")
        return optimizer
    if lr is None or not 0 < lr < math.inf:
        raise ValueError(f"lr={lr}: must be a positive number")
    return optimizer(model.parameters(), lr=lr)


def _with_logs(result) -> tuple[Tensor, dict]:
    return result if isinstance(result, tuple) else (result, {})


@torch.no_grad()
def _evaluate(model: nn.Module, evaluate: Callable) -> dict[str, float]:
    model.eval()
    try:
        result = evaluate(model)
    finally:
        model.train()
    return result if isinstance(result, dict) else {"loss": result}


def _someone_watches() -> bool:
    """In a terminal; in a kernel, unless papermill or nbclient run it, which take no input from a person."""
    if not in_kernel():
        return sys.stderr.isatty()
    return getattr(sys.modules["IPython"].get_ipython().kernel, "_allow_stdin", False)
