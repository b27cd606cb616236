"""Three gloo processes against one process on the union of their batches."""

import re

import pytest
import torch
import torch.distributed as dist

from tests.decorrelation.distributed_worker import OPTIONS, SIZES, P, alone, main, penalty
from tests.processes import run

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="gloo is not available")


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Return what each process saw."""
    world, folder = len(SIZES[0]), tmp_path_factory.mktemp("processes")
    run(world, main, folder)
    return [torch.load(folder / f"{rank}.pt") for rank in range(world)]


@pytest.mark.parametrize("name", OPTIONS)
def test_ddp_equals_one_process_on_the_union(processes, name):
    wanted = alone(OPTIONS[name])
    for rank in processes:
        found = rank[name]
        torch.testing.assert_close(found["losses"], wanted["losses"], rtol=1e-7, atol=1e-12)
        torch.testing.assert_close(found["gradients"], wanted["gradients"], rtol=1e-7, atol=1e-12)
        torch.testing.assert_close(found["r2"], wanted["r2"], rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(found["parts"], wanted["parts"], rtol=1e-7, atol=1e-12)
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
    wanted = alone({})
    for rank in processes:
        for part in ("model", "g"):
            for key, value in wanted[part].items():
                torch.testing.assert_close(rank["fsdp"][part][key], value, rtol=1e-6, atol=1e-9)


PROBLEMS = {
    "nan": r"features\[1, 2\] is nan; all values must be finite",
    "shape": "3 columns but num_features is 6",
    "no tensor": "features is a list",
    "schedule": "weight is nan",
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_one_process_cannot_use_stops_all_and_updates_none(processes, problem):
    messages, untouched = zip(*(rank["errors"][problem] for rank in processes), strict=True)
    assert re.search(PROBLEMS[problem], messages[0])
    assert all("process 0 cannot use its batch" in message for message in messages[1:])
    assert all(untouched)


def test_a_batch_that_is_empty_everywhere_is_refused(processes):
    for rank in processes:
        said, untouched = rank["errors"]["nobody has a batch"]
        assert "all processes together have a batch of 0" in said
        assert untouched
        assert rank["errors"]["still works"] == ("nothing", False)


def test_in_eval_mode_each_process_is_by_itself(processes):
    for number, rank in enumerate(processes):
        expected = penalty({}).eval()(torch.full((2 + number, P), number + 1.0, dtype=torch.float64))
        torch.testing.assert_close(rank["eval"], expected)
