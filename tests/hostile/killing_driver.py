"""Kills commands again and again, each time at another instant, and compares what a rerun ends with.

Usage: python -m tests.hostile.killing_driver FOLDER COMMAND…

Every run is a process of its own, forked here after what is slow, and ended by a real SIGKILL: in the middle of
its writes, one by one, when half of the file lies there under its temporary name, and a few times at random. What is
printed is JSON, by command: how many times it was killed, and which files differed from those of a run that nobody
killed.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
import typer
from PIL import Image

from pfdl._internal import files as _files
from pfdl._internal.runs import CONFIG, LOCK
from pfdl._internal.state import load_state
from pfdl.cli import main as cli
from pfdl.contexts import statistics
from pfdl.vision import resume as run_keeper
from pfdl.vision.resume import STATE
from pfdl_lab.images import data as image_data, run as images
from tests.vision.tiny_images import TinySource

COMMAND_LINE = typer.main.get_command(cli.app)  # made once: that takes as long as a training
RANDOM_KILLS = 1
MOST_WRITES = 5
"""A command that writes so often or more is killed in every second of its writes, or third; train in all of them."""
QUICK = ("--backbone", "mlp", "--image-size", "8", "--epochs", "2", "--batch-size", "16", "--device", "cpu")
TRAINING = (
    *(*QUICK, "--ratio", "2:1", "--no-export"),
    *("--objective", "stablenet+balance+pfdl", "--contexts", "known"),  # all with a state
    *("--set", "stablenet.steps=2", "--set", "pfdl.hidden=4"),
)


def pictures(root: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    for label, name in enumerate(("cat", "dog")):
        for context in ("in the house", "in the garden"):
            (root / name / context).mkdir(parents=True, exist_ok=True)
            for number in range(12):
                pixels = torch.randint(0, 100, (8, 8, 3), generator=generator) + 120 * label
                Image.fromarray(pixels.to(torch.uint8).numpy()).save(root / name / context / f"{number}.png")
    return root


def pfdl(*arguments: object) -> None:
    COMMAND_LINE([str(argument) for argument in arguments], standalone_mode=False)


def train(output: Path, data: Path) -> None:
    pfdl("train", data, *TRAINING, "-o", output)


def train_on_inferred_contexts(output: Path, data: Path) -> None:
    statistics.WIDTH = 16
    inferred = ("--objective", "groupdro", "--contexts", "inferred", "--set", "confirm=false")
    pfdl("train", data, *QUICK, "--no-export", *inferred, "-o", output)


def refit(output: Path, data: Path) -> None:
    if not (run := data.parent / "trained").exists():  # by the first run, for all
        manifest = data.parent / "halves.csv"
        pfdl("split", data, "--validation", 0.6, "-o", manifest)  # enough images of each group to refit on
        pfdl("train", data, *QUICK, "--no-export", "--set", f"manifest={manifest}", "-o", run)
    pfdl("refit", run, data, "--contexts", "known", "--device", "cpu", "-o", output)


def split(output: Path, data: Path) -> None:
    pfdl("split", data, "--ratio", "2:1", "-o", output / "manifest.csv")


class TinyData(image_data.ImageData):
    """Images that are ready at once."""

    def open(self) -> Any:
        return TinySource()


def reproduce_nico(output: Path, data: Path) -> None:
    config = images.ImagesConfig(rows=("pfdl",), backbone="mlp", image_size=8, epochs=2, batch_size=16, seeds=2)
    images.run(config, [TinyData("shapes")], output)


COMMANDS: dict[str, Callable[[Path, Path], None]] = {
    "train": train,
    "train on inferred contexts": train_on_inferred_contexts,
    "refit": refit,
    "split": split,
    "nico": reproduce_nico,
}


def start(command: str, output: Path, data: Path, log: Path, kill_at: int = 0) -> int:
    """Run the command in a process of its own, which kills itself in the middle of its n-th write if told so."""
    if pid := os.fork():
        return pid
    status = 1
    sys.settrace(None)  # nobody would save the lines it counts
    try:
        with log.open("a") as stream:  # nothing of the runs may get among what is printed here
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        logging.getLogger("pfdl").addHandler(logging.StreamHandler())
        count_writes(output.with_suffix(".writes"), kill_at)
        COMMANDS[command](output, data)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def count_writes(counter: Path, kill_at: int) -> None:
    writes = 0
    synchronise = os.fsync

    def fsync(descriptor: int) -> None:
        nonlocal writes
        writes += 1
        if writes == kill_at:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        counter.write_text(str(writes))
        synchronise(descriptor)

    _files.os.fsync = fsync


def end_of(pid: int) -> int:
    """How a process ended: 0 well, a negative number by that signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def content(folder: Path) -> dict[str, bytes]:
    """What a run left, file by file, without what follows the clock."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name.startswith("tensorboard/") or "/tensorboard/" in name or path.name == LOCK:
            continue
        if path.name == CONFIG:
            found[name] = json.dumps(json.loads(path.read_bytes())["settings"]).encode()
        elif path.name == STATE:  # safetensors writes the entries of its header in any order
            found[name] = json.dumps(load_state(path), default=_bits).encode()
        else:
            found[name] = path.read_bytes()
    return found


def _bits(tensor: torch.Tensor) -> list[Any]:
    return [str(tensor.dtype), *tensor.shape, tensor.numpy().tobytes().hex()]


def kill_at_many_instants(command: str, scratch: Path) -> dict[str, Any]:
    data, log, whole = pictures(scratch / "data"), scratch / "log", scratch / "whole"
    with redirect_stdout(sys.stderr):  # all that is slow at first is done here, once, and inherited by every run
        COMMANDS[command](scratch / "first", data)
    gc.freeze()  # no run looks for garbage among it
    began = time.monotonic()
    if end_of(start(command, whole, data, log)) != 0:
        raise SystemExit(log.read_text())
    duration = time.monotonic() - began
    expected = content(whole)
    writes = int(whole.with_suffix(".writes").read_text())
    chance = random.Random(0)
    every = 1 if command == "train" else 1 + writes // MOST_WRITES
    instants = [("write", number) for number in range(writes, 0, -every)]
    instants += [("time", chance.uniform(0.05, 0.9) * duration) for _ in range(RANDOM_KILLS)]
    killed, different = 0, {}
    in_writes = sum(kind == "write" for kind, _ in instants)
    for kind, when in instants:
        output = scratch / "killed"
        shutil.rmtree(output, ignore_errors=True)
        pid = start(command, output, data, log, kill_at=when if kind == "write" else 0)
        if kind == "time":
            time.sleep(when)
            os.kill(pid, signal.SIGKILL)  # not waited for yet, so that the number is still its own
        ended = end_of(pid)
        killed += ended == -signal.SIGKILL
        if command == "split":  # it writes where the user wants, which nobody tidies
            for litter in output.glob(f"{_files.TEMPORARY}*"):
                litter.unlink()
        if (ended := end_of(start(command, output, data, log))) != 0:
            different[f"{kind} {when}"] = [f"the rerun ended with {ended}: {log.read_text()[-3000:]}"]
        elif (found := content(output)) != expected:
            names = {*found, *expected}
            different[f"{kind} {when}"] = sorted(name for name in names if found.get(name) != expected.get(name))
    return {
        "writes": writes,
        "kills in writes": in_writes,
        "killed": killed,
        "files": sorted(expected),
        "different": different,
    }


def main() -> None:
    run_keeper.SAVE_EVERY = 0.0  # at every epoch, however short
    torch.set_num_threads(1)  # and so no other threads, which a fork would lose
    print(json.dumps({name: kill_at_many_instants(name, Path(sys.argv[1]) / name) for name in sys.argv[2:]}))


if __name__ == "__main__":
    main()
