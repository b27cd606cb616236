"""What each process of a distributed test runs; started by test_distributed.py, in three processes."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pfdl

P, H, STEPS = 6, 5, 10
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
    both = Both(options, seed=rank)  # every process draws another g; the first one's counts
    both = DistributedDataParallel(both)
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


def random_features(rank):
    return torch.randn(4, P, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))


def errors_are_shared(rank):
    """The first process has something that cannot be used; all of them stop, and none has updated anything."""
    x = random_features(rank)
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


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    results = {name: run(options, rank) for name, options in OPTIONS.items()}
    results["fsdp"] = outside_fsdp(rank, world)
    results["errors"] = errors_are_shared(rank)
    results["eval"] = penalty({}).eval()(torch.full((2 + rank, P), rank + 1.0, dtype=torch.float64))
    torch.save(results, f"{sys.argv[1]}/{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
