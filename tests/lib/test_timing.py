"""A ratio of times that is known beforehand."""

import time

import pytest

from companion.timing import speed_ratio


def sleeper(milliseconds):
    return lambda: time.sleep(milliseconds / 1000)


def test_ratio_of_sleeps():
    estimate = speed_ratio(sleeper(9), sleeper(3), repeats=9, warmup=1)
    assert 2 < estimate.value < 4
    assert estimate.low <= estimate.value <= estimate.high


def test_short_functions_are_called_often_enough():
    calls = {"ours": 0, "peer": 0}

    def count(name):
        calls[name] += 1

    estimate = speed_ratio(lambda: count("ours"), lambda: count("peer"), repeats=5)
    assert min(calls.values()) > 1000
    assert 0.5 < estimate.value < 2


def test_calls_take_turns():
    order = []

    def log(name):
        order.append(name)
        time.sleep(0.003)

    speed_ratio(lambda: log("A"), lambda: log("B"), repeats=4, warmup=1)
    assert "".join(order) == "AB" + "AB" + "ABBAABBA"  # warm-up, calibration, pairs in both orders


def test_bad_input():
    with pytest.raises(ValueError, match="repeats=2"):
        speed_ratio(sleeper(1), sleeper(1), repeats=2)
    with pytest.raises(ValueError, match="warmup=0"):
        speed_ratio(sleeper(1), sleeper(1), warmup=0)
    with pytest.raises(ValueError, match="functions"):
        speed_ratio(sleeper(1), 3)
