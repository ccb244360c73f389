"""Parameters are checked against the notebook's own cells before anything runs."""

import pytest

from companion.errors import CompanionError
from companion.parameters import read_signature


def read(checkout):
    return read_signature(checkout.chapter / "theory.py", "sums/theory")


def test_reads_defaults_and_presets(checkout):
    signature = read(checkout)
    assert signature.defaults == {
        "preset": "quick",
        "seed": 0,
        "device": "auto",
        "size": None,
        "rate": None,
        "names": None,
    }
    assert signature.presets["full"]["size"] == 2
    signature.validate({"size": 5, "rate": 2, "names": ["b", "c"], "seed": 4, "preset": "full"})
    signature.validate({"preset": "gpu", "device": "cpu", "size": 1})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sise": 5}, "did you mean 'size'"),
        ({"size": "5"}, "size must be of type int"),
        ({"size": True}, "size must be of type int"),
        ({"size": 5.0}, "size must be of type int"),
        ({"names": "a"}, "names must be of type list"),
        ({"names": [1]}, "each entry of names"),
        ({"preset": "ful"}, "did you mean 'full'"),
        ({"device": "gpu"}, "unknown device"),
        ({"seed": 1.5}, "seed must be"),
        ({"preset": "gpu", "device": "cpu"}, "override at least one size"),
    ],
)
def test_refuses(checkout, given, message):
    with pytest.raises(CompanionError, match=message):
        read(checkout).validate(given)


def test_gpu_without_a_gpu(checkout):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(CompanionError, match="needs a CUDA GPU"):
        read(checkout).validate({"preset": "gpu"})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('# %% tags=["parameters"]', "# %%", "0 cells tagged 'parameters'"),
        ("# %%\nrun.finish", '# %% tags=["parameters"]\nseed = 0\n# %%\nrun.finish', "2 cells tagged"),
        ("size = None", "size = 2 + x", "plain literal"),
        ("size = None", "print(1)", "plain assignments only"),
        ('"full": {"size": 2', '"full": {"sise": 2', "disagree on"),
        ('"full": {"size": 2', '"full": {"size": "2"', "must be of type int"),
        ('"gpu": {', '"gpus": {', "PRESETS must have the keys"),
        ("seed = 0\n", "", "lacks seed"),
        ("size = None", "size = = 2", "invalid syntax"),
        ("seed = 0\n", "seed = 0\nfinish = None\n", "cannot be called finish"),
    ],
)
def test_refuses_a_notebook_that_cannot_be_checked(checkout, old, new, message):
    checkout.edit("theory.py", old, new)
    with pytest.raises(CompanionError, match=message) as error:
        read(checkout)
    assert "theory.py" in str(error.value)
