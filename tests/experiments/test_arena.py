"""One training of the study: paired, repeatable, and blind to what it must not see."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from pfdl.experiments import arena
from pfdl.experiments.arena import Contest, Samples, compete

SHORT = Contest(epochs=6, batch_size=32, learning_rate=0.02, contexts=3)


def scenes(samples, agreement, seed):
    """Four inputs tell the class weakly, twelve the scene clearly; scene and class agree as often as asked."""
    world, draw = torch.Generator().manual_seed(9), torch.Generator().manual_seed(seed)
    of_class, of_scene = 2 * torch.randn(3, 4, generator=world), 4 * torch.randn(3, 12, generator=world)
    labels = torch.randint(3, (samples,), generator=draw)
    other = (labels + torch.randint(1, 3, (samples,), generator=draw)) % 3
    contexts = torch.where(torch.rand(samples, generator=draw) < agreement, labels, other)
    inputs = torch.cat([of_class[labels], of_scene[contexts]], 1) + torch.randn(samples, 16, generator=draw)
    return Samples(inputs, labels, contexts)


TRAIN, TESTS = scenes(600, 0.8, seed=0), {"shifted": scenes(600, 0.0, seed=1), "same": scenes(600, 0.8, seed=2)}


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 3))


def run(**changes):
    return compete(replace(SHORT, **changes), model(), TRAIN, TESTS)


def test_balance_undoes_the_correlation_with_true_and_with_inferred_contexts():
    erm = run().accuracy
    known = run(objective="balance", environments="known").accuracy
    inferred = run(objective="balance", environments="inferred", look_after=None)
    assert erm["shifted"] < known["shifted"] - 5
    assert abs(inferred.accuracy["shifted"] - known["shifted"]) < 5
    assert inferred.groups is not None
    assert inferred.effective_sample_size < 1.0


def test_a_training_can_be_repeated():
    assert run(objective="pfdl-paper") == run(objective="pfdl-paper")
    assert run(seed=1).accuracy != run().accuracy


def test_only_an_oracle_sees_the_true_contexts():
    blind = TRAIN._replace(contexts=torch.full_like(TRAIN.contexts, 99))
    for environments in ("hidden", "inferred"):
        contest = replace(SHORT, objective="erm" if environments == "hidden" else "balance", environments=environments)
        seen, unseen = (compete(contest, model(), data, TESTS) for data in (TRAIN, blind))
        assert seen.accuracy == unseen.accuracy


def test_training_is_plain_until_the_network_is_looked_at(monkeypatch):
    looked = []

    def infer(features, labels, **settings):
        looked.append(torch.as_tensor(features).shape)
        return TRAIN.contexts.numpy()

    monkeypatch.setattr(arena, "infer_contexts", infer)
    assert run(objective="balance", environments="inferred", look_after=6).accuracy == run().accuracy  # never reached
    assert looked == []
    run(objective="balance", environments="inferred", look_after=2)
    assert looked == [(600, 24)]  # the features that enter the last layer


def test_images_are_augmented_and_tested():
    generator = torch.Generator().manual_seed(0)
    images = Samples(
        torch.randint(256, (40, 3, 8, 8), generator=generator).byte(), torch.arange(40) % 2, torch.zeros(40)
    )
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 2))
    outcome = compete(replace(SHORT, epochs=1), network, images, {"test": images})
    assert 0 <= outcome.accuracy["test"] <= 100


@pytest.mark.parametrize(("setting", "value"), [("environments", "guessed"), ("epochs", 0), ("batch_size", 1)])
def test_settings_without_a_meaning_are_refused(setting, value):
    with pytest.raises(ValueError, match=setting):
        Contest(**{setting: value})
