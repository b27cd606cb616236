"""A run that was stopped or killed resumes to the very weights of one that was not.

A real kill -9, in every write and at random, is in tests/hostile/test_killing.py.
"""

import os
import shutil
import signal
import time
from dataclasses import replace

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from pfdl._internal.state import load_state, save_state
from pfdl.vision import resume, stopping, training
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import METRICS, STATE, ResumeCallback
from pfdl.vision.stopping import StopRequest, TrainingStoppedError
from pfdl.vision.training import TrainingConfig, train
from tests.vision.tiny_images import tiny_data

SETTINGS = {"backbone": "mlp", "image_size": 8, "epochs": 4, "decay_every": 2, "batch_size": 8}
CONFIG = TrainingConfig(
    **SETTINGS,
    objective="stablenet+balance+pfdl",
    contexts="inferred",
    objective_settings={"stablenet": {"steps": 2}},
    patience=3,
    seed=7,
)


@pytest.fixture(autouse=True)
def save_at_every_epoch(monkeypatch):
    """However short the epochs are; processes of their own save as users' do."""
    monkeypatch.setattr(resume, "SAVE_EVERY", 0.0)


def run(folder, config=CONFIG):
    return train(config, *tiny_data(), folder, device="cpu")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return run(tmp_path_factory.mktemp("uninterrupted") / "run")


def flatten(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flatten(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from flatten(item, (*path, number))
    else:
        yield path, value


def assert_same_end(folder, expected):
    """Bit for bit: the whole last state (network, g, memories, optimisers, schedules), the weights and the table."""
    here, there = (dict(flatten(load_state(run / STATE))) for run in (folder, expected))
    for path, value in there.items():
        other = here[path]
        assert torch.equal(other, value) if isinstance(value, torch.Tensor) else other == value, path
    for name in (WEIGHTS, METRICS):
        assert (folder / name).read_bytes() == (expected / name).read_bytes(), name


def test_the_same_seed_gives_the_same_run_and_another_another(uninterrupted, tmp_path):
    assert_same_end(run(tmp_path / "again"), uninterrupted)
    other = load_state(run(tmp_path / "other", replace(CONFIG, seed=8)) / STATE)
    same = load_state(uninterrupted / STATE)
    name = "backbone.1.weight"
    assert not torch.equal(other["module"][name], same["module"][name])


def test_the_schedule_and_the_table_are_those_of_the_config(uninterrupted):
    table = pd.read_csv(uninterrupted / METRICS)
    assert table["epoch"].tolist() == [0, 1, 2, 3]
    assert table["learning_rate"].tolist() == pytest.approx([0.01, 0.01, 0.001, 0.001])
    assert {"L_g", "L_decorr", "R2", "effective_sample_size", "val_accuracy"} <= set(table)
    assert list((uninterrupted / "tensorboard").iterdir())


class Interrupter(ResumeCallback):
    """Sends a signal, or raises, at the n-th call of a hook."""

    hook, at, action = "", 0, None

    def _count(self, hook):
        cls = type(self)
        if hook == cls.hook:
            cls.at -= 1
            if cls.at == 0:
                cls.action()

    def on_train_batch_start(self, *args):
        super().on_train_batch_start(*args)
        self._count("batch_start")

    def on_train_batch_end(self, *args):
        self._count("batch_end")
        super().on_train_batch_end(*args)

    def on_train_epoch_end(self, *args):
        super().on_train_epoch_end(*args)
        self._count("epoch_end")

    def on_validation_start(self, *args):
        super().on_validation_start(*args)
        self._count("validation")

    def on_train_epoch_start(self, *args):
        self._count("before_save")
        super().on_train_epoch_start(*args)
        self._count("after_save")


class Killed(BaseException):
    """As near to a kill as an exception can be: nobody catches it."""


def die():
    raise Killed


@pytest.mark.parametrize(
    ("hook", "at"),
    [("batch_start", 1), ("batch_end", 5), ("validation", 2), ("epoch_end", 1), ("before_save", 3), ("after_save", 4)],
)
def test_an_abrupt_end_at_any_instant_costs_only_work(hook, at, uninterrupted, tmp_path, monkeypatch):
    monkeypatch.setattr(
        training, "ResumeCallback", type("Dying", (Interrupter,), {"hook": hook, "at": at, "action": die})
    )
    with pytest.raises(Killed):
        run(tmp_path / "run")
    assert_same_end(run(tmp_path / "run"), uninterrupted)


def interrupt(number):
    """Send a signal and wait until it is seen: another thread may get it, and two before that are one."""
    handler = signal.getsignal(number)
    os.kill(os.getpid(), number)
    while signal.getsignal(number) == handler:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("hook", "at", "number"),
    [("batch_start", 1, signal.SIGINT), ("batch_start", 6, signal.SIGTERM), ("validation", 2, signal.SIGINT)],
)
def test_a_signal_saves_what_was_done_and_the_run_goes_on_exactly(
    hook, at, number, uninterrupted, tmp_path, monkeypatch
):
    def send():
        interrupt(number)

    before = signal.getsignal(number)
    monkeypatch.setattr(
        training, "ResumeCallback", type("Stopped", (Interrupter,), {"hook": hook, "at": at, "action": send})
    )
    with pytest.raises(TrainingStoppedError, match="the same command resumes"):
        run(tmp_path / "run")
    assert signal.getsignal(number) is before
    saved = load_state(tmp_path / "run" / STATE)
    if hook == "batch_start":  # the step in work was finished and counts
        assert (saved["epoch"], saved["batch"]) == divmod(at, 5)
    monkeypatch.setattr(training, "ResumeCallback", ResumeCallback)
    assert_same_end(run(tmp_path / "run"), uninterrupted)


def test_a_second_ctrl_c_does_not_wait(tmp_path, monkeypatch):
    def send():
        interrupt(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    monkeypatch.setattr(
        training, "ResumeCallback", type("Twice", (Interrupter,), {"hook": "batch_start", "at": 2, "action": send})
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
    try:
        with pytest.raises(SystemExit):  # Lightning's answer to Ctrl-C
            run(tmp_path / "run")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "run" / STATE).exists()


def test_a_finished_run_is_left_alone(uninterrupted, monkeypatch):
    monkeypatch.setattr(training, "Trainer", None)  # nobody may even ask for one
    before = (uninterrupted / STATE).stat().st_mtime_ns
    run(uninterrupted)
    assert (uninterrupted / STATE).stat().st_mtime_ns == before


SELECTED = {"accuracy": "val_accuracy", "worst-class": "val_worst_class", "worst-group": "val_worst_group"}


@pytest.mark.parametrize("select", SELECTED)
def test_the_best_weights_on_validation_images_are_kept(select, tmp_path, monkeypatch):
    scores = {"val_accuracy": [0.9, 0.3, 0.5, 0.6], "val_worst_class": [0.1, 0.9, 0.2, 0.9]}
    scores["val_worst_group"] = [0.1, 0.2, 0.9, 0.3]
    kept = []

    class Teller(ResumeCallback):
        def on_train_epoch_end(self, trainer, pl_module):
            for name, values in scores.items():
                trainer.callback_metrics[name] = torch.tensor(values[trainer.current_epoch])
            kept.append(pl_module.backbone[1].weight.detach().clone())
            super().on_train_epoch_end(trainer, pl_module)

    monkeypatch.setattr(training, "ResumeCallback", Teller)
    run(tmp_path / "run", TrainingConfig(**SETTINGS, objective="erm", contexts="known", select=select))
    best = list(SELECTED).index(select)
    assert torch.equal(load_file(tmp_path / "run" / WEIGHTS)["1.weight"], kept[best])
    assert load_state(tmp_path / "run" / STATE)["best_score"] == pytest.approx(0.9)


def test_training_stops_when_the_selected_accuracy_does(tmp_path, monkeypatch):
    class Constant(ResumeCallback):
        def on_train_epoch_end(self, trainer, pl_module):
            trainer.callback_metrics["val_worst_class"] = torch.tensor(0.5)
            super().on_train_epoch_end(trainer, pl_module)

    monkeypatch.setattr(training, "ResumeCallback", Constant)
    run(tmp_path / "run", TrainingConfig(**{**SETTINGS, "epochs": 9}, select="worst-class", patience=2))
    assert len((tmp_path / "run" / METRICS).read_text().splitlines()) == 1 + 3


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "adamw", "schedule": "cosine", "augment": "randaugment", "label_smoothing": 0.1},
        {"objective": "groupdro", "contexts": "known", "select": "worst-group"},
    ],
)
def test_other_options_resume_exactly_too(changes, tmp_path, monkeypatch):
    config = TrainingConfig(**SETTINGS, **changes, seed=1)
    expected = run(tmp_path / "whole", config)

    def send():
        interrupt(signal.SIGTERM)

    monkeypatch.setattr(
        training, "ResumeCallback", type("Stopped", (Interrupter,), {"hook": "batch_start", "at": 7, "action": send})
    )
    with pytest.raises(TrainingStoppedError):
        run(tmp_path / "run", config)
    monkeypatch.setattr(training, "ResumeCallback", ResumeCallback)
    assert_same_end(run(tmp_path / "run", config), expected)


def test_a_stop_while_a_resumed_epoch_is_skipped_to_loses_nothing(uninterrupted, tmp_path, monkeypatch):
    def send():
        interrupt(signal.SIGINT)

    for hook, at in (("batch_start", 8), ("batch_end", 1)):  # then in the first batch that is skipped
        monkeypatch.setattr(
            training, "ResumeCallback", type("Stopped", (Interrupter,), {"hook": hook, "at": at, "action": send})
        )
        with pytest.raises(TrainingStoppedError):
            run(tmp_path / "run")
        saved = load_state(tmp_path / "run" / STATE)
        assert (saved["epoch"], saved["batch"]) == (1, 3)
    monkeypatch.setattr(training, "ResumeCallback", ResumeCallback)
    assert_same_end(run(tmp_path / "run"), uninterrupted)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A training that was stopped in the middle of its second epoch."""

    def send():
        interrupt(signal.SIGTERM)

    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        stopping = type("Stopped", (Interrupter,), {"hook": "batch_start", "at": 6, "action": send})
        patch.setattr(training, "ResumeCallback", stopping)
        with pytest.raises(TrainingStoppedError):
            run(folder)
    return folder


def change(name, value):
    def apply(state):
        state[name] = value

    return apply


def change_momentum(state):
    state["optimizer"]["state"][0]["momentum_buffer"] = torch.zeros(1)


def change_moments_of_g(state):
    moments = state["module"]["objective.penalties.0._extra_state"]["optimizer"]["state"]
    moments[0]["exp_avg"] = torch.zeros(1)


def change_step(state):
    moments = state["module"]["objective.penalties.0._extra_state"]["optimizer"]["state"]
    moments[0]["step"] = torch.zeros(3)


@pytest.mark.parametrize(
    "tamper",
    [
        change("batch", 10**9),
        change("batch", -1),
        change("batch", 1.5),
        change("epoch", 10**30),
        change("epoch", 1e30),
        change("epoch", -3),
        change("epoch", "1"),
        change("means", {"train_loss": {"sum": "x", "samples": 1}}),
        change("means", {"train_loss": {"sum": torch.zeros(2), "samples": 0}}),
        change("means", 5),
        change("module", {}),
        change("optimizer", {"state": {}}),
        change_momentum,
        change_moments_of_g,
        change_step,
    ],
)
def test_a_tampered_state_is_a_sentence(tamper, stopped, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    state = load_state(folder / STATE)
    tamper(state)
    save_state(folder / STATE, state)
    with pytest.raises(ValueError, match="is not a state of this training"):
        run(folder)


@pytest.mark.parametrize(
    "tamper",
    [
        change("history", "junk"),
        change("history", [1, 2]),
        change("history", [{"epoch": 0, "train_loss": "low"}]),
        change("history", [{"epoch": 7}]),
        change("best_score", "high"),
        change("finished", "yes"),
    ],
)
def test_a_junk_summary_is_set_aside(tamper, stopped, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    state = load_state(folder / STATE)
    tamper(state)
    save_state(folder / STATE, state)
    assert_same_end(run(folder), uninterrupted)
    assert (folder / f"{STATE}.damaged").exists()


def test_a_folder_removed_under_a_training_is_a_sentence(tmp_path, monkeypatch):
    def remove():
        shutil.rmtree(tmp_path / "run")

    monkeypatch.setattr(
        training, "ResumeCallback", type("Removed", (Interrupter,), {"hook": "batch_end", "at": 2, "action": remove})
    )
    with pytest.raises(FileNotFoundError, match="was removed or emptied while its training ran"):
        run(tmp_path / "run")
    assert not (tmp_path / "run" / WEIGHTS).exists()


def test_a_training_that_diverges_is_a_sentence(tmp_path):
    config = TrainingConfig(**SETTINGS, objective="erm", learning_rate=1e30)
    with pytest.raises(ValueError, match="training diverged in epoch 1: train_loss is"):
        run(tmp_path / "run", config)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_step_stops_at_once(number, tmp_path, monkeypatch):
    before = signal.getsignal(number)

    def setup(self, stage):
        os.kill(os.getpid(), number)
        time.sleep(60)

    monkeypatch.setattr("pfdl.vision.training._KeptContexts.setup", setup)
    with pytest.raises(TrainingStoppedError, match="before the first step"):
        run(tmp_path / "run")
    assert signal.getsignal(number) is before


def test_outside_the_main_thread_there_are_no_handlers(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(stopping.threading, "current_thread", lambda: None)
    with StopRequest():
        assert signal.getsignal(signal.SIGINT) is before
