"""A run folder that was changed or removed under a training is answered with a sentence."""

import shutil

import pytest
import torch

from pfdl._internal.state import load_state, save_state
from pfdl.vision import training
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import STATE
from tests.vision.interrupted import interrupting, run, stop_at

pytestmark = pytest.mark.usefixtures("save_at_every_epoch")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A training that was stopped in the middle of its second epoch."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    stop_at("batch_start", 6, folder)
    return folder


def change(name, value):
    return lambda state: state.update({name: value})


def change_moment(name, value, *, of_g):
    """Change the state of the optimiser of the network or of g."""

    def apply(state):
        owner = state["module"]["objective.penalties.0._extra_state"] if of_g else state
        owner["optimizer"]["state"][0][name] = value

    return apply


@pytest.mark.parametrize(
    "tamper",
    [
        *(change("batch", value) for value in (10**9, -1, 1.5)),
        *(change("epoch", value) for value in (10**30, 1e30, -3, "1")),
        *(
            change("means", [{"train_loss": {"sum": value, "samples": 1}}])
            for value in ("x", torch.zeros(2))
        ),
        change("means", 5),
        *(change("module", value) for value in ({}, {"other.weight": torch.ones(2)})),
        *(change("optimizer", value) for value in (3, {"state": {}})),
        change_moment("momentum_buffer", torch.zeros(1), of_g=False),
        change_moment("exp_avg", torch.zeros(1), of_g=True),
        change_moment("step", torch.zeros(3), of_g=True),
    ],
)
def test_a_tampered_state_is_a_sentence(tamper, stopped, tmp_path):
    folder = shutil.copytree(stopped, tmp_path / "run")
    state = load_state(folder / STATE)
    tamper(state)
    save_state(folder / STATE, state)
    with pytest.raises(ValueError, match="is not a state of this training"):
        run(folder)


def test_a_folder_removed_under_a_training_is_a_sentence(tmp_path, monkeypatch):
    def remove():
        shutil.rmtree(tmp_path / "run")

    monkeypatch.setattr(training, "RunKeeper", interrupting("batch_end", 2, remove))
    with pytest.raises(FileNotFoundError, match="was removed or emptied while its training ran"):
        run(tmp_path / "run")
    assert not (tmp_path / "run" / WEIGHTS).exists()
