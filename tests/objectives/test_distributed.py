"""Every objective over two gloo processes against one process on the union of their batches."""

import torch
import torch.distributed as dist

from pfdl.objectives.penalties import Penalty
from pfdl.objectives.registry import _known, make_objective, register_objective
from pfdl.objectives.weightings import DWR
from tests.states import ProcessTester, each

P = 5
CLASSES = 3
CONTEXTS = 2
SIZES = [(7, 5), (6, 6), (12, 0), (4, 8)]
"""Rows of each process, step by step: uneven, even, none in one of them."""


class Spread(Penalty):
    """Penalise the largest distance between two features: somebody's own penalty, which knows of no
    processes.
    """

    def forward(self, features):
        return (features[:, None] - features[None]).square().sum(2).max()


register_objective("spread", Spread)
SETTINGS = {"irm": {"weight": 9.0, "anneal": 2}, "pfdl": {"hidden": 4}}
JOINED = ("irm+pfdl", "groupdro+coral", "balance+dwr", "stablenet+vrex")
NAMES = [
    *(name for name, made_by in _known().items() if "pfdl_lab" not in made_by.__module__),
    *JOINED,
]


def make(name):
    torch.manual_seed(7)
    settings = {part: SETTINGS[part] for part in name.split("+") if part in SETTINGS}
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
    weights = torch.linspace(-1, 1, P * CLASSES, dtype=torch.float64).sin()
    return weights.view(P, CLASSES).requires_grad_()


def loss_and_gradients(objective, features, labels, environments):
    leaf = features.clone().requires_grad_()
    weight = head()
    # As indices any whole numbers will do: those of the contexts, for which DWR has a weight each.
    loss = objective(
        leaf @ weight, labels, features=leaf, environments=environments, indices=environments
    )
    loss.backward()
    return loss.detach(), leaf.grad, weight.grad


def sampled(rows, part=slice(None)):
    """The loss where an objective gets the features of some samples only, each process of another
    number.
    """
    _, features, labels, _ = next(batches())
    leaf = features.clone().requires_grad_()
    loss = make("pfdl+spread")((leaf @ head())[part], labels[part], features=leaf[rows])
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient


TOLERANCES = {"losses": (1e-9, 1e-12)}
SENTENCES = {
    "no contexts": "GroupDRO needs environments",
    "a wrong label": "Target 9 is out of bounds",
    "a NaN": r"features\[0, 0\] is nan; all values must be finite",
}
CALLS = {
    "no contexts": ("groupdro", {"environments": None}),
    "a wrong label": ("erm", {"labels": torch.tensor([0, 1, 2, 9])}),
    "a NaN": ("pfdl+coral", {"features": torch.full((4, P), torch.nan)}),
    "none": ("stablenet", {}),
}


class TestProcesses(ProcessTester):
    world = 2
    least = 1
    culprit = 1
    names = NAMES
    name = each(NAMES)
    tolerances = TOLERANCES
    sentences = SENTENCES

    def train(self, name, rank=None):
        objective = make(name)
        learnt = {"losses": [], "gradients": [], "metrics": []}
        for step, (sizes, *batch) in enumerate(batches()):
            torch.manual_seed(step + 100 * (rank or 0))
            if rank is None:
                # As the first process tells the others to draw
                torch.manual_seed(int(torch.randint(2**31, ())))
                loss, *gradients = loss_and_gradients(objective, *batch)
            else:
                own = [torch.split(tensor, sizes)[rank] for tensor in batch]
                loss, *gradients = loss_and_gradients(objective, *own)
                gradients = self.average(*gradients)
            learnt["losses"].append(loss)
            learnt["gradients"].append(gradients)
            learnt["metrics"].append(objective.metrics())
        return {**learnt, "state": objective.state_dict()}

    def average(self, of_features, of_head):
        """Return the gradients of all processes, averaged as DistributedDataParallel does."""
        everyone = [None] * self.world
        dist.all_gather_object(everyone, (of_features, of_head))
        rows, heads = zip(*everyone, strict=True)
        return [torch.cat(rows) / self.world, sum(heads) / self.world]

    def call(self, problem, is_culprit):
        if problem == "empty":
            return make("erm"), {
                "logits": torch.empty(0, CLASSES),
                "labels": torch.empty(0, dtype=torch.long),
            }
        name, changes = CALLS[problem]
        batch = {"logits": torch.ones(4, CLASSES), "labels": torch.tensor([0, 1, 2, 0])}
        batch |= {"features": torch.eye(4, P), "environments": torch.tensor([0, 1, 0, 1])}
        if is_culprit:
            batch |= changes
        return make(name), batch

    def evaluate(self, rank):
        _, *batch = next(batches())
        own = [tensor[6 * rank : 6 * rank + 6] for tensor in batch]
        return loss_and_gradients(make("irm").eval(), *own)

    def more(self, rank):
        rows = [slice(0, 3), slice(3, 5)]
        return {"sampled": sampled(rows[rank], slice(6 * rank, 6 * rank + 6))}

    def test_a_process_may_show_the_features_of_some_samples_only(self, processes):
        loss, gradient = sampled(slice(0, 5))
        gradients = []
        for process in processes:
            own_loss, own_gradient = process["sampled"]
            torch.testing.assert_close(own_loss, loss)
            gradients.append(own_gradient)
        torch.testing.assert_close(sum(gradients) / 2, gradient)
