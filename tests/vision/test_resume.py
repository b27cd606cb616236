"""A run that was stopped or killed goes on to the very weights of one that was not."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from lightning.pytorch import Callback
from safetensors.torch import load_file

from pfdl._internal.state import load_state
from pfdl.vision import resume as run_keeper
from pfdl.vision import training
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import METRICS, STATE, RunKeeper, TrainingStoppedError
from pfdl.vision.training import TrainingConfig, train
from tests.vision.tiny_images import tiny_data

SETTINGS = {"backbone": "mlp", "objective": "stablenet+balance+pfdl", "image_size": 8, "epochs": 4, "decay_every": 2}
FEWER_STEPS = {"stablenet": {"steps": 2}}
PLAN = TrainingConfig(**SETTINGS, objective_settings=FEWER_STEPS, batch_size=8, patience=3, seed=7)


@pytest.fixture(autouse=True)
def save_at_every_epoch(monkeypatch):
    """However short the epochs are; processes of their own save as users' do."""
    monkeypatch.setattr(run_keeper, "SAVE_EVERY", 0.0)


def run(folder, plan=PLAN):
    return train(plan, *tiny_data(), folder, device="cpu")


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
    other = load_state(run(tmp_path / "other", replace(PLAN, seed=8)) / STATE)
    same = load_state(uninterrupted / STATE)
    name = "backbone.1.weight"
    assert not torch.equal(other["module"][name], same["module"][name])


def test_the_schedule_and_the_table_are_those_of_the_plan(uninterrupted):
    table = pd.read_csv(uninterrupted / METRICS)
    assert table["epoch"].tolist() == [0, 1, 2, 3]
    assert table["learning_rate"].tolist() == pytest.approx([0.01, 0.01, 0.001, 0.001])
    assert {"L_g", "L_decorr", "R2", "effective_sample_size", "val_accuracy"} <= set(table)
    assert list((uninterrupted / "tensorboard").iterdir())


class Interrupter(RunKeeper):
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
    monkeypatch.setattr(training, "RunKeeper", type("Dying", (Interrupter,), {"hook": hook, "at": at, "action": die}))
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
        training, "RunKeeper", type("Stopped", (Interrupter,), {"hook": hook, "at": at, "action": send})
    )
    with pytest.raises(TrainingStoppedError, match="the same command goes on"):
        run(tmp_path / "run")
    assert signal.getsignal(number) is before
    saved = load_state(tmp_path / "run" / STATE)
    if hook == "batch_start":  # the step in work was finished and counts
        per_epoch = load_state(uninterrupted / STATE)["steps"] // PLAN.epochs
        assert (saved["epoch"], saved["batch"]) == divmod(at, per_epoch)
    monkeypatch.setattr(training, "RunKeeper", RunKeeper)
    assert_same_end(run(tmp_path / "run"), uninterrupted)


def test_a_second_ctrl_c_does_not_wait(tmp_path, monkeypatch):
    def send():
        interrupt(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    monkeypatch.setattr(
        training, "RunKeeper", type("Twice", (Interrupter,), {"hook": "batch_start", "at": 2, "action": send})
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
    try:
        with pytest.raises(SystemExit):  # Lightning's answer to Ctrl-C
            run(tmp_path / "run")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "run" / STATE).exists()


SCRIPT = """
import time, torch
torch.set_num_threads(1)
from pathlib import Path
from pfdl.vision.classifier import ImageClassifier
from tests.vision.test_resume import run
step = ImageClassifier.training_step
def slowly(self, *args):  # so that the killer has time to aim
    time.sleep(0.05)
    return step(self, *args)
ImageClassifier.training_step = slowly
run(Path({folder!r}))
"""


def test_kill_9_costs_only_work(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    for wanted in (1, 3):
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT.format(folder=str(folder))], cwd=Path(__file__).parents[2]
        )
        while not (folder / METRICS).exists() or len(pd.read_csv(folder / METRICS)) < wanted:
            assert process.poll() is None
            time.sleep(0.005)
        process.kill()
        process.wait()
        assert not (folder / STATE).exists() or not load_state(folder / STATE)["finished"]
    assert_same_end(run(folder), uninterrupted)


def test_a_finished_run_is_left_alone(uninterrupted, monkeypatch):
    monkeypatch.setattr(training, "Trainer", None)  # nobody may even ask for one
    before = (uninterrupted / STATE).stat().st_mtime_ns
    run(uninterrupted)
    assert (uninterrupted / STATE).stat().st_mtime_ns == before


def test_the_best_weights_on_validation_images_are_kept(tmp_path, monkeypatch):
    accuracies = iter([0.3, 0.9, 0.5])
    monkeypatch.setattr("pfdl.vision.classifier._accuracy", lambda logits, labels: torch.tensor(next_or_last()))
    current = [0.0]

    def next_or_last():
        return current[0]

    class Teller(Callback):
        seen: list = []  # noqa: RUF012

        def on_validation_start(self, trainer, pl_module):
            current[0] = next(accuracies)

        def on_validation_end(self, trainer, pl_module):
            self.seen.append(pl_module.backbone[1].weight.detach().clone())

    original = training.Trainer
    monkeypatch.setattr(
        training, "Trainer", lambda **rest: original(**{**rest, "callbacks": [Teller(), *rest["callbacks"]]})
    )
    run(tmp_path / "run", TrainingConfig(**{**SETTINGS, "epochs": 3, "objective": "erm"}, batch_size=8))
    kept = load_file(tmp_path / "run" / WEIGHTS)["1.weight"]
    assert torch.equal(kept, Teller.seen[1])
    assert not torch.equal(kept, Teller.seen[2])
    assert load_state(tmp_path / "run" / STATE)["best_score"] == pytest.approx(0.9)


def test_without_the_main_thread_there_are_no_handlers(monkeypatch):
    keeper = RunKeeper(torch.nn.Linear(1, 1), Path(), seed=0, monitor=None)
    monkeypatch.setattr(run_keeper.threading, "current_thread", lambda: None)
    keeper._listen()
    assert keeper._handlers == {}
