"""A small training with all that has a state, and what interrupts it."""

import os
import shutil
import signal
import time

import pytest

from pfdl._internal.state import load_state
from pfdl.vision import training
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import METRICS, STATE, RunKeeper, TrainingStoppedError
from pfdl.vision.training import TrainingConfig, train
from tests.states import equal
from tests.vision.tiny_images import tiny_data

LAST = "last-state.safetensors"
SETTINGS = {"backbone": "mlp", "image_size": 8, "epochs": 4, "decay_every": 2, "batch_size": 8}


CONFIG = TrainingConfig(
    **SETTINGS,
    objective="stablenet+balance+pfdl",
    contexts="inferred",
    infer_by="pooled",
    confirm=False,  # so that there are several, which the weights remember
    objective_settings={"stablenet": {"steps": 2}, "pfdl": {"hidden": 4}},
    patience=3,
    seed=7,
)


def run(folder, config=CONFIG):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunKeeper, "finish", finish)
        return train(config, *tiny_data(), folder, device="cpu")


def finish(keeper, original=RunKeeper.finish):
    """Keep the whole last state beside what users keep of it."""
    keeper._save()
    shutil.copyfile(keeper.folder / STATE, keeper.folder / LAST)
    original(keeper)


def assert_same_end(folder, expected):
    """Bit for bit: the whole last state (network, g, memories, optimisers, schedules), the weights
    and the table.
    """
    assert equal(load_state(folder / LAST), load_state(expected / LAST))
    for name in (WEIGHTS, METRICS):
        assert (folder / name).read_bytes() == (expected / name).read_bytes(), name


class Interrupter(RunKeeper):
    """Sends a signal, or raises, at the n-th time that a training comes to a place."""

    place, at, action = "", 0, None

    def __init__(self, loop, *args, **settings):
        super().__init__(loop, *args, **settings)
        loop._seed = self._counted("batch_start", loop._seed)
        loop.validate = self._counted("validation", loop.validate)
        self.before_epoch = self._counted("before_save", self.before_epoch)
        loop.train_epoch = self._counted("after_save", loop.train_epoch)
        self.stop_if_asked = self._counted("batch_end", self.stop_if_asked)
        self.after_epoch = self._counted("epoch_end", self.after_epoch)

    def _counted(self, place, function):
        def call(*args, **settings):
            if place == type(self).place:
                type(self).at -= 1
                if type(self).at == 0:
                    type(self).action()
            return function(*args, **settings)

        return call


def interrupting(place, at, action):
    """Return what keeps a run but for an action at the n-th time that the training comes to a
    place.
    """
    return type("Interrupted", (Interrupter,), {"place": place, "at": at, "action": action})


def interrupt(number):
    """Send a signal and wait until it is seen: another thread may get it, and two before that are
    one.
    """
    handler = signal.getsignal(number)
    os.kill(os.getpid(), number)
    while signal.getsignal(number) == handler:
        time.sleep(0.01)


def stop_at(place, at, folder, *, number=signal.SIGTERM, config=CONFIG):
    """Stop a training by a signal at the n-th time that it comes to a place, and return its saved
    state.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "RunKeeper", interrupting(place, at, lambda: interrupt(number)))
        with pytest.raises(TrainingStoppedError, match="the same command resumes"):
            run(folder, config)
    return load_state(folder / STATE)
