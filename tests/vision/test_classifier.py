from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import pfdl
from pfdl.lightning import ContextDataModule, ImageClassifier
from pfdl.objectives.objective import Objective
from pfdl.vision import TrainingConfig
from pfdl.vision.pixels import normalise
from tests.vision.tiny_images import quiet_trainer, tiny_data


def fit(model, data, **settings):
    trainer = quiet_trainer(num_sanity_val_steps=0, **settings)
    trainer.fit(model, data)
    return trainer


def make_data(**settings):
    return ContextDataModule(TrainingConfig(image_size=8, batch_size=8, **settings), *tiny_data())


def make(objective="erm", num_classes=2, **settings):
    return ImageClassifier(TrainingConfig("mlp", objective, image_size=8, **settings), num_classes)


def test_one_step_is_sgd_on_the_objective():
    torch.manual_seed(0)
    model = make("erm", 2, augment="none", momentum=0, weight_decay=0)
    data = make_data()
    twin = make("erm", 2)
    twin.load_state_dict(model.state_dict())
    trainer = fit(model, data, limit_train_batches=1, limit_val_batches=0)
    images, labels, _ = next(iter(data.train_dataloader()))
    loss = F.cross_entropy(twin.backbone(normalise(images)), labels)
    loss.backward()
    assert trainer.callback_metrics["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
    for after, before in zip(model.backbone.parameters(), twin.backbone.parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.01 * before.grad)


def test_the_published_penalty_fits_g_and_logs_it():
    model = make("pfdl", 2)
    before = [value.clone() for value in model.objective.penalties[0].decomposition.parameters()]
    logged = fit(model, make_data()).callback_metrics
    assert {"L_g", "L_decorr", "R2", "effective_sample_size", "val_accuracy", "val_loss"} <= set(logged)
    assert logged["L_g"] > 0
    assert logged["effective_sample_size"] == 8
    assert logged["level_part"] > logged["covariance_part"] > 0
    after = model.objective.penalties[0].decomposition.parameters()
    assert not all(map(torch.equal, after, before))


@pytest.mark.parametrize("objective", ["dwr", "cnbb", "stablenet", "stablenet+pfdl"])
def test_weightings_train_and_tell_their_effective_sample_size(objective):
    logged = fit(make(objective, 2), make_data(), limit_train_batches=2).callback_metrics
    assert 1 <= logged["effective_sample_size"] <= 8.001


def rates(model, epochs):
    (optimizer,), (schedule,) = model.configure_optimizers()
    found = []
    for _ in range(epochs):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return optimizer, found


def test_the_schedule_is_the_papers_by_default():
    model = make("erm", 2, epochs=160)
    optimizer, found = rates(model, 161)
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["momentum"] == 0.9
    assert found == pytest.approx([0.01] * 80 + [0.001] * 80 + [0.0001])
    assert rates(make("erm", 2), 41)[1] == pytest.approx([0.01] * 20 + [0.001] * 20 + [0.0001])
    assert rates(make("erm", 2, epochs=1), 2)[1] == pytest.approx([0.01, 0.001])
    owned = {id(value) for group in optimizer.param_groups for value in group["params"]}
    assert owned == {id(value) for value in model.backbone.parameters()}


def test_adamw_and_a_cosine():
    model = make(optimizer="adamw", learning_rate=0.1, weight_decay=0.3, schedule="cosine", epochs=4)
    optimizer, found = rates(model, 6)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.defaults["weight_decay"] == 0.3
    assert found == pytest.approx([0.1, 0.1 * (2 + 2**0.5) / 4, 0.05, 0.1 * (2 - 2**0.5) / 4, 0.0, 0.0], abs=1e-9)


def test_label_smoothing_is_that_of_cross_entropy():
    torch.manual_seed(0)
    model = make("erm", 3, label_smoothing=0.2, augment="none")
    images, labels = torch.randn(6, 3, 8, 8), torch.arange(6) % 3
    expected = F.cross_entropy(model(images), labels, label_smoothing=0.2)
    torch.testing.assert_close(model.training_step((images, labels), 0), expected)


@pytest.mark.parametrize("augment", ["none", "flip-shift", "randaugment"])
def test_augmentation_by_name_changes_what_is_trained_on(augment, monkeypatch):
    model = make("erm", 2, augment=augment)
    images, seen = torch.randint(256, (6, 3, 8, 8)).byte(), []
    monkeypatch.setattr(model, "forward", lambda given, network: seen.append(given) or model.backbone(normalise(given)))
    model.training_step((images, torch.arange(6) % 2), 0)
    assert seen[0].shape == images.shape
    assert torch.equal(seen[0], images) == (augment == "none")


def test_a_batch_of_one_is_skipped_with_a_warning():
    model = make("pfdl", 2)
    with pytest.warns(UserWarning, match="a batch of one image is skipped"):
        assert model.training_step((torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.long)), 0) is None
    assert model.objective.penalties[0].completed_fits == 0


def test_validation_logs_the_worst_class_and_group():
    model = ImageClassifier(
        TrainingConfig(), backbone=nn.Sequential(nn.Flatten(), nn.Linear(1, 2)), objective=Objective()
    )
    with torch.no_grad():
        model.backbone[1].weight.copy_(torch.tensor([[-1.0], [1.0]]))  # predicts the sign of the one pixel
        model.backbone[1].bias.zero_()
    pixels = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1.0, -1.0]).view(8, 1, 1, 1)
    labels = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0])
    contexts = torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])
    rows = list(zip(pixels, labels, contexts, strict=True))

    def validate(samples):
        (logged,) = quiet_trainer().validate(model, DataLoader(samples, batch_size=3), verbose=False)
        return logged

    logged = validate(rows)
    assert logged["val_accuracy"] == pytest.approx(6 / 8)
    assert logged["val_worst_class"] == pytest.approx(3 / 4)
    assert logged["val_worst_group"] == pytest.approx(1 / 2)
    assert "val_worst_group" not in validate([row[:2] for row in rows])


def test_environments_reach_only_objectives_that_ask_for_them():
    fit(make("irm", 2), make_data(contexts="known"), limit_train_batches=1)
    with pytest.raises(ValueError, match="contexts='known'"):
        fit(make("irm", 2), make_data(), limit_train_batches=1)


def test_a_module_and_an_objective_of_ones_own():
    own = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.ReLU(), nn.Linear(4, 2))
    objective = Objective([pfdl.PartialDecorrelation(4, hidden=8)])
    model = ImageClassifier(TrainingConfig(), backbone=own, objective=objective)
    fit(model, make_data(), limit_train_batches=1)
    assert objective.penalties[0].completed_fits == 1


def test_bf16_keeps_the_objective_in_full_precision():
    seen = []

    class Spy(Objective):
        def forward(self, logits, labels, *, features=None, environments=None):
            seen.append((logits.dtype, features.dtype))
            return super().forward(logits, labels, features=features, environments=environments)

    fit(
        ImageClassifier(TrainingConfig("mlp", image_size=8), 2, objective=Spy()),
        make_data(),
        limit_train_batches=1,
        precision="bf16-mixed",
    )
    assert seen == [(torch.float32, torch.float32)]


OWN = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({"backbone": "mlp"}, {}, "num_classes is missing"),
        ({"small_stem": True}, {"backbone": OWN}, "for backbones by name"),
        ({"weights": "w.pth"}, {"backbone": OWN}, "for backbones by name"),
        ({"label_smoothing": 0.1}, {"backbone": OWN, "objective": Objective()}, "by name"),
        ({"objective_settings": {"a": {}}}, {"backbone": OWN, "objective": Objective()}, "by name"),
        ({"backbone": "inception_v3"}, {"num_classes": 2}, "cannot be trained on images of 64×64 pixels"),
        ({"backbone": "squeezenet1_0"}, {"num_classes": 2}, "SqueezeNet has no linear layer"),
        ({}, {"backbone": nn.ReLU()}, "no linear layer"),
    ],
)
def test_parts_that_do_not_fit_are_sentences(settings, arguments, message):
    with pytest.raises(ValueError, match=message):
        ImageClassifier(TrainingConfig(**settings), **arguments)


def test_a_strategy_that_would_shard_g_is_refused():
    model = make("pfdl")
    model.trainer = SimpleNamespace(strategy=FSDPStrategy())
    with pytest.raises(ValueError, match=r"shards the whole module, and g, .* use ModelParallelStrategy"):
        model.setup("fit")
