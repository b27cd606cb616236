"""Let trainings that share a GPU compute at the same time, by NVIDIA's Multi-Process Service (MPS).

Without it a GPU serves its processes in turns, and a small training leaves most of it idle.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
PATIENCE = 30.0
"""Seconds to wait for an answer of the control daemon."""


@contextmanager
def shared_gpu(say: Callable[[str], None]) -> Iterator[None]:
    """Run MPS while the block runs, unless it runs already; where it cannot be started, say so in one line.

    The processes that the block starts find it by environment variables. Those of joblib are ended with the block,
    because MPS ends only when no process uses it.

    Args:
        say: Called with a sentence for the user.
    """
    if shutil.which(CONTROL) is None:
        say(
            f"{CONTROL} is not installed, so the GPU serves these trainings in turns. With NVIDIA's MPS they compute "
            "at the same time: see docs/performance.md."
        )
        yield
        return
    if _answers("get_server_list"):
        say("NVIDIA's MPS runs already; these trainings share the GPU through it.")
        yield
        return
    with tempfile.TemporaryDirectory(prefix="pfdl-mps-") as folder, _environment(folder):
        if problem := _start(Path(folder)):
            say(f"NVIDIA's MPS could not be started ({problem}); the GPU serves these trainings in turns.")
            yield
            return
        say("Started NVIDIA's MPS: these trainings share the GPU and compute at the same time.")
        _end_workers()  # those that are there already would not know of it
        try:
            yield
        finally:
            _end_workers()
            _answers("quit")


@contextmanager
def _environment(folder: str) -> Iterator[None]:
    """Let this process and those that it starts use an MPS of their own."""
    before = {name: os.environ.get(name) for name in (PIPES, LOGS)}
    for name, part in ((PIPES, "pipe"), (LOGS, "log")):
        (Path(folder) / part).mkdir()
        os.environ[name] = str(Path(folder) / part)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start(folder: Path) -> str:
    """Start the control daemon; return why it could not be started, or an empty text."""
    with (folder / "start").open("w+") as answer:  # no pipe, which the daemon would inherit and keep open
        try:
            subprocess.run(
                [CONTROL, "-d"],
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            answer.seek(0)
            return answer.readline().strip() or str(error)
    return ""


def _answers(command: str) -> bool:
    """Give the control daemon a command; return whether there is one that took it."""
    try:
        done = subprocess.run([CONTROL], input=f"{command}\n", capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _end_workers() -> None:
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)
