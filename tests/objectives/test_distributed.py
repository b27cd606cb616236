"""Every objective over two gloo processes against one process on the union of their batches."""

import re

import pytest
import torch
import torch.distributed as dist

from pfdl.objectives import list_objectives, make_objective, register_objective
from pfdl.objectives.penalties import Penalty
from pfdl.objectives.weightings import DWR
from tests.processes import run

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="gloo is not available")

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


def asked(name, changes, rank):
    """What a step says if the second process has something else, and whether it changed anything."""
    objective = make(name)
    batch = {"logits": torch.ones(4, CLASSES), "labels": torch.tensor([0, 1, 2, 0])}
    batch |= {"features": torch.eye(4, P), "environments": torch.tensor([0, 1, 0, 1])}
    batch |= changes if rank else {}
    before = str(objective.state_dict())
    try:
        objective(**batch)
    except Exception as error:  # whatever it is, the other process must hear of it
        said = str(error)
    else:
        said = "nothing"
    return said, before == str(objective.state_dict())


CHANGES = {
    "no contexts": ("groupdro", {"environments": None}),
    "a wrong label": ("erm", {"labels": torch.tensor([0, 1, 2, 9])}),
    "a NaN": ("pfdl+coral", {"features": torch.full((4, P), torch.nan)}),
    "nothing else": ("stablenet", {}),
}


def work(rank, world):
    """What each process computes; all in one start of them, which is slow."""
    results = {name: shared(name, rank, world) for name in NAMES}
    results["asked"] = {change: asked(*CHANGES[change], rank) for change in CHANGES}
    try:
        make("erm")(torch.empty(0, CLASSES), torch.empty(0, dtype=torch.long))
    except ValueError as error:
        results["all are empty"] = str(error)
    part = slice(6 * rank, 6 * rank + 6)
    results["sampled features"] = sampled(slice(0, 3) if rank == 0 else slice(3, 5), part)
    _, *batch = next(iter(batches()))
    results["by itself"] = loss_and_gradients(make("irm").eval(), *(one[part] for one in batch))
    return results


@pytest.fixture(scope="module")
def processes():
    """What each of two processes saw."""
    return run(2, work)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_and_its_gradient_are_those_of_the_union(processes, name):
    wanted, state = alone(name)
    for rank, results in enumerate(processes):
        found, state_here = results[name]
        for (loss, of_features, of_head, metrics), step in zip(found, wanted, strict=True):
            torch.testing.assert_close(loss, step[0], rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(of_features, step[1][rank], rtol=1e-6, atol=1e-10)
            torch.testing.assert_close(of_head, step[2], rtol=1e-6, atol=1e-10)
            torch.testing.assert_close(metrics, step[3], rtol=1e-6, atol=1e-10)
        assert state_here.keys() == state.keys()
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(state_here[key], value, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_what_an_objective_learns_is_the_same_in_all_processes_to_the_last_bit(processes, name):
    first, second = (results[name][1] for results in processes)
    for key, value in first.items():
        assert str(value) == str(second[key])
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, second[key])


SENTENCES = {
    "no contexts": "GroupDRO needs environments",
    "a wrong label": "Target 9 is out of bounds",
    "a NaN": r"features\[0, 0\] is nan; all values must be finite",
}


@pytest.mark.parametrize("change", SENTENCES)
def test_what_one_process_cannot_use_stops_all_with_a_sentence(processes, change):
    (said, unchanged), (said_there, unchanged_there) = (results["asked"][change] for results in processes)
    assert said == "process 1 cannot use its batch and says why; nothing was updated in this one."
    assert re.match(SENTENCES[change], said_there)
    assert unchanged
    assert unchanged_there
    assert [results["asked"]["nothing else"] for results in processes] == [("nothing", False)] * 2


def test_a_batch_that_is_empty_everywhere_is_refused(processes):
    for results in processes:
        assert results["all are empty"] == "all processes together have a batch of 0; give at least 1 samples."


def test_a_process_may_show_the_features_of_some_samples_only(processes):
    loss, gradient = sampled(slice(0, 5))
    for results in processes:
        torch.testing.assert_close(results["sampled features"][0], loss)
    torch.testing.assert_close(sum(results["sampled features"][1] for results in processes) / 2, gradient)


def test_in_eval_mode_each_process_is_by_itself(processes):
    _, *batch = next(iter(batches()))
    for rank, results in enumerate(processes):
        part = [one[6 * rank : 6 * rank + 6] for one in batch]
        torch.testing.assert_close(results["by itself"], loss_and_gradients(make("irm").eval(), *part))
