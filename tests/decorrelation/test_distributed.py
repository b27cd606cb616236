"""Three gloo processes against one process on the union of their batches."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pfdl
from tests.states import ProcessTester, each, equal

P = 6
H = 5
STEPS = 6
# Rows of each process, taken in turns: batches are uneven, and some are empty.
SIZES = [(4, 2, 6), (3, 3, 1), (0, 5, 2)]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def everything():
    """The whole batches and how they are divided."""
    generator = seeded(1)
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
        self.model = model()
        self.penalty = penalty(options, seed)

    def forward(self, x):
        return self.penalty(self.model(x))


def train(both, inner, optimizer, batches):
    """Return the losses and the gradients of the first step."""
    losses = []
    first = None
    for x in batches:
        optimizer.zero_grad()
        both(x).backward()
        if first is None:
            first = [value.grad.clone() for value in inner.model.parameters()]
        optimizer.step()
        last = inner.penalty.last
        losses.append([last.decomposition_loss, last.decorrelation_loss])
    return {
        "losses": losses,
        "gradients": first,
        "model": inner.model.state_dict(),
        "g": dict(inner.penalty.decomposition.state_dict()),
        "r2": last.r2,
        "parts": [last.level_part, last.covariance_part],
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

    network = model()
    beside = penalty({}, seed=rank)
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
    world = len(SIZES[0])
    least = 2
    culprit = 0
    names = (*OPTIONS, "beside FSDP")
    name = each(names)
    learnt = "g"
    tolerances = TOLERANCES
    sentences = SENTENCES

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
        x = torch.randn(4, P, dtype=torch.float64, generator=seeded(int(is_culprit)))
        if problem == "empty":
            return penalty({}), {"features": x[:0]}
        if not is_culprit:
            return penalty({}), {"features": x}
        if problem == "schedule":
            turns_nan = {"weight": lambda fits: float("nan") if fits else 1.0}
            return penalty(turns_nan), {"features": x}
        with_nan = x.clone()
        with_nan[1, 2] = torch.nan
        bad = {"nan": with_nan, "shape": x[:, :3], "no tensor": [1.0]}
        return penalty({}), {"features": bad.get(problem, x)}

    def evaluate(self, rank):
        return penalty({}).eval()(torch.full((2 + rank, P), rank + 1.0, dtype=torch.float64))

    def more(self, rank):
        fitted = penalty({}, seed=rank).eval()
        fitted.fit_step(torch.randn(4, P, dtype=torch.float64, generator=seeded(rank)))
        reloaded = penalty({})
        reloaded(torch.ones(2, P, dtype=torch.float64))
        reloaded.load_state_dict(penalty({}, seed=rank).state_dict())
        reloaded(torch.ones(2, P, dtype=torch.float64))
        return {"fitted in eval mode": fitted.state_dict(), "reloaded": reloaded.state_dict()}

    def test_a_fit_in_eval_mode_is_one_fit_of_all(self, processes):
        first, *others = (process["fitted in eval mode"] for process in processes)
        assert all(equal(first, other) for other in others)

    def test_after_loading_the_g_of_the_first_process_is_shared_again(self, processes):
        first, *others = (process["reloaded"] for process in processes)
        assert all(equal(first, other) for other in others)
