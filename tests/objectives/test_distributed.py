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
SETTINGS = {"irm": {"irm": {"weight": 9.0, "anneal": 2}}, "pfdl": {"pfdl": {"hidden": 4}}}
JOINED = ("irm+pfdl", "groupdro+coral", "balance+dwr", "stablenet+vrex")
NAMES = [
    *(name for name, made_by in _known().items() if "pfdl_lab" not in made_by.__module__),
    *JOINED,
]


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
    return (
        torch.linspace(-1, 1, P * CLASSES, dtype=torch.float64)
        .view(P, CLASSES)
        .sin()
        .requires_grad_()
    )


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
        losses = []
        gradients = []
        metrics = []
        for step, (sizes, *batch) in enumerate(batches()):
            torch.manual_seed(step + 100 * (rank or 0))
            if rank is None:
                # As the first process tells the others to draw
                torch.manual_seed(int(torch.randint(2**31, ())))
                loss, of_features, of_head = loss_and_gradients(objective, *batch)
            else:
                loss, *mine = loss_and_gradients(
                    objective, *(torch.split(one, sizes)[rank] for one in batch)
                )
                everyone = [None] * self.world
                dist.all_gather_object(everyone, mine)  # averaged as DistributedDataParallel does
                of_features = torch.cat([one for one, _ in everyone]) / self.world
                of_head = sum(one for _, one in everyone) / self.world
            losses.append(loss)
            gradients.append((of_features, of_head))
            metrics.append(objective.metrics())
        return {
            "losses": losses,
            "gradients": gradients,
            "metrics": metrics,
            "state": objective.state_dict(),
        }

    def call(self, problem, is_culprit):
        if problem == "empty":
            return make("erm"), {
                "logits": torch.empty(0, CLASSES),
                "labels": torch.empty(0, dtype=torch.long),
            }
        name, changes = CALLS[problem]
        batch = {"logits": torch.ones(4, CLASSES), "labels": torch.tensor([0, 1, 2, 0])}
        batch |= {"features": torch.eye(4, P), "environments": torch.tensor([0, 1, 0, 1])}
        return make(name), {**batch, **(changes if is_culprit else {})}

    def evaluate(self, rank):
        _, *batch = next(batches())
        return loss_and_gradients(
            make("irm").eval(), *(one[6 * rank : 6 * rank + 6] for one in batch)
        )

    def more(self, rank):
        return {"sampled": sampled((slice(0, 3), slice(3, 5))[rank], slice(6 * rank, 6 * rank + 6))}

    def test_a_process_may_show_the_features_of_some_samples_only(self, processes):
        loss, gradient = sampled(slice(0, 5))
        for process in processes:
            torch.testing.assert_close(process["sampled"][0], loss)
        torch.testing.assert_close(
            sum(process["sampled"][1] for process in processes) / 2, gradient
        )
