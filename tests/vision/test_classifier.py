import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.nn import functional as F

import pfdl
from pfdl.lightning import ContextDataModule, ImageClassifier
from pfdl.objectives.objective import Objective
from pfdl.vision import datamodule
from pfdl.vision.pixels import normalise
from tests.vision.tiny_images import tiny_data


def fit(model, data, epochs=1, **settings):
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **settings,
    )
    trainer.fit(model, data)
    return trainer


def make_data(**settings):
    return ContextDataModule(*tiny_data(), image_size=8, batch_size=8, **settings)


def test_one_step_is_sgd_on_the_objective():
    torch.manual_seed(0)
    model = ImageClassifier("mlp", 2, "erm", image_size=8, augment=False, momentum=0, weight_decay=0)
    data = make_data()
    twin = ImageClassifier("mlp", 2, "erm", image_size=8)
    twin.load_state_dict(model.state_dict())
    trainer = fit(model, data, limit_train_batches=1, limit_val_batches=0)
    images, labels, _ = next(iter(data.train_dataloader()))
    loss = F.cross_entropy(twin.backbone(normalise(images)), labels)
    loss.backward()
    assert trainer.callback_metrics["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
    for after, before in zip(model.backbone.parameters(), twin.backbone.parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.01 * before.grad)


def test_the_published_penalty_fits_g_and_logs_it():
    model = ImageClassifier("mlp", 2, "pfdl", image_size=8)
    before = [value.clone() for value in model.objective.penalties[0].decomposition.parameters()]
    logged = fit(model, make_data()).callback_metrics
    assert {"L_g", "L_decorr", "R2", "effective_sample_size", "val_accuracy", "val_loss"} <= set(logged)
    assert logged["L_g"] > 0
    assert logged["effective_sample_size"] == 8
    after = model.objective.penalties[0].decomposition.parameters()
    assert not all(map(torch.equal, after, before))


@pytest.mark.parametrize("objective", ["dwr", "cnbb", "stablenet", "stablenet+pfdl"])
def test_weightings_train_and_tell_their_effective_sample_size(objective):
    logged = fit(
        ImageClassifier("mlp", 2, objective, image_size=8), make_data(), limit_train_batches=2
    ).callback_metrics
    assert 1 <= logged["effective_sample_size"] <= 8.001


def test_the_schedule_is_the_papers_by_default():
    model = ImageClassifier("mlp", 2, image_size=8)
    (optimizer,), (schedule,) = model.configure_optimizers()
    assert optimizer.defaults["lr"] == 0.01
    assert (schedule.step_size, schedule.gamma) == (80, 0.1)
    owned = {id(value) for group in optimizer.param_groups for value in group["params"]}
    assert owned == {id(value) for value in model.backbone.parameters()}


def test_environments_reach_only_objectives_that_ask_for_them():
    fit(ImageClassifier("mlp", 2, "irm", image_size=8), make_data(contexts="known"), limit_train_batches=1)
    with pytest.raises(ValueError, match="contexts='known'"):
        fit(ImageClassifier("mlp", 2, "irm", image_size=8), make_data(), limit_train_batches=1)


def test_pfdl_balances_what_was_inferred_from_all_training_images(monkeypatch):
    found = torch.arange(100) % 3
    monkeypatch.setattr(datamodule, "infer_contexts", lambda features, labels, seed: found[: len(labels)].numpy())
    data = make_data(contexts="inferred")
    model = ImageClassifier("mlp", 2, "pfdl", image_size=8)
    logged = fit(model, data, epochs=2).callback_metrics
    counts = torch.zeros(2, 3)
    counts.index_put_(
        (data.train_set.labels, data.train_set.contexts), torch.ones(len(data.train_set)), accumulate=True
    )
    assert torch.equal(model.objective.weighting.counts, counts)  # once, not in every epoch
    assert logged["effective_sample_size"] <= 8.001


def test_features_can_be_had_of_any_images():
    model = ImageClassifier("mlp", 2, image_size=8)
    images = torch.randint(256, (5, 3, 8, 8)).byte()
    features = model.embed(images, batch_size=2)
    torch.testing.assert_close(model.backbone[-1](features), model(images))
    assert model.training


def test_scenes_are_described_where_training_will_be(monkeypatch):
    model, places = ImageClassifier("mlp", 2, "pfdl", image_size=8), []
    move = model.to
    monkeypatch.setattr(model, "to", lambda place: places.append(place) or move(place))

    def describe(images):
        features = model.embed(images)
        places.append("described")
        return features

    trainer = fit(model, make_data(contexts="inferred", describe=describe), limit_train_batches=1)
    assert places[:2] == [trainer.strategy.root_device, "described"]


def test_a_module_and_an_objective_of_ones_own():
    own = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.ReLU(), nn.Linear(4, 2))
    objective = Objective([pfdl.PartialDecorrelation(4, hidden=8)])
    model = ImageClassifier(own, objective=objective)
    fit(model, make_data(), limit_train_batches=1)
    assert objective.penalties[0].completed_fits == 1


def test_bf16_keeps_the_objective_in_full_precision():
    seen = []

    class Spy(Objective):
        def forward(self, logits, labels, *, features=None, environments=None):
            seen.append((logits.dtype, features.dtype))
            return super().forward(logits, labels, features=features, environments=environments)

    fit(ImageClassifier("mlp", 2, Spy(), image_size=8), make_data(), limit_train_batches=1, precision="bf16-mixed")
    assert seen == [(torch.float32, torch.float32)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backbone": "mlp"}, "num_classes is missing"),
        ({"backbone": nn.Linear(2, 2), "small_stem": True}, "for backbones by name"),
        ({"backbone": nn.Linear(2, 2), "objective": Objective(), "objective_settings": {"a": {}}}, "by name"),
        ({"backbone": nn.ReLU()}, "no linear layer"),
    ],
)
def test_parts_that_do_not_fit_are_sentences(arguments, message):
    with pytest.raises(ValueError, match=message):
        ImageClassifier(**arguments)
