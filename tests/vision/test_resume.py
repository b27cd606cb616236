"""A run that was stopped or killed resumes to the very weights of one that was not.

A real kill -9, in every write and at random, is in tests/hostile/test_killing.py.
"""

import os
import signal
import time
from dataclasses import replace

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from pfdl._internal.state import load_state
from pfdl.vision import resume, training
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import METRICS, STATE, TrainingStoppedError, stop_signals
from pfdl.vision.training import TrainingConfig, train
from tests.vision.interrupted import (
    CONFIG,
    SETTINGS,
    assert_same_end,
    interrupt,
    interrupting,
    run,
    stop_at,
)
from tests.vision.tiny_images import tiny_data

pytestmark = pytest.mark.usefixtures("save_at_every_epoch")


def test_the_same_seed_gives_the_same_run_and_another_another(uninterrupted, tmp_path):
    assert_same_end(run(tmp_path / "again"), uninterrupted)
    other = run(tmp_path / "other", replace(CONFIG, seed=8))
    assert (other / WEIGHTS).read_bytes() != (uninterrupted / WEIGHTS).read_bytes()
    assert set(load_state(other / STATE)) == {"finished", "history"}  # nothing large is left behind


def test_the_schedule_and_the_table_are_those_of_the_config(uninterrupted):
    table = pd.read_csv(uninterrupted / METRICS)
    assert table["epoch"].tolist() == [0, 1, 2, 3]
    assert table["learning_rate"].tolist() == pytest.approx([0.01, 0.01, 0.001, 0.001])
    assert {"L_g", "L_decorr", "R2", "effective_sample_size", "val_accuracy"} <= set(table)
    assert list((uninterrupted / "tensorboard").iterdir())


class Killed(BaseException):
    """As near to a kill as an exception can be: nobody catches it."""


def die():
    raise Killed


@pytest.mark.parametrize(
    ("place", "at"),
    [
        ("batch_start", 1),
        ("batch_end", 5),
        ("validation", 2),
        ("epoch_end", 1),
        ("before_save", 3),
        ("after_save", 4),
    ],
)
def test_an_abrupt_end_at_any_instant_costs_only_work(
    place, at, uninterrupted, tmp_path, monkeypatch
):
    monkeypatch.setattr(training, "RunKeeper", interrupting(place, at, die))
    with pytest.raises(Killed):
        run(tmp_path / "run")
    assert_same_end(run(tmp_path / "run"), uninterrupted)


def test_weights_are_written_with_the_state_and_are_those_of_a_whole_epoch(tmp_path, monkeypatch):
    data = tiny_data(validation_fraction=0)
    config = TrainingConfig(**SETTINGS)
    expected = train(replace(config, epochs=1), *data, tmp_path / "one", device="cpu") / WEIGHTS
    monkeypatch.setattr(resume, "SAVE_EVERY", 3600.0)
    seen = []

    def send():
        seen.append((tmp_path / "run" / WEIGHTS).exists())
        interrupt(signal.SIGINT)

    monkeypatch.setattr(training, "RunKeeper", interrupting("batch_start", 8, send))
    with pytest.raises(TrainingStoppedError):
        train(config, *data, tmp_path / "run", device="cpu")
    assert seen == [False]  # no state was saved yet
    assert load_state(tmp_path / "run" / STATE)["epoch"] == 1
    torch.testing.assert_close(
        load_file(tmp_path / "run" / WEIGHTS), load_file(expected), rtol=0, atol=0
    )


@pytest.mark.parametrize(
    ("place", "at", "number"),
    [
        ("batch_start", 1, signal.SIGINT),
        ("batch_start", 6, signal.SIGTERM),
        ("validation", 2, signal.SIGINT),
    ],
)
def test_a_signal_saves_what_was_done_and_the_run_goes_on_exactly(
    place, at, number, uninterrupted, tmp_path
):
    before = signal.getsignal(number)
    saved = stop_at(place, at, tmp_path / "run", number=number)
    assert signal.getsignal(number) is before
    if place == "batch_start":  # the step in work was finished and counts
        assert (saved["epoch"], saved["batch"]) == divmod(at, 5)
    assert_same_end(run(tmp_path / "run"), uninterrupted)


def test_a_second_ctrl_c_does_not_wait(tmp_path, monkeypatch):
    def send():
        interrupt(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    monkeypatch.setattr(training, "RunKeeper", interrupting("batch_start", 2, send))
    # A shell's background job ignores Ctrl-C
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "run" / STATE).exists()


def test_a_finished_run_is_left_alone(uninterrupted, monkeypatch):
    monkeypatch.setattr(training, "Loop", None)  # nobody may even ask for one
    before = (uninterrupted / STATE).stat().st_mtime_ns
    run(uninterrupted)
    assert (uninterrupted / STATE).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "adamw", "schedule": "cosine", "label_smoothing": 0.1},
        {"objective": "groupdro", "contexts": "known", "select": "worst-group"},
    ],
)
def test_other_options_resume_exactly_too(changes, tmp_path):
    config = TrainingConfig(**SETTINGS, **changes, seed=1)
    expected = run(tmp_path / "whole", config)
    stop_at("batch_start", 7, tmp_path / "run", config=config)
    assert_same_end(run(tmp_path / "run", config), expected)


def test_a_stop_while_a_resumed_epoch_is_skipped_to_loses_nothing(uninterrupted, tmp_path):
    for place, at, batch in (
        ("batch_start", 8, 3),
        ("before_save", 1, 4),
    ):  # then before batches are skipped
        saved = stop_at(place, at, tmp_path / "run", number=signal.SIGINT)
        assert (saved["epoch"], saved["batch"]) == (1, batch)
    assert_same_end(run(tmp_path / "run"), uninterrupted)


def test_outside_the_main_thread_there_are_no_handlers(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(resume.threading, "current_thread", lambda: None)
    with stop_signals():
        assert signal.getsignal(signal.SIGINT) is before
