"""Three gloo processes against one process on the union of their batches."""

import re

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pfdl
from tests import processes as forked

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="gloo is not available")

P, H, STEPS = 6, 5, 6
# Rows of each process, taken in turns: batches are uneven, and some are empty.
SIZES = [(4, 2, 6), (3, 3, 1), (0, 5, 2)]


def everything():
    """The whole batches and how they are divided."""
    generator = torch.Generator().manual_seed(1)
    mixing = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    for step in range(STEPS):
        sizes = SIZES[step % len(SIZES)]
        yield sizes, torch.randn(sum(sizes), 4, generator=generator, dtype=torch.float64) @ mixing


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, P)).double()


def penalty(options, seed=0):
    torch.manual_seed(100 + seed)
    return pfdl.PartialDecorrelation(P, **{"weight": 2.0, "hidden": H, **options}).double()


class Both(nn.Module):
    """A model that carries the penalty as a part, as a LightningModule would."""

    def __init__(self, options, seed):
        super().__init__()
        self.model, self.penalty = model(), penalty(options, seed)

    def forward(self, x):
        return self.penalty(self.model(x))


def train(both, optimizer, batches):
    """Return the losses and the gradients of the first step."""
    losses, first = [], None
    inner = both.module if isinstance(both, DistributedDataParallel) else both
    for x in batches:
        optimizer.zero_grad()
        both(x).backward()
        if first is None:
            first = [value.grad.clone() for value in inner.model.parameters()]
        optimizer.step()
        losses.append(torch.stack([inner.penalty.last.decomposition_loss, inner.penalty.last.decorrelation_loss]))
    return {
        "losses": torch.stack(losses),
        "gradients": first,
        "model": inner.model.state_dict(),
        "g": dict(inner.penalty.decomposition.state_dict()),
        "r2": inner.penalty.last.r2,
        "parts": [inner.penalty.last.level_part, inner.penalty.last.covariance_part],
    }


def run(options, rank):
    both = DistributedDataParallel(Both(options, seed=rank))  # every process draws another g; the first one's counts
    optimizer = torch.optim.Adam(both.module.model.parameters(), lr=0.05)
    mine = [torch.split(x, sizes)[rank] for sizes, x in everything()]
    return train(both, optimizer, mine)


def alone(options):
    both = Both(options, seed=0)
    return train(both, torch.optim.Adam(both.model.parameters(), lr=0.05), [x for _, x in everything()])


OPTIONS = {
    "fused": {},
    "fused, centred": {"center": "batch", "sharing": "strict"},
    "plain": {"kernel": "plain", "center": "batch"},
    "several fits": {"sharing": "indexed", "center": "batch", "fit_steps": 2},
    "standardised": {"standardize": True},
}


def outside_fsdp(rank, world):
    """The model sharded, the penalty beside it and replicated."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    network, beside = model(), penalty({}, seed=rank)
    fully_shard(network, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    for sizes, x in everything():
        optimizer.zero_grad()
        beside(network(torch.split(x, sizes)[rank])).backward()
        optimizer.step()
    return {
        "model": {name: value.full_tensor() for name, value in network.state_dict().items()},
        "g": dict(beside.decomposition.state_dict()),
    }


def asked(decorrelate, x):
    """What a call says, and whether it left the penalty as it was."""
    before = [value.clone() for value in decorrelate.parameters()]
    try:
        decorrelate(x)
    except (ValueError, TypeError) as error:
        said = str(error)
    else:
        said = "nothing"
    untouched = all(torch.equal(a, b) for a, b in zip(before, decorrelate.parameters(), strict=True))
    return said, untouched and decorrelate.completed_fits == 0


def errors_are_shared(rank):
    """The first process has something that cannot be used; all of them stop, and none has updated anything."""
    x = torch.randn(4, P, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))
    first = rank == 0
    with_nan = x.clone()
    with_nan[1, 2] = torch.nan
    turns_nan = {"weight": lambda fits: float("nan") if first and fits else 1.0}
    return {
        "nan": asked(penalty({}), with_nan if first else x),
        "shape": asked(penalty({}), x[:, :3] if first else x),
        "no tensor": asked(penalty({}), [1.0] if first else x),
        "schedule": asked(penalty(turns_nan), x),
        "nobody has a batch": asked(penalty({}), x[:0]),
        "still works": asked(penalty({}), x),
    }


def work(rank, world):
    """What each process computes; all in one start of them, which is slow."""
    results = {name: run(options, rank) for name, options in OPTIONS.items()}
    results["fsdp"] = outside_fsdp(rank, world)
    results["errors"] = errors_are_shared(rank)
    results["eval"] = penalty({}).eval()(torch.full((2 + rank, P), rank + 1.0, dtype=torch.float64))
    return results


@pytest.fixture(scope="module")
def processes():
    """Return what each process saw."""
    return forked.run(len(SIZES[0]), work)


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
