"""A small training with all that has a state, and what interrupts it."""

import os
import signal
import time

import pytest
import torch

from pfdl._internal.state import load_state
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import METRICS, STATE, ResumeCallback
from pfdl.vision.training import TrainingConfig, train
from tests.searching import describe_briefly
from tests.vision.tiny_images import tiny_data

SETTINGS = {"backbone": "mlp", "image_size": 8, "epochs": 4, "decay_every": 2, "batch_size": 8}


CONFIG = TrainingConfig(
    **SETTINGS,
    objective="stablenet+balance+pfdl",
    contexts="inferred",
    objective_settings={"stablenet": {"steps": 2}, "pfdl": {"hidden": 4}},
    patience=3,
    seed=7,
)


def run(folder, config=CONFIG):
    with pytest.MonkeyPatch.context() as patch:
        describe_briefly(patch)
        return train(config, *tiny_data(), folder, device="cpu")


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


class Interrupter(ResumeCallback):
    """Sends a signal, or raises, at the n-th call of a hook."""

    hook, at, action = "", 0, None

    def _count(self, hook):
        cls = type(self)
        if hook == cls.hook:
            cls.at -= 1
            if cls.at == 0:
                cls.action()

    def before_step(self, *args):
        super().before_step(*args)
        self._count("batch_start")

    def after_step(self, *args):
        self._count("batch_end")
        super().after_step(*args)

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


def interrupt(number):
    """Send a signal and wait until it is seen: another thread may get it, and two before that are one."""
    handler = signal.getsignal(number)
    os.kill(os.getpid(), number)
    while signal.getsignal(number) == handler:
        time.sleep(0.01)
