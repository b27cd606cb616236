"""A run folder that was changed or removed under a training: a sentence, or the very same end."""

import shutil
import signal

import pytest
import torch

from pfdl._internal.state import load_state, save_state
from pfdl.vision import TrainingStoppedError, training
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import STATE
from tests.vision.interrupted import assert_same_end, interrupt, interrupting, run

pytestmark = pytest.mark.usefixtures("save_at_every_epoch")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A training that was stopped in the middle of its second epoch."""

    def send():
        interrupt(signal.SIGTERM)

    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        stopping = interrupting("batch_start", 6, send)
        patch.setattr(training, "RunKeeper", stopping)
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
        change("module", {"other.weight": torch.ones(2)}),
        change("optimizer", 3),
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

    monkeypatch.setattr(training, "RunKeeper", interrupting("batch_end", 2, remove))
    with pytest.raises(FileNotFoundError, match="was removed or emptied while its training ran"):
        run(tmp_path / "run")
    assert not (tmp_path / "run" / WEIGHTS).exists()
