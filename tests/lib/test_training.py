"""Schedules at their ends, batches of the right tokens, and a loop that learns, repeats itself and leaves no trace."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from companion import training
from companion.data import token_ids
from companion.models import DecoderLM, LMConfig
from companion.schedules import SCHEDULES, constant, cosine, linear, wsd
from companion.training import evaluate_lm, lm_batches, lm_loss, train


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def values(schedule, steps):
    return np.array([schedule(t) for t in range(steps)])


def test_schedules_at_their_ends():
    for name, make in SCHEDULES.items():
        v = values(make(200, warmup=0.1), 200)
        np.testing.assert_allclose(v[:20], np.arange(1, 21) / 20, err_msg=name)
        assert v.max() == 1 and v.argmax() == 19 and (v > 0).all()
    assert (values(constant(200), 200) == 1).all()
    assert cosine(200)(0) == linear(200)(0) == 1
    assert cosine(200)(100) == pytest.approx(0.5) and cosine(200)(200) == pytest.approx(0, abs=1e-12)
    assert linear(200, floor=0.2)(200) == pytest.approx(0.2) and linear(200)(50) == pytest.approx(0.75)
    v = values(wsd(200, warmup=0.1, decay=0.2), 200)
    assert (v[20:161] == 1).all() and v[161] < 1
    np.testing.assert_allclose(v[160:], 1 - np.arange(40) / 40)
    assert (values(wsd(50, decay=0), 50) == 1).all()


def test_sums_of_schedules_have_closed_forms():
    steps = 20_000
    assert values(cosine(steps), steps // 2).sum() / steps == pytest.approx((0.5 + 1 / math.pi) / 2, abs=1e-4)
    assert values(wsd(steps, 0.02, 0.1), steps).mean() == pytest.approx(1 - 0.01 - 0.05, abs=1e-4)


@pytest.mark.parametrize(
    "make,message",
    [
        (lambda: cosine(0), "steps=0"),
        (lambda: cosine(10, warmup=2), "warmup=2"),
        (lambda: linear(10, floor=-1), "floor=-1"),
        (lambda: wsd(10, warmup=0.6, decay=0.6), "decay=0.6"),
    ],
)
def test_bad_schedules(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_batches_are_windows_and_their_shift():
    ids = np.arange(100, 150)
    batches = lm_batches(ids, 256, 8, gen())
    x, y = next(batches)
    assert x.shape == y.shape == (256, 8) and x.dtype == torch.int64
    assert torch.equal(y, x + 1) and torch.equal(x, x[:, :1] + torch.arange(8))
    assert x.min() == 100 and y.max() == 149  # the first and the last token both occur
    assert not torch.equal(next(batches)[0], x)
    assert torch.equal(next(lm_batches(ids, 256, 8, gen()))[0], x)
    only = next(lm_batches(ids[:9], 2, 8, gen()))
    assert torch.equal(only[0][0], torch.arange(100, 108))


def test_bad_batches():
    with pytest.raises(ValueError, match="ids has shape"):
        lm_batches(np.arange(8), 2, 8, gen())
    with pytest.raises(ValueError, match="batch=0"):
        lm_batches(np.arange(80), 0, 8, gen())


def test_evaluation_covers_each_token_once():
    class Uniform(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.seen = []

        def forward(self, ids):
            self.seen.append(ids)
            return torch.zeros(*ids.shape, 7) * self.scale

    model = Uniform()
    ids = np.arange(7).repeat(11)  # 77 tokens: 7 windows of 10 and a rest
    assert evaluate_lm(model, ids, context=10, batch=3) == pytest.approx(math.log(7))
    assert torch.equal(torch.cat(model.seen).flatten(), torch.as_tensor(ids[:70]))
    with pytest.raises(ValueError, match="context=80"):
        evaluate_lm(model, ids, context=80)


CONFIG = LMConfig(vocab=2048, d_model=32, n_layers=1, n_heads=2, max_len=32)


def short_run(steps=60, seed=0, **options):
    model = DecoderLM(CONFIG, gen(seed))
    batches = lm_batches(token_ids("train", 100_000), 8, 32, gen(seed + 1))
    return model, train(model, batches, lm_loss, steps=steps, lr=3e-3, **options)


def test_the_model_beats_the_unigram_entropy():
    ids, valid = token_ids("train", 300_000), token_ids("valid", 4_000)
    counts = np.bincount(ids, minlength=2048) + 1
    unigram = -np.log(counts / counts.sum())[valid].mean()
    model = DecoderLM(LMConfig(vocab=2048, d_model=64, n_layers=1, n_heads=2, max_len=32), gen())
    history = train(
        model,
        lm_batches(ids, 16, 32, gen(1)),
        steps=120,
        lr=1e-2,
        warmup=0.05,
        evaluate=lambda m: evaluate_lm(m, valid, 32),
        every=60,
    )
    assert abs(history.loss[0] - math.log(2048)) < 0.1  # it starts out knowing nothing
    assert list(history.eval_steps) == [60, 120]
    assert history.metrics["loss"][-1] < unigram - 0.3
    assert history.metrics["loss"][-1] < history.metrics["loss"][0]


def test_two_runs_are_identical():
    (a, first), (b, second) = short_run(), short_run()
    np.testing.assert_array_equal(first.loss, second.loss)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not np.array_equal(first.loss, short_run(seed=5)[1].loss)


def quadratic(target=3.0):
    model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    return model, lambda m, batch: (m.weight - target).square().sum() / 2


def test_the_update_is_gradient_descent():
    model, loss_fn = quadratic()
    history = train(
        model,
        [None] * 3,
        loss_fn,
        steps=3,
        lr=0.5,
        schedule=lambda t: 1 / (t + 1),
        optimizer=torch.optim.SGD,
        clip=None,
    )
    error = 3 * np.cumprod([1, 1 - 0.5, 1 - 0.25, 1 - 0.5 / 3])
    np.testing.assert_allclose(history.loss, error[:3] ** 2 / 2)
    assert float(model.weight.detach()) == pytest.approx(3 - error[3])
    np.testing.assert_allclose(history.lr, [0.5, 0.25, 0.5 / 3])
    assert list(history.steps) == [1, 2, 3] and history.seconds > 0


def test_clipping_bounds_the_step():
    model, loss_fn = quadratic(target=1e6)
    train(model, [None], loss_fn, steps=1, lr=0.5, schedule="constant", optimizer=torch.optim.SGD, clip=1.0)
    assert float(model.weight.detach()) == pytest.approx(0.5)


def test_an_existing_optimizer_keeps_its_rates_and_state():
    whole, loss_fn = quadratic()
    train(whole, [None] * 6, loss_fn, steps=6, lr=0.1, schedule="constant", optimizer=torch.optim.Adam)
    halves, loss_fn = quadratic()
    optimizer = torch.optim.Adam(halves.parameters(), lr=0.1)
    for _ in range(2):
        train(halves, [None] * 3, loss_fn, steps=3, schedule="constant", optimizer=optimizer)
    assert torch.equal(whole.weight, halves.weight)
    train(halves, [None] * 3, loss_fn, steps=3, schedule="cosine", optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_logs_generator_and_eval_mode():
    model = nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5))
    modes = []

    def loss_fn(model, batch, generator):
        noise = torch.rand((), generator=generator)
        assert model.training
        return model[0].weight.sum() * 0 + noise, {"noise": noise, "two": 2}

    def evaluate(model):
        modes.append((model.training, torch.is_grad_enabled()))
        return {"a": 1.0}

    history = train(model, [None] * 5, loss_fn, steps=5, lr=0.1, generator=gen(3), evaluate=evaluate, every=2)
    expected = [float(torch.rand((), generator=g)) for g in [gen(3)] for _ in range(5)]
    np.testing.assert_allclose(history.logs["noise"], expected)
    assert list(history.logs["two"]) == [2] * 5
    assert list(history.eval_steps) == [2, 4, 5] and list(history.metrics["a"]) == [1, 1, 1]
    assert modes == [(False, False)] * 3


def test_bfloat16_forward_trains_like_float32():
    _, exact = short_run(30)
    model, half = short_run(30, bf16=True)
    assert model.embedding.weight.dtype == torch.float32
    assert np.abs(half.loss - exact.loss).max() < 0.05 and (half.loss != exact.loss).any()


def test_no_bar_without_someone_to_watch(capsys):
    short_run(2)
    assert capsys.readouterr().err == ""
    assert not training._someone_watches()


def test_zero_steps():
    model, loss_fn = quadratic()
    history = train(model, [], loss_fn, steps=0, lr=0.1)
    assert len(history.loss) == len(history.steps) == 0 and float(model.weight.detach()) == 0


@pytest.mark.parametrize(
    "options,message",
    [
        ({"steps": -1, "lr": 0.1}, "steps=-1"),
        ({"steps": 1}, "lr=None"),
        ({"steps": 1, "lr": float("nan")}, "lr=nan"),
        ({"steps": 1, "lr": 0.1, "schedule": "cosin"}, "'constant', 'cosine', 'linear', 'wsd'"),
        ({"steps": 1, "lr": 0.1, "schedule": lambda t: 1, "warmup": 0.1}, "warmup=0.1"),
        ({"steps": 1, "lr": 0.1, "clip": 0}, "clip=0"),
        ({"steps": 1, "lr": 0.1, "every": 0}, "every=0"),
        ({"steps": 5, "lr": 0.1}, "batches ended after 2"),
    ],
)
def test_bad_arguments(options, message):
    model, loss_fn = quadratic()
    with pytest.raises(ValueError, match=message):
        train(model, [None] * 2, loss_fn, **options)


def test_rates_belong_to_the_optimizer():
    model, loss_fn = quadratic()
    with pytest.raises(ValueError, match="must be None when optimizer"):
        train(model, [None], loss_fn, steps=1, lr=0.1, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
