"""Kills commands again and again, each time at another instant, and compares what a rerun ends
with.

Every run is a process of its own, forked here after what is slow, and ended by a real SIGKILL: in
the middle of its writes, one by one, when the file lies there without its end, and a few times at
random. What is printed is JSON, by command: how many times it was killed, and which
files differed from those of a run that nobody killed.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import torch
import typer

from pfdl._internal import files as _files
from pfdl._internal.state import load_state
from pfdl.cli import main as cli
from pfdl.runs import CONFIG, LOCK
from pfdl.vision import resume
from pfdl.vision.resume import STATE
from pfdl.vision.sweep_journal import JOURNAL, open_study
from tests.cli.typing_commands import draw_all
from tests.processes import Forked

COMMAND_LINE = typer.main.get_command(cli.app)  # made once: that takes as long as a training
RANDOM_KILLS = 1
MOST_WRITES = 5
"""A command that writes so often or more is killed in every second of its writes, or third; train
in all of them.
"""
QUICK = "--backbone mlp --image-size 8 --epochs 2 --batch-size 16 --device cpu --no-export"
STATES = (
    "--objective stablenet+balance+pfdl --contexts known --set stablenet.steps=2 --set"
    " pfdl.hidden=4"
)
TRAINING = f"{QUICK} --ratio 2:1 {STATES}"


def pictures(root: Path) -> Path:
    return draw_all(root, ("in the house", "in the garden"))


def pfdl(line: str) -> None:
    COMMAND_LINE(shlex.split(line), standalone_mode=False)


def train(output: Path, data: Path) -> None:
    pfdl(f"train {data} {TRAINING} -o {output}")


def train_on_inferred_contexts(output: Path, data: Path) -> None:
    pfdl(
        f"train {data} {QUICK} --objective groupdro --contexts inferred --set confirm=false -o"
        f" {output}"
    )


def refit(output: Path, data: Path) -> None:
    if not (run := data.parent / "trained").exists():  # by the first run, for all
        manifest = data.parent / "halves.csv"
        # Enough images of each group to refit on
        pfdl(f"split {data} --validation 0.6 -o {manifest}")
        pfdl(f"train {data} {QUICK} --set manifest={manifest} -o {run}")
    pfdl(f"refit {run} {data} --contexts known --device cpu -o {output}")


def sweep(output: Path, data: Path) -> None:
    fixed = "backbone=mlp image_size=8 epochs=1 batch_size=16 learning_rate=0.01,0.05"
    space = " ".join(f"--set {setting}" for setting in fixed.split())
    # A relative folder, as most people type it
    pfdl(f"sweep {data} {space} --seeds 1 --device cpu -o {os.path.relpath(output)}")


def split(output: Path, data: Path) -> None:
    pfdl(f"split {data} --ratio 2:1 -o {output / 'manifest.csv'}")


Command = Callable[[Path, Path], None]


def start(command: Command, output: Path, data: Path, log: Path, kill_at: int = 0) -> int:
    """Run the command in a process of its own, which kills itself in the middle of its n-th write
    if told so.
    """
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
        command(output, data)
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
            # As much as a kill can take from a file that is appended to
            os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - 9))
            os.kill(os.getpid(), signal.SIGKILL)
        counter.write_text(str(writes))
        synchronise(descriptor)

    _files.os.fsync = fsync


def end_of(pid: int) -> int:
    """How a process ended: 0 well, a negative number by that signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


Content = dict[str, bytes]


def content(folder: Path) -> Content:
    """What a run left, file by file, without what follows the clock."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if (
            path.is_dir()
            or name.startswith("tensorboard/")
            or "/tensorboard/" in name
            or path.name.startswith(LOCK)
        ):
            continue
        if path.name == CONFIG:
            found[name] = json.dumps(json.loads(path.read_bytes())["settings"]).encode()
        elif path.name == STATE:  # safetensors writes the entries of its header in any order
            found[name] = json.dumps(load_state(path), default=_bits).encode()
        elif path.name == JOURNAL:  # it has the time of each line
            found[name] = json.dumps(_trials_of(path.parent)).encode()
        else:
            found[name] = path.read_bytes()
    return found


def _trials_of(sweep: Path) -> list[Any]:
    trials = open_study(sweep).get_trials()
    return [[one.state.name, one.values, one.params, one.user_attrs] for one in trials]


def _bits(tensor: torch.Tensor) -> list[Any]:
    return [str(tensor.dtype), *tensor.shape, tensor.numpy().tobytes().hex()]


class Kill(NamedTuple):
    """When a run is killed: in a write, by its number, or after so many seconds."""

    kind: str
    when: float

    def of(self, command: Command, output: Path, data: Path, log: Path) -> bool:
        """Start a run and kill it; return whether it had not ended before."""
        in_write = int(self.when) if self.kind == "write" else 0
        pid = start(command, output, data, log, kill_at=in_write)
        if self.kind == "time":
            time.sleep(self.when)
            os.kill(pid, signal.SIGKILL)  # not waited for yet, so that the number is still its own
        return end_of(pid) == -signal.SIGKILL


def choose_kills(command: Command, writes: int, seconds: float) -> list[Kill]:
    """Return the kills in the writes of a run, the last one first, and some at random."""
    chance = random.Random(0)
    every = 1 if command is train else 1 + writes // MOST_WRITES
    in_writes = [Kill("write", number) for number in range(writes, 0, -every)]
    return in_writes + [
        Kill("time", chance.uniform(0.05, 0.9) * seconds) for _ in range(RANDOM_KILLS)
    ]


def rerun(command: Command, output: Path, data: Path, log: Path, expected: Content) -> list[str]:
    """Run a command again; return the names of files that differ from the expected ones, or how it
    failed.
    """
    if (ended := end_of(start(command, output, data, log))) != 0:
        return [f"the rerun ended with {ended}: {log.read_text()[-3000:]}"]
    found = content(output)
    names = {*found, *expected}
    return sorted(name for name in names if found.get(name) != expected.get(name))


def kill_at_many_instants(command: Command, scratch: Path) -> dict[str, Any]:
    data = pictures(scratch / "data")
    log = scratch / "log"
    whole = scratch / "whole"
    with redirect_stdout(
        sys.stderr
    ):  # all that is slow at first is done here, once, and inherited by every run
        command(scratch / "first", data)
    gc.freeze()  # no run looks for garbage among it
    began = time.monotonic()
    if end_of(start(command, whole, data, log)) != 0:
        raise SystemExit(log.read_text())
    seconds = time.monotonic() - began
    expected = content(whole)
    writes = int(whole.with_suffix(".writes").read_text())
    kills = choose_kills(command, writes, seconds)
    killed = 0
    different = {}
    output = scratch / "killed"
    for kill in kills:
        shutil.rmtree(output, ignore_errors=True)
        killed += kill.of(command, output, data, log)
        if command is split:  # it writes where the user wants, which nobody tidies
            for litter in output.glob(f"{_files.TEMPORARY}*"):
                litter.unlink()
        if names := rerun(command, output, data, log, expected):
            different[f"{kill.kind} {kill.when}"] = names
    return {
        "writes": writes,
        "kills in writes": len(kills) - RANDOM_KILLS,
        "killed": killed,
        "files": sorted(expected),
        "different": different,
    }


def main(*commands: Command) -> None:
    """Kill the commands and print what came of it."""
    resume.SAVE_EVERY = 0.0  # at every epoch, however short
    torch.set_num_threads(1)  # and so no other threads, which a fork would lose
    folder = Path(sys.argv[1])
    print(
        json.dumps(
            {one.__name__: kill_at_many_instants(one, folder / one.__name__) for one in commands}
        )
    )


def check_reruns(main: Callable[[], None], products: dict[str, set[str]], folder: Path) -> None:
    """Check what a call of ``main`` printed in a process of its own, given files that each command
    must write.
    """
    done = Forked(main, folder)
    assert done.finish() == 0, done.stderr
    reports = json.loads(done.stdout)
    assert reports.keys() == products.keys()
    for name, report in reports.items():
        assert report["different"] == {}, name
        assert products[name] <= set(report["files"])
        assert report["writes"] >= len(products[name])
        # A kill at random may come too late, after the end; one within a write never does.
        assert (
            report["kills in writes"]
            <= report["killed"]
            <= report["kills in writes"] + RANDOM_KILLS
        )
        assert (
            report["kills in writes"] == report["writes"]
            or report["kills in writes"] >= MOST_WRITES // 2
        )
