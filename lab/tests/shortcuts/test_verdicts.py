"""The benchmark of verdicts: its sets are what they say, and its rows add up."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pfdl_lab.shortcuts.verdicts import judge, summarise, two_contexts

CONTEXTS = {"cat": ("red", "blue"), "dog": ("blue", "red")}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    root = tmp_path_factory.mktemp("pool")
    rng = np.random.default_rng(0)
    for name, places in CONTEXTS.items():
        for place in places:
            (root / name / place).mkdir(parents=True)
            for number in range(60):
                pixels = rng.integers(0, 120, (8, 8, 3), dtype=np.uint8)
                pixels[..., 0 if place == "red" else 2] += 100
                pixels[..., 1] += 12 * (name == "dog")
                Image.fromarray(pixels).save(root / name / place / f"{number}.jpg")
    return root


def test_a_set_is_associated_and_its_control_is_not(pool):
    own, control = two_contexts("colours", pool, CONTEXTS, seed=0)
    usual = own.train["context"] == own.train["label"].map(lambda name: CONTEXTS[name][0])
    assert usual.mean() == pytest.approx(10 / 11, abs=0.01)
    broken = own.broken["context"] == own.broken["label"].map(lambda name: CONTEXTS[name][0])
    assert broken.mean() < 0.2
    for part in (own.usual, own.broken):
        assert not set(part["path"]) & set(own.train["path"])
    table = pd.crosstab(control.train["label"], control.train["context"])
    assert table.to_numpy().min() == table.to_numpy().max()


def test_a_model_is_judged_on_the_command_line(pool, tmp_path):
    own, _ = two_contexts("colours", pool, CONTEXTS, seed=0)
    options = ["--backbone", "mlp", "--image-size", "8", "--epochs", "8", "--batch-size", "8"]
    row = judge(own, "mlp", tmp_path / "mlp", options)
    assert row["relies"] == "yes"
    assert row["true contexts"] == "YES"
    assert row["broken test"] != "NO"
    words = " ".join(summarise(pd.DataFrame([row])))
    assert "true contexts: YES on 1 of 1 models that rely and on 0 of 0 that do not" in words
