"""Two and three gloo processes against one process on the union of their batches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from pfdl.decorrelation.distributed import Batch, world_size
from tests.decorrelation.distributed_worker import OPTIONS, P, alone, penalty

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="gloo is not available")


@pytest.fixture(scope="module", params=[2, 3])
def processes(request, tmp_path_factory):
    """Run the worker under torchrun and return what each process saw."""
    world, folder = request.param, tmp_path_factory.mktemp(f"world{request.param}")
    finished = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}",
         "-m", "tests.decorrelation.distributed_worker", str(folder)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return [torch.load(folder / f"{rank}.pt") for rank in range(world)]


@pytest.mark.parametrize("name", OPTIONS)
def test_ddp_equals_one_process_on_the_union(processes, name):
    wanted = alone(OPTIONS[name], len(processes))
    for rank in processes:
        found = rank[name]
        torch.testing.assert_close(found["losses"], wanted["losses"], rtol=1e-7, atol=1e-12)
        torch.testing.assert_close(found["gradients"], wanted["gradients"], rtol=1e-7, atol=1e-12)
        torch.testing.assert_close(found["r2"], wanted["r2"], rtol=1e-7, atol=1e-9)
        for part in ("model", "g"):
            for key, value in wanted[part].items():
                if isinstance(value, torch.Tensor):
                    torch.testing.assert_close(found[part][key], value, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", OPTIONS)
def test_g_is_the_same_in_all_processes_to_the_last_bit(processes, name):
    for rank in processes[1:]:
        for key, value in processes[0][name]["g"].items():
            assert torch.equal(rank[name]["g"][key], value)


def test_fsdp_with_the_penalty_replicated_beside_it(processes):
    wanted = alone({}, len(processes))
    for rank in processes:
        for part in ("model", "g"):
            for key, value in wanted[part].items():
                torch.testing.assert_close(rank["fsdp"][part][key], value, rtol=1e-6, atol=1e-9)


def test_a_nan_in_one_process_stops_all_and_updates_none(processes):
    messages, untouched = zip(*(rank["error"] for rank in processes), strict=True)
    assert "features[1, 2] is nan" in messages[0]
    assert all("another process" in message for message in messages[1:])
    assert all(untouched)


def test_without_synchronising_and_in_eval_mode_each_process_is_by_itself(processes):
    for number, rank in enumerate(processes):
        torch.testing.assert_close(
            rank["not synchronised"], penalty({}).fit_step(torch.full((2, P), float(number), dtype=torch.float64))
        )
        expected = penalty({}).eval()(torch.full((2 + number, P), number + 1.0, dtype=torch.float64))
        torch.testing.assert_close(rank["eval"], expected)


def test_lightning_with_two_processes(tmp_path):
    """strategy="ddp" on the user's own module, against the same module trained by one process."""
    pytest.importorskip("lightning")
    from tests.vision.lightning_worker import Module, trainer

    path = tmp_path / "module.pt"
    finished = subprocess.run(
        [sys.executable, "-m", "tests.vision.lightning_worker", str(path)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    module = Module()
    trainer().fit(module)
    found = torch.load(path)
    for key, value in module.state_dict().items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(found[key], value, rtol=1e-6, atol=1e-9)


def test_outside_distributed_there_is_one_process():
    assert world_size() == 1
    batch = Batch(3)
    assert (batch.processes, batch.total) == (1, 3)
    value = torch.ones(2)
    assert batch.sum(value) is value
    assert batch.sum_all([value])[0] is value
