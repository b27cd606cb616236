"""What each of two processes computes of every objective; started by test_distributed.py."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from pfdl.objectives import list_objectives, make_objective, register_objective
from pfdl.objectives.penalties import Penalty
from pfdl.objectives.weightings import DWR

P, CLASSES, CONTEXTS = 5, 3, 2
SIZES = [(7, 5), (6, 6), (12, 0), (4, 8)]
"""Rows of each process, step by step: uneven, even, none in one of them."""


class Spread(Penalty):
    """Penalise the largest distance between two features: somebody's own penalty, which knows of no processes."""

    def forward(self, features):
        return (features[:, None] - features[None]).square().sum(2).max()


register_objective("spread", Spread)
SETTINGS = {"irm": {"irm": {"weight": 9.0, "anneal": 2}}, "pfdl": {"pfdl": {"hidden": 4}}}
JOINED = ("irm+pfdl", "groupdro+coral", "balance+dwr", "stablenet+vrex")
NAMES = [*(one.name for one in list_objectives()), *JOINED]


def make(name):
    torch.manual_seed(7)
    settings = {part: SETTINGS[part][part] for part in name.split("+") if part in SETTINGS}
    objective = make_objective(name, P, num_classes=CLASSES, num_contexts=CONTEXTS, **settings)
    objective.penalties.double()
    if isinstance(objective.weighting, DWR):
        objective.weighting.fit(torch.randn(CONTEXTS, P))
    return objective


def batches():
    generator = torch.Generator().manual_seed(3)
    for sizes in SIZES:
        n = sum(sizes)
        features = torch.randn(n, P, generator=generator, dtype=torch.float64)
        labels = torch.randint(CLASSES, (n,), generator=generator)
        environments = torch.randint(CONTEXTS, (n,), generator=generator)
        yield sizes, features, labels, environments


def head():
    return torch.linspace(-1, 1, P * CLASSES, dtype=torch.float64).view(P, CLASSES).sin().requires_grad_()


def loss_and_gradients(objective, features, labels, environments):
    leaf, weight = features.clone().requires_grad_(), head()
    # As indices any whole numbers will do: those of the contexts, for which DWR has a weight each.
    loss = objective(leaf @ weight, labels, features=leaf, environments=environments, indices=environments)
    loss.backward()
    return loss.detach(), leaf.grad, weight.grad


def alone(name):
    """What one process computes on the union of the batches."""
    objective, found = make(name), []
    for step, (sizes, *batch) in enumerate(batches()):
        torch.manual_seed(step)
        torch.manual_seed(int(torch.randint(2**31, ())))  # as the first process tells the others to draw
        loss, of_features, of_head = loss_and_gradients(objective, *batch)
        found.append((loss, torch.split(of_features, sizes), of_head, objective.metrics()))
    return found, objective.state_dict()


def shared(name, rank, world):
    """What this process computes on its part, with gradients averaged as DistributedDataParallel does."""
    objective, found = make(name), []
    for step, (sizes, *batch) in enumerate(batches()):
        torch.manual_seed(step + 100 * rank)
        loss, of_features, of_head = loss_and_gradients(objective, *(torch.split(one, sizes)[rank] for one in batch))
        dist.all_reduce(of_head)
        found.append((loss, of_features / world, of_head / world, objective.metrics()))
    return found, objective.state_dict()


def sampled(rows, part=slice(None)):
    """The loss where an objective gets the features of some samples only, each process of another number."""
    _, features, labels, _ = next(iter(batches()))
    leaf = features.clone().requires_grad_()
    loss = make("pfdl+spread")((leaf @ head())[part], labels[part], features=leaf[rows])
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient


def asked(name, change, rank):
    """What a step says if the second process has something else, and whether it changed anything."""
    objective = make(name)
    batch = {"logits": torch.ones(4, CLASSES), "labels": torch.tensor([0, 1, 2, 0])}
    batch |= {"features": torch.eye(4, P), "environments": torch.tensor([0, 1, 0, 1])}
    if rank:
        objective = change(objective, batch) or objective
    before = str(objective.state_dict())
    try:
        objective(batch.pop("logits"), batch.pop("labels"), **batch)
    except Exception as error:  # whatever it is, the other process must hear of it
        said = str(error)
    else:
        said = "nothing"
    return said, before == str(objective.state_dict())


def take(batch, name, value):
    batch[name] = value


CHANGES = {
    "no contexts": ("groupdro", lambda _, batch: take(batch, "environments", None)),
    "a wrong label": ("erm", lambda _, batch: take(batch, "labels", torch.tensor([0, 1, 2, 9]))),
    "a NaN": ("pfdl+coral", lambda _, batch: take(batch, "features", batch["features"].fill_(torch.nan))),
    "nothing else": ("stablenet", lambda _, batch: None),
}


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    results = {name: shared(name, rank, world) for name in NAMES}
    results["asked"] = {change: asked(*CHANGES[change], rank) for change in CHANGES}
    empty = torch.empty(0, CLASSES), torch.empty(0, dtype=torch.long)
    try:
        make("erm")(*empty)
    except ValueError as error:
        results["all are empty"] = str(error)
    results["sampled features"] = sampled(slice(0, 3) if rank == 0 else slice(3, 5), slice(6 * rank, 6 * rank + 6))
    single = make("irm").eval()
    _, features, labels, environments = next(iter(batches()))
    part = slice(6 * rank, 6 * rank + 6)
    results["by itself"] = loss_and_gradients(single, features[part], labels[part], environments[part])
    torch.save(results, f"{sys.argv[1]}/{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
