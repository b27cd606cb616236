import copy
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from pfdl.objectives import make_objective
from pfdl_lab.colored_mnist.perceptron import MLP
from pfdl_lab.colored_mnist.training import FullBatchConfig, measure, train

CONFIG = FullBatchConfig(hidden=6, l2=0.01, lr=0.01, steps=9)
ROWS = 12


def problem(n=40, d=5):
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(n, d, generator=generator, dtype=torch.float64)
    labels = (inputs[:, 0] + 0.3 * torch.randn(n, generator=generator) > 0).double()
    return inputs, labels, torch.arange(n) // 2 % 2


def parts(objective, **settings):
    torch.manual_seed(0)
    network = MLP(5, CONFIG.hidden).double()
    return network, make_objective(objective, CONFIG.hidden, **settings).double()


def train_naively(network, objective, inputs, labels, environments, weight_after, anneal):
    """As IRM's code does it: the loss written out."""
    optimizer = torch.optim.Adam(network.parameters(), lr=CONFIG.lr)
    generator = torch.Generator().manual_seed(4)
    for step in range(CONFIG.steps - 1):
        rows = torch.randperm(len(inputs), generator=generator)[:ROWS]
        logits, features = network(inputs)
        risk = torch.stack(
            [
                F.binary_cross_entropy_with_logits(
                    logits[environments == e], labels[environments == e]
                )
                for e in (0, 1)
            ]
        ).mean()
        loss = risk + CONFIG.l2 * sum(parameter.norm().pow(2) for parameter in network.parameters())
        divisor = weight_after if step >= anneal else 1.0
        for penalty in objective.penalties:
            values = {
                "features": features[rows],
                "logits": logits,
                "labels": labels,
                "environments": environments,
            }
            loss = loss + penalty(*(values[name] for name in penalty.needs))
        optimizer.zero_grad()
        (loss / divisor).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("name", "settings", "weight", "anneal"),
    [
        ("erm", {}, 1.0, 0),
        ("irm", {"irm": {"weight": 50.0, "anneal": 3}}, 50.0, 3),
        ("vrex", {"vrex": {"weight": 20.0, "anneal": 2}}, 20.0, 2),
        (
            "irm+pfdl",
            {"irm": {"weight": 50.0, "anneal": 3}, "pfdl": {"weight": 10.0, "hidden": 4}},
            50.0,
            3,
        ),
        ("pfdl", {"pfdl": {"weight": 10.0, "hidden": 4, "sharing": "indexed"}}, 1.0, 0),
    ],
)
def test_a_training_ends_where_irms_code_does(name, settings, weight, anneal):
    network, objective = parts(name, **settings)
    naive, naive_objective = parts(name, **settings)
    train(network, objective, *problem(), CONFIG, feature_rows=ROWS, row_seed=4)
    train_naively(naive, naive_objective, *problem(), weight, anneal)
    for ours, theirs in zip(network.parameters(), naive.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("steps", [1, 5])
def test_the_last_step_only_measures(steps):
    network, objective = parts("erm")
    updates = []
    before = copy.deepcopy(list(network.parameters()))
    config = replace(CONFIG, steps=steps)
    train(network, objective, *problem(), config, feature_rows=ROWS, after_step=updates.append)
    assert updates == list(range(1, steps))
    moved = [not torch.equal(*pair) for pair in zip(network.parameters(), before, strict=True)]
    assert all(moved) if updates else not any(moved)


def test_measuring_gives_accuracy_and_risk():
    inputs, labels, _ = problem()
    network, _ = parts("erm")
    accuracy, risk = measure(network, inputs, labels)
    logits = network(inputs).logits
    right = sum(int((one > 0) == (label == 1)) for one, label in zip(logits, labels, strict=True))
    assert accuracy == pytest.approx(100 * right / 40)
    assert risk == pytest.approx(F.binary_cross_entropy_with_logits(logits, labels).item())


def test_the_network_starts_like_irms():
    torch.manual_seed(0)
    network = MLP(392, 390)
    assert all((layer.bias == 0).all() for layer in (network.first, network.second, network.last))
    bound = (6 / (392 + 390)) ** 0.5  # Xavier's uniform law
    assert 0.99 * bound < network.first.weight.abs().max() <= bound
