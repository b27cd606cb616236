"""Start the processes of a distributed test: one Python each, with the variables that torchrun would set."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(world, *command, **variables):
    """Start ``python command`` as many times as the world is large."""
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={
                **os.environ,
                **{"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
                **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)},
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]


def finish(processes, timeout=150):
    """Wait for all, and return what each of them printed and its exit status."""
    try:
        said = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return said, [process.returncode for process in processes]


def run(world, *command):
    """Run ``python command`` in so many processes, all of which must succeed."""
    said, status = finish(start(world, *command))
    assert status == [0] * world, "\n".join(said)
