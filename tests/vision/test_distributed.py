"""Trainings in two processes: against one process, stopped, killed, and as the command line starts
them.
"""

import os
import sys

import pandas as pd
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.run import main as torchrun

from pfdl.cli import main as command_line
from pfdl.runs import read_run
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.launching import choose_devices
from pfdl.vision.resume import METRICS
from pfdl.vision.training import train
from tests.processes import ROOT, Forked
from tests.vision.distributed_worker import COMMAND, PLAIN, main
from tests.vision.tiny_images import TinySource, tiny_data

ANYWHERE = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
"""Where the processes that a process starts find the tests, too."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder in which two processes worked, and what each of them said."""
    if not dist.is_gloo_available():
        pytest.skip("gloo is not available")
    folder = tmp_path_factory.mktemp("trained")
    TinySource(per_cell=16).save(folder / "images")
    finished = Forked(main, folder, **ANYWHERE)
    finished.finish()
    assert (folder / "1.pt").exists(), finished.stdout + finished.stderr
    return folder, [torch.load(folder / f"{rank}.pt") for rank in range(2)], finished


def same(here, there):
    """Whether two runs ended with the same weights and the same table, to the last bit."""
    return all(
        (here / name).read_bytes() == (there / name).read_bytes() for name in (WEIGHTS, METRICS)
    )


def assert_close(here, there, **tolerance):
    torch.testing.assert_close(load_file(here / WEIGHTS), load_file(there / WEIGHTS), **tolerance)
    pd.testing.assert_frame_equal(
        pd.read_csv(here / METRICS), pd.read_csv(there / METRICS), rtol=1e-3, atol=1e-6
    )


def test_processes_agree_and_the_first_speaks_for_all(trained):
    folder, said, _ = trained
    for rank in range(2):
        assert said[rank]["processes"] == (rank, 2, True, [0, 1], "same")
        assert "2 processes are connected already, and 1 would train" in said[rank]["one device"]
    assert said[0]["fails"] == "OSError: the disk is full"
    assert said[1]["fails"] == "OtherProcessError: the first process stopped: the disk is full"
    assert "holds another run (it differs in" in said[0]["another run"]
    assert said[1]["another run"].startswith("OtherProcessError: the first process stopped: ")
    assert "the processes do not train alike" in said[0]["another seed"]
    assert said[0]["another seed"] == said[1]["another seed"]
    assert not (folder / "seeds").exists()


def test_two_processes_train_what_one_trains(trained, tmp_path):
    folder, _, _ = trained
    alone = train(PLAIN, *tiny_data(), tmp_path / "alone", device="cpu")
    assert_close(folder / "plain", alone, rtol=1e-4, atol=1e-6)
    assert read_run(folder / "plain").settings["processes"] == 2


def test_a_process_that_is_asked_to_stop_stops_all_and_the_run_resumes_exactly(trained):
    folder, said, _ = trained
    for name in ("stopped", "stopped fsdp"):
        assert "Stopped in epoch 2. All of it is saved in" in said[0][name]
        assert said[0][name] == said[1][name]
    assert same(folder / "stopped", folder / "uninterrupted")
    assert_close(folder / "fsdp", folder / "uninterrupted", rtol=1e-4, atol=1e-5)


def test_a_state_that_somebody_changed_is_refused_by_all_where_the_model_is_sharded(trained):
    _, said, _ = trained
    for each in said:
        assert each["tampered fsdp"].startswith("ValueError: ")
        assert "is not a state of this training" in each["tampered fsdp"]
        assert "has shape (1,); it must be" in each["tampered fsdp"]


def test_a_killed_process_ends_all_and_torchrun_resumes_to_the_same_weights(trained):
    folder, _, killed = trained
    assert killed.finish() != 0
    assert not (folder / "killed" / "evaluations").exists()
    training = (
        command_line.__file__,
        "train",
        folder / "images",
        *COMMAND.split(),
        "-o",
        folder / "killed",
    )
    forked = ("--run-path", "--start-method=fork")  # from what has imported all that is slow
    finished = Forked(
        torchrun, "--standalone", "--nproc-per-node=2", *forked, *training, **ANYWHERE
    )
    assert finished.finish() == 0, finished.stdout + finished.stderr
    assert same(folder / "killed", folder / "whole")
    assert finished.stdout.count("Accuracy on all") == 1
    assert "epoch 1/3" not in finished.stderr
    assert finished.stderr.count("epoch 3/3") == 1
    assert finished.stderr.count("Images: 64") == 1


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
SRUN = {"SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_NUM_NODES": "2", "SLURM_PROCID": "0"}


@pytest.mark.parametrize(
    ("variables", "settings", "launcher", "wanted"),
    [
        ({}, {}, "pfdl", (1, 1)),
        ({}, {"devices": 3, "strategy": "fsdp"}, "pfdl", (3, 1)),
        (TORCHRUN, {}, "torchrun", (4, 2)),
        (TORCHRUN, {"devices": 4}, "torchrun", (4, 2)),
        ({"RANK": "0", "WORLD_SIZE": "2"}, {}, "torchrun", (2, 1)),
        (SRUN, {}, "srun", (3, 2)),
        (SRUN, {"devices": 1}, "pfdl", (1, 1)),  # one worker of many, which trains alone
        (
            {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"},
            {},
            "pfdl",
            (1, 1),
        ),  # a batch script without srun
    ],
)
def test_processes_are_those_of_the_launcher_or_of_the_user(
    variables, settings, launcher, wanted, monkeypatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert choose_devices("cpu", **settings) == (launcher, *wanted)


@pytest.mark.parametrize(
    ("variables", "device", "settings", "message"),
    [
        (
            TORCHRUN,
            "cpu",
            {"devices": 2},
            "devices is 2, but torchrun started 4; give --devices 4 or leave",
        ),
        (SRUN, "cpu", {"devices": 2}, "devices is 2, but srun started 3"),
        (
            {**SRUN, "SLURM_STEP_NUM_TASKS": "5"},
            "cpu",
            {},
            "srun started 5 tasks on 2 nodes; give each node as many",
        ),
        (
            {},
            "cpu",
            {"strategy": "fsdp"},
            "'fsdp', which shares a model among several devices, and there is one",
        ),
        ({}, "cuda", {"devices": 99}, "99 processes on this machine need as many GPUs"),
        ({}, "cpu", {"strategy": "pipeline"}, "strategy is 'pipeline'"),
        ({}, "cpu", {"devices": 0}, "devices is 0"),
    ],
)
def test_what_does_not_fit_together_is_a_sentence(
    variables, device, settings, message, monkeypatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        choose_devices(device, **settings)


def test_a_step_that_processes_cannot_share_is_refused_before_they_start(tmp_path):
    with pytest.raises(
        ValueError, match="batch_size is 16, the images of a step over all 3 processes"
    ):
        train(PLAIN, *tiny_data(), tmp_path / "run", device="cpu", devices=3)
    assert not (tmp_path / "run").exists()
