"""The steps of a training are those of a plain loop, however many of them its trainer takes for one."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from pfdl.vision import stepping, training
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.classifier import ImageClassifier
from pfdl.vision.datamodule import ContextDataModule
from pfdl.vision.pixels import normalise
from pfdl.vision.resume import ResumeCallback
from pfdl.vision.training import TrainingConfig, train
from tests.vision.interrupted import assert_same_end
from tests.vision.tiny_images import tiny_data

CONFIG = TrainingConfig("mlp", "erm", image_size=8, epochs=2, batch_size=8, augment="none", seed=3)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_steps_are_those_of_a_plain_loop_in_double_precision(optimizer, tmp_path):
    source, manifest = tiny_data(validation_fraction=0)
    config = replace(CONFIG, optimizer=optimizer, learning_rate=1e-3)
    found = load_file(train(config, source, manifest, tmp_path / "run", device="cpu") / WEIGHTS)
    data = ContextDataModule(source, manifest, image_size=8, batch_size=8, seed=3)
    data.setup("fit")
    loader = data.train_dataloader()
    torch.manual_seed(3)
    network = ImageClassifier("mlp", 2, image_size=8).backbone.double()
    plain = {"weight_decay": 1e-4, "foreach": False}
    steps = (
        torch.optim.SGD(network.parameters(), 1e-3, momentum=0.9, **plain)
        if optimizer == "sgd"
        else torch.optim.AdamW(network.parameters(), 1e-3, **plain)
    )
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for images, labels, _ in loader:
            steps.zero_grad()
            F.cross_entropy(network(normalise(images).double()), labels).backward()
            steps.step()
    torch.testing.assert_close(
        found, {name: value.float() for name, value in network.state_dict().items()}, rtol=1e-4, atol=5e-5
    )


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_it_makes_no_difference_how_often_progress_is_shown(precision, tmp_path, monkeypatch):
    shown = []

    class Noting(ResumeCallback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            shown.append(batch_idx)

    monkeypatch.setattr(training, "ResumeCallback", Noting)
    for name, seconds in (("always", 0.0), ("never", float("inf"))):
        monkeypatch.setattr(stepping, "SHOW_EVERY", seconds)
        train(replace(CONFIG, precision=precision, augment="flip-shift"), *tiny_data(), tmp_path / name, device="cpu")
    assert shown == [*range(5), *range(5), 4, 4]
    assert_same_end(tmp_path / "never", tmp_path / "always")
