"""The steps of a training are those of a plain loop, with a run folder and in memory."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from pfdl.vision import Classifier, TrainingConfig, fit, train
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.pixels import normalise
from pfdl.vision.training_data import TrainingData
from tests.vision.tiny_images import tiny_data

CONFIG = TrainingConfig(
    "mlp", "erm", image_size=8, epochs=2, decay_every=2, batch_size=8, augment="none", seed=3
)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_steps_are_those_of_a_plain_loop_in_double_precision(optimizer, tmp_path):
    source, manifest = tiny_data(validation_fraction=0)
    config = replace(CONFIG, optimizer=optimizer, learning_rate=1e-3)
    found = load_file(train(config, source, manifest, tmp_path / "run", device="cpu") / WEIGHTS)
    data = TrainingData(config, source, manifest)
    loader = data.train_loader()
    torch.manual_seed(3)
    network = Classifier(config, 2).backbone.double()
    plain = {"weight_decay": 1e-4, "foreach": False}
    steps = (
        torch.optim.SGD(network.parameters(), 1e-3, momentum=0.9, **plain)
        if optimizer == "sgd"
        else torch.optim.AdamW(network.parameters(), 1e-3, **plain)
    )
    for epoch in range(2):
        for images, labels, *_ in loader.read(epoch):
            steps.zero_grad()
            F.cross_entropy(network(normalise(images).double()), labels).backward()
            steps.step()
    torch.testing.assert_close(
        found,
        {name: value.float() for name, value in network.state_dict().items()},
        rtol=1e-4,
        atol=5e-5,
    )


@pytest.mark.parametrize(
    "how", [{"objective": "stablenet+pfdl"}, {"sampler": "groups", "precision": "bf16"}]
)
def test_a_training_in_memory_is_the_one_with_a_run_folder_to_the_bit(how, tmp_path):
    source, manifest = tiny_data(validation_fraction=0)
    config = replace(CONFIG, augment="flip-shift", contexts="known", **how)
    found = load_file(train(config, source, manifest, tmp_path / "run", device="cpu") / WEIGHTS)
    data = TrainingData(config, source, manifest)
    torch.manual_seed(config.seed)
    model = Classifier(config, 2)
    seen = []
    images = data.train_set
    means = fit(
        model,
        images.images,
        images.labels,
        images.contexts,
        after_epoch=lambda *done: seen.append(done),
    )
    torch.testing.assert_close(dict(model.backbone.state_dict()), found, rtol=0, atol=0)
    assert [epoch for epoch, _ in seen] == [1, 2]
    assert seen[-1][1] == means
    assert {"train_loss", "train_accuracy", "effective_sample_size"} <= set(means)


def test_rows_of_one_seed_share_the_augmentation_whatever_their_objectives_draw():
    images = torch.randint(256, (40, 3, 8, 8)).byte()
    labels = torch.arange(40) % 2

    def trained(objective, **settings):
        config = replace(
            CONFIG, augment="flip-shift", objective=objective, objective_settings=settings
        )
        torch.manual_seed(0)
        model = Classifier(config, 2)
        fit(model, images, labels)
        return dict(model.backbone.state_dict())

    torch.testing.assert_close(
        trained("erm"), trained("pfdl", pfdl={"weight": 0.0}), rtol=0, atol=0
    )


def test_a_sampler_of_groups_needs_contexts():
    with pytest.raises(ValueError, match="the sampler 'groups' needs the context of every sample"):
        fit(
            Classifier(replace(CONFIG, sampler="groups"), 2),
            torch.zeros(8, 3, 8, 8),
            torch.arange(8) % 2,
        )
