"""Three gloo processes against one process on the union of their batches."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pfdl
from tests.states import ProcessTester, each, equal

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


def train(both, inner, optimizer, batches):
    """Return the losses and the gradients of the first step."""
    losses, first = [], None
    for x in batches:
        optimizer.zero_grad()
        both(x).backward()
        if first is None:
            first = [value.grad.clone() for value in inner.model.parameters()]
        optimizer.step()
        losses.append(
            torch.stack(
                [inner.penalty.last.decomposition_loss, inner.penalty.last.decorrelation_loss]
            )
        )
    return {
        "losses": torch.stack(losses),
        "gradients": first,
        "model": inner.model.state_dict(),
        "g": dict(inner.penalty.decomposition.state_dict()),
        "r2": inner.penalty.last.r2,
        "parts": [inner.penalty.last.level_part, inner.penalty.last.covariance_part],
    }


OPTIONS = {
    "fused": {},
    "fused, centred": {"center": "batch", "sharing": "strict"},
    "plain": {"kernel": "plain", "center": "batch"},
    "several fits": {"sharing": "indexed", "center": "batch", "fit_steps": 2},
    "standardised": {"standardize": True},
}


def beside_fsdp(rank, world):
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


TOLERANCES = {
    "losses": (1e-7, 1e-12),
    "gradients": (1e-7, 1e-12),
    "parts": (1e-7, 1e-12),
    "r2": (1e-7, 1e-9),
}
SENTENCES = {
    "nan": r"features\[1, 2\] is nan; all values must be finite",
    "shape": ".*3 columns but num_features is 6",
    "no tensor": "features is a list",
    "schedule": "weight is nan",
}


class TestProcesses(ProcessTester):
    world, least, culprit = len(SIZES[0]), 2, 0
    names = (*OPTIONS, "beside FSDP")
    name = each(names)
    learnt, tolerances, sentences = "g", TOLERANCES, SENTENCES

    def train(self, name, rank=None):
        if rank is not None and name not in OPTIONS:
            return beside_fsdp(rank, self.world)
        # Every process draws another g; the first one's counts
        both = Both(OPTIONS.get(name, {}), seed=rank or 0)
        optimizer = torch.optim.Adam(both.model.parameters(), lr=0.05)
        if rank is None:
            return train(both, both, optimizer, [x for _, x in everything()])
        mine = [torch.split(x, sizes)[rank] for sizes, x in everything()]
        return train(DistributedDataParallel(both), both, optimizer, mine)

    def call(self, problem, is_culprit):
        x = torch.randn(
            4, P, dtype=torch.float64, generator=torch.Generator().manual_seed(int(is_culprit))
        )
        if problem == "empty":
            return penalty({}), {"features": x[:0]}
        with_nan = x.clone()
        with_nan[1, 2] = torch.nan
        bad = {"nan": with_nan, "shape": x[:, :3], "no tensor": [1.0]}.get(problem, x)
        turns_nan = (
            {"weight": lambda fits: float("nan") if fits else 1.0} if problem == "schedule" else {}
        )
        return penalty(turns_nan if is_culprit else {}), {"features": bad if is_culprit else x}

    def evaluate(self, rank):
        return penalty({}).eval()(torch.full((2 + rank, P), rank + 1.0, dtype=torch.float64))

    def more(self, rank):
        fitted = penalty({}, seed=rank).eval()
        fitted.fit_step(
            torch.randn(4, P, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))
        )
        return {"fitted in eval mode": fitted.state_dict()}

    def test_a_fit_in_eval_mode_is_one_fit_of_all(self, processes):
        first, *others = (process["fitted in eval mode"] for process in processes)
        assert all(equal(first, other) for other in others)
