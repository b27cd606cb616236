"""The study of a readout of pretrained features: four ways to weight, and where nothing is
accepted.
"""

from itertools import product

import numpy as np
import pandas as pd
import torch

from pfdl.runs import Run
from pfdl_lab import readout
from pfdl_lab.images.data import ImageData, Split
from pfdl_lab.training import Samples


def made_up_split(rng, shift):
    """Two classes by the first feature, contexts by the second."""
    labels = rng.integers(2, size=400)
    contexts = np.where(rng.random(400) < shift, labels, 1 - labels)
    features = rng.normal(size=(400, 4)) + 3 * np.stack([labels, contexts, labels, contexts], 1)
    return Samples(*map(torch.from_numpy, (features.astype(np.float32), labels, contexts)))


def test_a_split_has_four_readouts_and_says_whether_contexts_were_accepted(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    train, test = made_up_split(rng, 0.95), made_up_split(rng, 0.5)
    tests = {name: torch.arange(400) for name in readout.TESTS}
    split = Split(train, train, test, tests, 2, True, lambda: train.inputs)
    monkeypatch.setattr(ImageData, "split", lambda *_, **__: split)
    (line,) = readout.run_task(3, data=ImageData("pets"), folder=tmp_path)
    assert {f"{row} 1:5" for row in readout.ROWS} <= set(line)
    assert line["true 1:5"] > line["erm 1:5"]
    if not line["believed"]:
        assert line["inferred 1:5"] == line["classes 1:5"]


def test_the_section_compares_with_balanced_classes():
    results = pd.DataFrame({"seed": [1, 2], "believed": [1, 0]})
    for row, test in product(readout.ROWS, readout.TESTS):
        results[f"{row} {test}"] = [70.0, 72.0]
    results["inferred 1:5"] = 73.0
    (table,) = readout.build(Run(None, readout.KIND, {}, {}), results).blocks
    gained = table.rows[-1].cells[2]
    assert (gained.value, gained.error) == (2.0, 1.0)
    assert table.note == "Contexts were accepted in 1 of 2 splits."
