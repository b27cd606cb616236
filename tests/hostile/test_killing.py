"""kill -9 at any instant costs at most the work in flight: the rerun ends with the same files, byte for byte."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pfdl.vision.resume import METRICS
from tests.hostile.killing_driver import COMMANDS, RANDOM_KILLS, TRAINING, content, pictures, train

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the commands are forked")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What became of every command, killed at many instants, in one process because its imports are slow."""
    command = [sys.executable, "-m", "tests.hostile.killing_driver", str(tmp_path_factory.mktemp("killed")), *COMMANDS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


PRODUCTS = {
    "train": {"manifest.csv", "metrics.csv", "model.safetensors", "resume.safetensors", "evaluation.json"},
    "split": {"manifest.csv", "manifest.json"},
    "mmads": {"results.csv", "config.json"},
    "colored-mnist": {"results.csv", "config.json"},
    "contexts": {"results.csv", "config.json", "splits/seed-0.csv"},
    "study": {"results.csv", "config.json"},
}


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_in_every_write_and_at_random_a_rerun_ends_with_the_same_files(command, reports):
    report = reports[command]
    assert report["different"] == {}
    assert PRODUCTS[command] <= set(report["files"])
    assert report["writes"] >= len(PRODUCTS[command])
    # A kill at random may come too late, after the end; one within a write never does.
    assert report["writes"] <= report["killed"] <= report["writes"] + RANDOM_KILLS


def test_the_command_line_resumes_after_a_kill_too(tmp_path):
    data = pictures(tmp_path / "data")
    script = "from pfdl.cli.main import main; main()"

    def start(folder):
        return subprocess.Popen(
            [sys.executable, "-c", script, "train", str(data), *TRAINING, "-o", str(tmp_path / folder)],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    train(tmp_path / "whole", data)
    killed = start("killed")
    while not (tmp_path / "killed" / METRICS).exists():
        assert killed.poll() is None
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert start("killed").wait() == 0
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
