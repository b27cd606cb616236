import copy
from dataclasses import replace

import pytest
import torch

from pfdl._internal.validation import resolve_device
from pfdl_lab.colored_mnist import run as colored_mnist
from pfdl_lab.colored_mnist.environments import ColoredMNIST, Environment
from pfdl_lab.colored_mnist.rows import PENALTY, ROWS, candidates
from pfdl_lab.colored_mnist.run import (
    QUICK,
    WORST_GROUP,
    ColoredMNISTConfig,
    infer_task,
    run_task,
    train_row,
)
from pfdl_lab.digits import bundled_digits

TINY = ColoredMNISTConfig(
    restarts=2, max_train=40, max_hidden=4, feature_rows=8, decomposition_width=4
)


def with_steps(rows, steps):
    return {key: replace(row, config=replace(row.config, steps=steps)) for key, row in rows.items()}


def tiny(key, steps, width=4):
    return colored_mnist._scaled(with_steps(ROWS, steps)[key], width, 4)


def trained(row, data, contexts=None):
    return train_row(row, data, 0, feature_rows=8, contexts=contexts)


@pytest.fixture(scope="module")
def data():
    return ColoredMNIST(bundled_digits(), max_train=40)


def test_results_of_other_digits_or_another_size_are_not_mixed_up(monkeypatch):
    monkeypatch.delenv("PFDL_MNIST", raising=False)
    name = bundled_digits().name
    first, *others = TINY.tasks(name)
    assert first not in others
    assert first not in replace(TINY, seed=1).tasks(name)
    assert first not in TINY.tasks("MNIST")
    assert first in replace(TINY, restarts=9).tasks(name)  # more restarts are the same run
    with pytest.raises(
        ValueError, match="the task is for MNIST but without a folder gives scikit-learn's digits"
    ):
        run_task(**{**first, "digits": "MNIST"}, folder=None, device="cpu", contexts={})


@pytest.mark.parametrize("key", ["irm-pfdl-30", "irm-pfdl-1"])
def test_restarts_are_paired_with_and_without_pfdl(data, key):
    """Before any update both stand at the same weights; after some they differ."""
    assert trained(tiny(key, 1), data) == trained(tiny("irm", 1), data)
    assert trained(tiny(key, 6), data) != trained(tiny("irm", 6), data)


def test_the_grayscale_oracle_sees_no_colour(data):
    swapped = copy.copy(data)
    swapped.test = Environment(data.test.images.flip(1), data.test.labels, 0.1)
    for key, sees in (("grayscale", False), ("erm", True)):
        assert (trained(tiny(key, 5), data) != trained(tiny(key, 5), swapped)) == sees


def test_erm_falls_for_the_colour_and_the_oracle_cannot():
    """Colour is right for 85 % of the training rows and wrong for 90 % of the test rows."""
    data = ColoredMNIST(bundled_digits(), max_train=600)
    (erm,) = trained(tiny("erm", 81, width=16), data)
    (oracle,) = trained(tiny("grayscale", 41, width=16), data)
    assert erm["test_accuracy"] < 50 < erm["train_accuracy"]
    assert erm["held_out_accuracy_0.1"] > erm["test_accuracy"]
    assert oracle["test_accuracy"] > 50


def test_a_quick_run_is_narrower_and_shorter_of_rows():
    bounds = (QUICK.max_hidden, QUICK.decomposition_width)
    scaled = [colored_mnist._scaled(row, *bounds) for row in ROWS.values()]
    assert {row.config.hidden for row in scaled} == {QUICK.max_hidden}
    assert {row.settings[PENALTY]["hidden"] for row in scaled if PENALTY in row.settings} == {
        QUICK.decomposition_width
    }
    assert {row.config.steps for row in scaled} == {101, 501}
    assert colored_mnist._scaled(ROWS["irm"], None, 64).config.hidden == 390


@pytest.fixture(scope="module")
def with_contexts():
    (line,) = infer_task("", 0, 400, folder=None)
    return ColoredMNIST(bundled_digits(), max_train=400), torch.tensor(line["contexts"])


def test_test_images_play_no_part_in_choosing(with_contexts):
    row = tiny("balance-inferred-l2-0.0011", 42)
    data, contexts = with_contexts
    lines = trained(row, data, contexts)
    assert [line["step"] for line in lines] == [20, 40, 41]
    assert all(0 <= line[WORST_GROUP] <= 100 for line in lines)
    other = copy.copy(data)
    other.test = Environment(torch.zeros_like(data.test.images), data.test.labels, 0.9)
    again = trained(row, other, contexts)
    assert [line[WORST_GROUP] for line in again] == [line[WORST_GROUP] for line in lines]


def test_irm_may_choose_as_the_others_do_and_is_told_the_environments(with_contexts):
    chosen, plain = (
        trained(tiny(key, 42), *with_contexts) for key in ("irm-chosen-l2-0.0011", "irm")
    )
    *_, last = chosen
    last.pop(WORST_GROUP)
    assert [last] == plain  # the same training, looked at on the way
    both = (candidates(method).values() for method in ("irm-chosen", "groupdro-inferred"))
    for ours, theirs in zip(*both, strict=True):
        assert ours.config.l2 == theirs.config.l2


def test_inferred_contexts_are_the_colours():
    (line,) = infer_task("", 0, 600, folder=None)
    data = ColoredMNIST(bundled_digits(), max_train=600)
    images = torch.cat([part.images for part in (*data.train, *data.held_out)])
    colours = (images[:, 1].flatten(1).sum(1) > 0).long()
    contexts = torch.tensor(line["contexts"])
    assert contexts.shape == colours.shape
    agreement = (contexts == colours)[:600].double().mean()
    assert max(agreement, 1 - agreement) > 0.95


def test_a_row_that_needs_contexts_is_refused_without_them(data):
    with pytest.raises(ValueError, match="needs inferred contexts"):
        trained(tiny("groupdro-inferred-l2-0.0011", 2), data)


@pytest.mark.parametrize(("has_gpu", "refused"), [(False, "cuda"), (True, "abacus")])
def test_the_device_is_found_or_refused(monkeypatch, has_gpu, refused):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert resolve_device("auto") == ("cuda" if has_gpu else "cpu")
    with pytest.raises(ValueError, match=f"the device '{refused}' is not available"):
        resolve_device(refused)
