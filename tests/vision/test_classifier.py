from itertools import chain

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pfdl.objectives.objective import Objective
from pfdl.vision import Classifier, TrainingConfig, fit
from pfdl.vision.launching import make_fabric
from pfdl.vision.loading import EpochSampler, TensorBatches
from pfdl.vision.loop import Loop
from pfdl.vision.pixels import normalise

LABELS = torch.arange(16) % 2
CONTEXTS = torch.arange(16) // 2 % 2
IMAGES = torch.randint(256, (16, 3, 8, 8), generator=torch.Generator().manual_seed(0)).byte()


def make(objective="erm", num_classes=2, **settings):
    plain = {"image_size": 8, "epochs": 1, "batch_size": 8}
    return Classifier(TrainingConfig("mlp", objective, **{**plain, **settings}), num_classes)


def test_the_published_penalty_fits_g_and_logs_it():
    model = make("pfdl")
    before = [value.clone() for value in model.objective.penalties[0].decomposition.parameters()]
    logged = fit(model, IMAGES, LABELS)
    assert {"L_g", "L_decorr", "R2", "effective_sample_size"} <= set(logged)
    assert logged["L_g"] > 0
    assert logged["effective_sample_size"] == 8
    assert logged["level_part"] > logged["covariance_part"] > 0
    after = model.objective.penalties[0].decomposition.parameters()
    assert not all(map(torch.equal, after, before))


def rates(model, epochs):
    """The learning rate of each epoch, as the loop has it."""
    sampler = EpochSampler(model.config, LABELS, CONTEXTS)
    loop = Loop(model, TensorBatches([IMAGES, LABELS, CONTEXTS], 8, sampler), make_fabric("cpu"))
    found = []
    for _ in range(epochs):
        next(loop.train_epoch())
        found.append(loop.optimizer.param_groups[0]["lr"])
        loop.end_epoch()
    return loop.optimizer, found


def test_the_schedule_is_the_papers_by_default():
    model = make(epochs=160)
    optimizer, found = rates(model, 161)
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["momentum"] == 0.9
    assert found == pytest.approx([0.01] * 80 + [0.001] * 80 + [0.0001])
    assert rates(make(epochs=1), 2)[1] == pytest.approx([0.01, 0.001])
    owned = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    assert set(map(id, owned)) == set(map(id, model.backbone.parameters()))


def test_adamw_and_a_cosine():
    model = make(
        optimizer="adamw", learning_rate=0.1, weight_decay=0.3, schedule="cosine", epochs=4
    )
    optimizer, found = rates(model, 6)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.defaults["weight_decay"] == 0.3
    assert found == pytest.approx(
        [0.1, 0.1 * (2 + 2**0.5) / 4, 0.05, 0.1 * (2 - 2**0.5) / 4, 0.0, 0.0], abs=1e-9
    )


def test_label_smoothing_is_that_of_cross_entropy():
    torch.manual_seed(0)
    model = make("erm", 3, label_smoothing=0.2, augment="none")
    images = torch.randn(6, 3, 8, 8)
    labels = torch.arange(6) % 3
    expected = F.cross_entropy(model(images), labels, label_smoothing=0.2)
    torch.testing.assert_close(model.loss_of((images, labels)), expected)


@pytest.mark.parametrize("augment", ["none", "flip-shift"])
def test_augmentation_by_name_changes_what_is_trained_on(augment, monkeypatch):
    model = make(augment=augment)
    seen = []
    monkeypatch.setattr(
        model,
        "forward",
        lambda given, network: seen.append(given) or model.backbone(normalise(given)),
    )
    model.loss_of((IMAGES, LABELS))
    assert seen[0].shape == IMAGES.shape
    assert torch.equal(seen[0], IMAGES) == (augment == "none")


def test_a_batch_of_one_is_skipped_with_a_warning():
    model = make("pfdl")
    with pytest.warns(UserWarning, match="a batch of one image is skipped"):
        assert model.loss_of((torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.long))) is None
    assert model.objective.penalties[0].completed_fits == 0


def test_bf16_keeps_the_objective_in_full_precision_and_contexts_from_those_that_do_not_ask():
    seen = []

    class Spy(Objective):
        def forward(self, logits, labels, *, features=None, environments=None):
            seen.append((logits.dtype, features.dtype, environments))
            return super().forward(logits, labels, features=features, environments=environments)

    config = TrainingConfig("mlp", image_size=8, epochs=1, batch_size=16, precision="bf16")
    fit(Classifier(config, 2, objective=Spy()), IMAGES, LABELS, CONTEXTS)
    assert seen == [(torch.float32, torch.float32, None)]


OWN = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({"backbone": "mlp"}, {}, "num_classes is missing"),
        ({"small_stem": True}, {"backbone": OWN}, "for backbones by name"),
        ({"weights": "w.pth"}, {"backbone": OWN}, "for backbones by name"),
        ({"label_smoothing": 0.1}, {"backbone": OWN, "objective": Objective()}, "by name"),
        ({"objective_settings": {"a": {}}}, {"backbone": OWN, "objective": Objective()}, "by name"),
        (
            {"backbone": "inception_v3"},
            {"num_classes": 2},
            "cannot be trained on images of 64×64 pixels",
        ),
        ({"backbone": "squeezenet1_0"}, {"num_classes": 2}, "SqueezeNet has no linear layer"),
        ({}, {"backbone": nn.ReLU()}, "no linear layer"),
    ],
)
def test_parts_that_do_not_fit_are_sentences(settings, arguments, message):
    with pytest.raises(ValueError, match=message):
        Classifier(TrainingConfig(**settings), **arguments)
