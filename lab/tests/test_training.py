"""One training in memory: paired, repeatable, and told no more than it may know."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from pfdl.objectives import Objective
from pfdl.vision import classifier
from pfdl.vision.config import TrainingConfig
from pfdl_lab.training import DivergedError, Samples, predict_classes, train_row

SHORT = TrainingConfig(epochs=6, batch_size=32, learning_rate=0.02, augment="none")


def made_up(samples, agreement, seed):
    """Four inputs tell the class weakly, twelve the context clearly; context and class agree as
    often as asked.
    """
    world, draw = torch.Generator().manual_seed(9), torch.Generator().manual_seed(seed)
    of_class, of_context = (
        2 * torch.randn(3, 4, generator=world),
        4 * torch.randn(3, 12, generator=world),
    )
    labels = torch.randint(3, (samples,), generator=draw)
    other = (labels + torch.randint(1, 3, (samples,), generator=draw)) % 3
    contexts = torch.where(torch.rand(samples, generator=draw) < agreement, labels, other)
    inputs = torch.cat([of_class[labels], of_context[contexts]], 1) + torch.randn(
        samples, 16, generator=draw
    )
    return Samples(inputs, labels, contexts)


TRAIN = made_up(600, 0.8, seed=0)
TESTS = {"shifted": made_up(600, 0.0, seed=1), "same": made_up(600, 0.8, seed=2)}


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 3))


def run(environments=TRAIN.contexts, layer=-1, class_centred=False, **changes):
    """Accuracy in each test, and what the objective reported of the last epoch."""
    network = model()
    how = replace(SHORT, **changes)
    metrics = train_row(how, network, TRAIN, environments, layer=layer, class_centred=class_centred)
    shares = {
        name: float((predict_classes(network, test.inputs) == test.labels).double().mean())
        for name, test in TESTS.items()
    }
    return {name: 100 * share for name, share in shares.items()}, metrics


def test_balance_undoes_the_correlation():
    (erm, plain), (balanced, metrics) = run(), run(objective="balance")
    assert erm["shifted"] < balanced["shifted"] - 5
    assert metrics["effective_sample_size"] < plain.get("effective_sample_size", 1.0)


@pytest.mark.parametrize(
    "how", [{"objective": "balance"}, {"objective": "groupdro"}, {"sampler": "groups"}]
)
def test_one_context_for_all_is_plain_training_to_the_bit(how):
    assert run(torch.zeros_like(TRAIN.labels), **how)[0] == run()[0]


def test_a_training_can_be_repeated_and_the_seed_matters():
    assert run(objective="pfdl") == run(objective="pfdl")
    assert run(seed=1)[0] != run()[0]


def test_the_objective_sees_the_layer_and_the_centring_that_were_asked_for(monkeypatch):
    seen = []

    class Spy(Objective):
        def forward(self, logits, labels, *, features=None, environments=None):
            means = torch.stack([features[labels == label].mean(0) for label in labels.unique()])
            seen.append((features.shape[1], bool(means.abs().max() < 1e-5)))
            return super().forward(logits, labels)

    widths = []

    def make_spy(name, width, **settings):
        widths.append(width)
        return Spy()

    monkeypatch.setattr(classifier, "make_objective", make_spy)
    for layer, class_centred in ((-1, False), (-2, False), (-1, True)):
        run(epochs=1, layer=layer, class_centred=class_centred)
    assert widths == [24, 16, 24]
    assert set(seen) == {(24, False), (16, False), (24, True)}


def test_numbers_that_are_not_finite_end_a_training_and_mistakes_are_still_raised():
    run(objective="pfdl")
    for objective in ("pfdl", "erm"):  # plain training does not look at features
        with pytest.raises(DivergedError):
            run(objective=objective, learning_rate=1e30)
    with pytest.raises(ValueError, match="context of every sample"):
        run(torch.full_like(TRAIN.labels, -1), objective="groupdro")
