"""Rows that draw groups or classes alike or refit the last layer, on the digits of SpuCoMNIST."""

import pytest
import torch

from pfdl.contexts import InferredContexts
from pfdl.vision.loading import EpochSampler
from pfdl_lab.images import data as image_data, inferred, run
from pfdl_lab.images.config import ImagesConfig
from pfdl_lab.images.data import ImageData

SPUCO = ImageData("spuco-mnist-large-0.8")


def found(contexts):
    """Stand in for what find_contexts returns."""
    return InferredContexts(contexts.numpy(), "pooled", "Found.", ())


def note_orders(monkeypatch):
    """Return a list to which every epoch adds the samples that it draws, in order."""
    drawn = []
    original = EpochSampler.draw

    def note(sampler):
        drawn.append(torch.tensor(original(sampler)))
        return drawn[-1].tolist()

    monkeypatch.setattr(EpochSampler, "draw", note)
    return drawn


@pytest.fixture
def values(monkeypatch, task):
    """Train one row on few digits; return what was found at the last epoch."""
    monkeypatch.setattr(image_data, "COLORED_DIGITS", 400)

    def last(row):
        found = task(row, SPUCO, learning_rate=0.05)
        return {test: value for (epoch, test), value in found.items() if epoch == "last"}

    return last


def test_the_worst_group_and_the_agreement_of_contexts_are_reported(values, monkeypatch):
    train = SPUCO.split(0, network="lenet").train
    monkeypatch.setattr(inferred, "find_contexts", lambda *_, **__: found(train.contexts))
    results = values("sampler")
    assert results["contexts found"] == 5
    assert results["agreement with true contexts"] == pytest.approx(1.0)
    assert results["worst group"] <= results["whole"]


def test_contexts_are_inferred_once_for_all_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(image_data, "COLORED_DIGITS", 400)
    asked = []

    def note(features, labels, *, method, seed, confirmation=0.8):
        asked.append((method, seed))
        # Predicted classes, or contexts
        return found(labels.roll(1) if method == "early" else labels.remainder(2))

    monkeypatch.setattr(inferred, "find_contexts", note)
    config = ImagesConfig(("erm", "balance", "sampler", "jtt"), seeds=2, epochs=1)
    results = run.run(config, [SPUCO], tmp_path / "study")
    assert sorted(asked) == [("auto", 0), ("auto", 1), ("early", 0), ("early", 1)]
    assert (results[results["test"] == run.NUMBER]["value"] == 2).all()
    run.run(config, [SPUCO], tmp_path / "study")
    assert len(asked) == 4


@pytest.mark.parametrize("row", ["sampler-known", "sampler-classes"])
def test_groups_or_classes_are_drawn_alike(values, monkeypatch, row):
    drawn = note_orders(monkeypatch)
    values(row)
    values("erm")
    train = SPUCO.split(0, network="lenet").train
    parts = 5 * train.labels + train.contexts if row == "sampler-known" else train.labels
    counts = [torch.bincount(parts[order]) for order in drawn]
    assert len(drawn) == 4
    assert all(int(count.max() - count.min()) <= 2 for count in counts[:2])
    assert not torch.equal(drawn[0], drawn[1])
    # Each image once
    assert all(len(order.unique()) == len(order) > 0.9 * len(parts) for order in drawn[2:])


def test_dfr_changes_the_last_layer_of_plain_training_only_where_groups_are_large_enough(
    values, monkeypatch
):
    plain, refitted = values("erm"), values("dfr-known")
    assert refitted["whole"] != plain["whole"]
    monkeypatch.setattr(
        inferred, "find_contexts", lambda _, labels, **__: found(torch.arange(len(labels)) // 398)
    )
    assert (values("dfr")["whole"], values("dfr")[run.REFITTED]) == (plain["whole"], 0)


def test_only_an_oracle_sees_the_true_contexts(digits, monkeypatch):
    split = digits.split(0, network="perceptron")
    for told, expected in (("hidden", {-1}), ("one", {0}), ("halves", {0, 1}), ("known", {0, 1})):
        assert set(inferred.contexts_for(told, split, None)[0].tolist()) == expected
    blind = split._replace(
        train=split.train._replace(contexts=torch.full_like(split.train.contexts, 9))
    )
    assert inferred.infer(blind, "inferred", 0) == inferred.infer(split, "inferred", 0)


def test_contexts_that_judge_epochs_are_inferred_for_all_rows_but_oracles():
    assert inferred.kinds_needed(["erm", "balance-known"], judging=False) == []
    assert inferred.kinds_needed(["erm", "balance-known"], judging=True) == ["inferred"]
    assert inferred.kinds_needed(["balance-known"], judging=True) == []
    assert inferred.kinds_needed(["balance", "sampler", "jtt"], judging=False) == [
        "inferred",
        "errors",
    ]


def test_errors_of_a_probe_that_never_predicts_a_class_are_refused(digits, monkeypatch):
    split = digits.split(0, network="perceptron")
    monkeypatch.setattr(
        inferred, "find_contexts", lambda _, labels, **__: found(torch.zeros_like(labels))
    )
    with pytest.raises(ValueError, match="predicts 1 of 2 classes"):
        inferred.infer(split, "errors", 0)
    monkeypatch.setattr(inferred, "find_contexts", lambda _, labels, **__: found(labels.roll(1)))
    (line,) = inferred.infer(split, "errors", 0)
    assert line["contexts"] == (split.train.labels.roll(1) != split.train.labels).long().tolist()
