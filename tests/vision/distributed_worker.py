"""What two processes train; test_distributed.py starts the first of them, and that one the other,
as users do.

All of it in one pair of processes, because to start one takes longer than to train it.
"""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch

from pfdl._internal.processes import anybody, gather_objects, rank, run_on_first, world_size
from pfdl._internal.state import load_state, save_state
from pfdl.cli.main import app
from pfdl.vision import TrainingStoppedError, resume, training
from pfdl.vision.launching import make_fabric
from pfdl.vision.resume import STATE, RunKeeper
from pfdl.vision.training import TrainingConfig, train
from tests.vision.tiny_images import tiny_data

EVERYTHING = TrainingConfig(
    backbone="small",
    objective="stablenet+groupdro+pfdl",
    contexts="inferred",
    objective_settings={"stablenet": {"steps": 2}},
    image_size=8,
    epochs=3,
    batch_size=16,
    sampler="groups",
    select="worst-group",
    seed=7,
)
"""With all that could differ between processes: batch norm, augmentation, a memory, inferred
contexts.
"""
PLAIN = replace(
    EVERYTHING,
    backbone="mlp",
    objective="irm+coral+pfdl",
    contexts="known",
    objective_settings={},
    augment="none",
)
"""With nothing that depends on the process, so that two give what one gives."""
COMMAND = (
    "--backbone small --image-size 8 --epochs 3 --batch-size 16 --layout class/context --ratio"
    " natural --device cpu --devices 2 --set tensorboard=false --no-export"
)


def run(folder, config=EVERYTHING, **settings):
    return train(config, *tiny_data(), folder, device="cpu", devices=2, **settings)


class Interrupter(RunKeeper):
    """Send a signal to the second process in the second epoch."""

    number = signal.SIGTERM

    def stop_if_asked(self):
        if rank() == 1 and (self.loop.epoch, self.loop.step) == (1, 2):
            os.kill(os.getpid(), self.number)
        super().stop_if_asked()


def stop(folder, **settings):
    """Return what both processes said when one of them was stopped."""
    training.RunKeeper = Interrupter
    try:
        run(folder, **settings)
    except TrainingStoppedError as stopped:
        return str(stopped)
    finally:
        training.RunKeeper = RunKeeper
    return "nothing"


def stop_and_resume(folder, **settings):
    said = stop(folder, **settings)
    run(folder, **settings)
    return said


def tamper_and_resume(folder, **settings):
    """Return what both processes say to a state whose moments somebody shortened."""
    stop(folder, **settings)
    run_on_first(lambda: shorten_moments(folder / STATE))
    return sentence(lambda: run(folder, **settings))


def shorten_moments(path):
    """Let every moment have one element: compiled kernels would read beyond it."""
    state = load_state(path)
    for moments in state["optimizer"]["state"].values():
        moments.update({name: torch.zeros(1) for name in moments if name != "step"})
    save_state(path, state)


def sentence(action):
    try:
        action()
    except Exception as error:  # whatever it is, both processes must say something
        return f"{type(error).__name__}: {error}"
    return "nothing"


def fail():
    raise OSError("the disk is full")


def main():
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    make_fabric("cpu", devices=2)
    resume.SAVE_EVERY = 0.0
    said = {
        "processes": (
            rank(),
            world_size(),
            anybody(rank() == 1),
            gather_objects(rank()),
            run_on_first(lambda: "same"),
        ),
        "fails": sentence(lambda: run_on_first(fail)),
    }
    run(folder / "uninterrupted")
    said["stopped"] = stop_and_resume(folder / "stopped")
    said["stopped fsdp"] = stop_and_resume(folder / "fsdp", strategy="fsdp")
    said["tampered fsdp"] = tamper_and_resume(folder / "tampered", strategy="fsdp")
    run(folder / "plain", PLAIN)
    said["one device"] = sentence(lambda: train(PLAIN, *tiny_data(), folder / "one", device="cpu"))
    said["another run"] = sentence(lambda: run(folder / "plain"))
    said["another seed"] = sentence(lambda: run(folder / "seeds", replace(PLAIN, seed=rank())))
    app(
        ["train", str(folder / "images"), *COMMAND.split(), "-o", str(folder / "whole")],
        standalone_mode=False,
    )
    torch.save(said, folder / f"{rank()}.pt")
    Interrupter.number = signal.SIGKILL
    training.RunKeeper = Interrupter
    app(["train", str(folder / "images"), *COMMAND.split(), "-o", str(folder / "killed")])


if __name__ == "__main__":
    main()
