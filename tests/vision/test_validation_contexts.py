"""Contexts that are known of validation images alone choose the epoch and refit the last layer."""

import pandas as pd
import pytest

from tests.cli.typing_commands import FAST, typed
from tests.vision.tiny_images import TinySource

SETS = {"train": 14, "val": 22, "test": 30}
"""Images of each group up to which number are in which set."""


@pytest.fixture
def table(tmp_path):
    """A table of images with empty contexts in the training set."""
    source = TinySource()
    lines = []
    source.save(tmp_path)
    for path in source.pictures:
        name, context, number = path.split("/")
        part = next(part for part, end in SETS.items() if int(number) < end)
        lines.append((f"{path}.png", name, "" if part == "train" else context, part))
    pd.DataFrame(lines, columns=["path", "label", "context", "split"]).to_csv(
        tmp_path / "images.csv", index=False
    )
    return tmp_path / "images.csv"


def test_they_choose_the_epoch_and_refit_and_nothing_in_training_asks_for_them(table, tmp_path):
    known = f"train {table} {FAST} --contexts known -o {tmp_path / 'run'}"
    for asking in ("--objective groupdro", "--sampler groups"):
        assert (
            "needs contexts, and the training images have none"
            in typed(f"{known} {asking}", fails=True).output
        )
    typed(f"{known} --set select=worst-group")
    assert "val_worst_group" in pd.read_csv(tmp_path / "run" / "metrics.csv")
    refitted = typed(f"refit {tmp_path / 'run'} {table} --contexts known --device cpu").output
    assert "The 2 contexts are those of the data." in refitted
    assert "Refitted on 8 validation images of each group" in refitted
