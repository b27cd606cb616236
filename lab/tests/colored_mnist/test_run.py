from dataclasses import replace
from functools import partial

import pytest
import torch

from pfdl._internal.validation import resolve_device
from pfdl_lab.colored_mnist import run as colored_mnist
from pfdl_lab.colored_mnist.data import StackedColoredMNIST, context_tasks, infer_task
from pfdl_lab.colored_mnist.rows import CHOOSING, PENALTY, ROWS
from pfdl_lab.colored_mnist.run import (
    QUICK,
    WORST_GROUP,
    ColoredMNISTConfig,
    run_row,
    run_task,
    tasks,
)
from pfdl_lab.digits import bundled_digits
from pfdl_lab.grid import run_grid

TINY = ColoredMNISTConfig(
    restarts=2, max_train=40, max_hidden=4, feature_rows=8, decomposition_width=4
)


def with_steps(rows, steps):
    return {key: replace(row, config=replace(row.config, steps=steps)) for key, row in rows.items()}


@pytest.fixture(scope="module")
def data():
    return stacked(TINY)


def stacked(config, contexts=None):
    return StackedColoredMNIST(bundled_digits(), config.seeds, config.max_train, "cpu", contexts)


def infer(config, folder):
    run_grid(
        partial(infer_task, folder=None),
        context_tasks(bundled_digits().name, config.seeds, config.max_train),
        folder,
    )


def tiny(key, steps, width=4):
    row = with_steps(ROWS, steps)[key]
    settings = dict(row.settings)
    if PENALTY in settings:
        settings[PENALTY] = {**settings[PENALTY], "hidden": 4}
    return replace(row, config=replace(row.config, hidden=width), settings=settings)


def test_results_of_other_digits_or_another_size_are_not_mixed_up(monkeypatch):
    monkeypatch.delenv("PFDL_MNIST", raising=False)
    first = tasks(bundled_digits(), TINY)[0]
    assert first not in tasks(bundled_digits(), replace(TINY, seed=1))
    assert first not in tasks(replace(bundled_digits(), name="MNIST"), TINY)
    with pytest.raises(
        ValueError, match="the task is for MNIST but without a folder gives scikit-learn's digits"
    ):
        run_task(**{**first, "digits": "MNIST"}, folder=None, device="cpu")


@pytest.mark.parametrize("key", ["irm-pfdl-30", "irm-pfdl-1"])
def test_restarts_are_paired_with_and_without_pfdl(data, key):
    """Before any update both stand at the same weights and see the same rows; after some they
    differ.
    """
    assert run_row(tiny(key, 1), data, TINY) == run_row(tiny("irm", 1), data, TINY)
    assert run_row(tiny(key, 6), data, TINY) != run_row(tiny("irm", 6), data, TINY)


def test_the_grayscale_oracle_sees_no_colour(data):
    swapped = stacked(TINY)
    swapped.test = (data.test[0].flip(2), data.test[1])
    assert torch.equal(swapped.test[0][:, :, 0], data.test[0][:, :, 1])
    assert run_row(tiny("grayscale", 5), data, TINY) == run_row(tiny("grayscale", 5), swapped, TINY)
    assert run_row(tiny("erm", 5), data, TINY) != run_row(tiny("erm", 5), swapped, TINY)


def test_erm_falls_for_the_colour_and_the_oracle_cannot():
    """Colour is right for 85 % of the training rows and wrong for 90 % of the test rows."""
    config = ColoredMNISTConfig(restarts=1, max_train=600)
    data = stacked(config)
    (erm,) = run_row(tiny("erm", 81, width=16), data, config)
    (oracle,) = run_row(tiny("grayscale", 41, width=16), data, config)
    assert erm["test_accuracy"] < 50 < erm["train_accuracy"]
    assert erm["held_out_accuracy_0.1"] > erm["test_accuracy"]
    assert oracle["test_accuracy"] > 50


def test_a_quick_run_is_narrower_and_shorter_of_rows():
    scaled = [colored_mnist._scaled(row, QUICK) for row in ROWS.values()]
    assert {row.config.hidden for row in scaled} == {QUICK.max_hidden}
    assert {row.settings[PENALTY]["hidden"] for row in scaled if PENALTY in row.settings} == {
        QUICK.decomposition_width
    }
    assert {row.config.steps for row in scaled} == {101, 501}
    assert colored_mnist._scaled(ROWS["irm"], ColoredMNISTConfig()).config.hidden == 390


@pytest.fixture(scope="module")
def with_contexts(tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("contexts"), replace(TINY, max_train=400)
    infer(config, folder)
    return lambda: (stacked(config, folder), config)


def test_test_images_play_no_part_in_choosing(with_contexts):
    row, (data, config) = tiny("balance-inferred-l2-0.0011", 42), with_contexts()
    lines = run_row(row, data, config)
    assert sorted({line["step"] for line in lines}) == [20, 40, 41]
    assert all(0 <= line[WORST_GROUP] <= 100 for line in lines)
    data.test = (torch.zeros_like(data.test[0]), data.test[1])
    assert [line[WORST_GROUP] for line in run_row(row, data, config)] == [
        line[WORST_GROUP] for line in lines
    ]


def test_irm_may_choose_as_the_others_do_and_is_told_the_environments(with_contexts):
    chosen, plain = (
        run_row(tiny(key, 42), *with_contexts()) for key in ("irm-chosen-l2-0.0011", "irm")
    )
    for line in chosen:
        del line[WORST_GROUP]
    # The same training, looked at on the way
    assert [line for line in chosen if line["step"] == 41] == plain
    for ours, theirs in zip(
        CHOOSING["IRM, told the environments"], CHOOSING["GroupDRO"], strict=True
    ):
        assert ours.config.l2 == theirs.config.l2


def test_inferred_contexts_are_the_colours_and_are_inferred_once(tmp_path):
    config = replace(TINY, restarts=1, max_train=600)
    infer(config, tmp_path)
    (stored,) = tmp_path.iterdir()
    written = stored.stat().st_mtime_ns
    infer(config, tmp_path)
    assert stored.stat().st_mtime_ns == written
    data = stacked(config, tmp_path)
    images = torch.cat([images for images, _ in data.train], dim=1)
    colours = (images[0, :, 1].sum(1) > 0).long()
    agreement = (data.train_contexts[0] == colours).double().mean()
    assert max(agreement, 1 - agreement) > 0.95
    assert data.held_out_contexts.shape == (1, sum(labels.shape[1] for _, labels in data.held_out))


def test_a_row_that_needs_contexts_is_refused_without_them(data):
    with pytest.raises(ValueError, match="needs inferred contexts"):
        run_row(tiny("groupdro-inferred-l2-0.0011", 2), data, TINY)


@pytest.mark.parametrize(("has_gpu", "refused"), [(False, "cuda"), (True, "abacus")])
def test_the_device_is_found_or_refused(monkeypatch, has_gpu, refused):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert resolve_device("auto") == ("cuda" if has_gpu else "cpu")
    with pytest.raises(ValueError, match=f"the device '{refused}' is not available"):
        resolve_device(refused)
