"""Which weights a training keeps, and when it ends early."""

import pytest
import torch
from safetensors.torch import load_file

from pfdl.vision import training
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import METRICS, RunKeeper
from pfdl.vision.training import TrainingConfig
from tests.vision.interrupted import SETTINGS, run

pytestmark = pytest.mark.usefixtures("save_at_every_epoch")


@pytest.mark.parametrize(
    ("select", "best"), [("accuracy", 0), ("worst-class", 3), ("worst-group", 2)]
)
def test_the_best_weights_on_validation_images_are_kept(select, best, tmp_path, monkeypatch):
    # 0.6 beats 0.3
    scores = {
        "val_accuracy": [0.9, 0.3, 0.5, 0.6],
        "val_worst_class": [0.1, 0.9, 0.2, 0.9],
    }
    scores |= {
        "val_worst_group": [0.9, 0.1, 0.9, 0.9],
        "val_average_over_groups": [0.9, 0.99, 0.95, 0.95],
    }
    kept = []

    class Teller(RunKeeper):
        def after_epoch(self, row):
            kept.append(self.loop.model.backbone[1].weight.detach().clone())
            super().after_epoch(
                {**row, **{name: values[row["epoch"]] for name, values in scores.items()}}
            )

    monkeypatch.setattr(training, "RunKeeper", Teller)
    run(
        tmp_path / "run",
        TrainingConfig(**SETTINGS, objective="erm", contexts="known", select=select),
    )
    assert torch.equal(load_file(tmp_path / "run" / WEIGHTS)["1.weight"], kept[best])


def test_training_stops_when_the_selected_accuracy_does(tmp_path, monkeypatch):
    class Constant(RunKeeper):
        def after_epoch(self, row):
            super().after_epoch({**row, "val_worst_class": 0.5, "val_accuracy": 0.5})

    monkeypatch.setattr(training, "RunKeeper", Constant)
    run(
        tmp_path / "run",
        TrainingConfig(**{**SETTINGS, "epochs": 9}, select="worst-class", patience=2),
    )
    assert len((tmp_path / "run" / METRICS).read_text().splitlines()) == 1 + 3


def test_a_training_that_diverges_is_a_sentence(tmp_path):
    config = TrainingConfig(**SETTINGS, objective="erm", learning_rate=1e30)
    with pytest.raises(ValueError, match="training diverged in epoch 1: train_loss is"):
        run(tmp_path / "run", config)
