import copy
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from pfdl.objectives import make_objective
from pfdl_lab.colored_mnist.perceptron import MLP
from pfdl_lab.colored_mnist.stacked import FullBatchConfig, StackedMLPs, measure, train_restarts

CONFIG = FullBatchConfig(hidden=6, l2=0.01, lr=0.01, steps=9)
ROWS = 12


def problem(restarts=3, n=40, d=5):
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(restarts, n, d, generator=generator, dtype=torch.float64)
    labels = (inputs[:, :, 0] + 0.3 * torch.randn(restarts, n, generator=generator) > 0).double()
    # Each restart has its own environments: inferred contexts differ between restarts.
    return (
        inputs,
        labels,
        torch.stack([torch.arange(n) % 2, torch.arange(n) // 2 % 2, torch.arange(n) // 4 % 2]),
    )


def parts(objective, restarts=3, **settings):
    networks, objectives = [], []
    for seed in range(restarts):
        torch.manual_seed(seed)
        networks.append(MLP(5, CONFIG.hidden).double())
        objectives.append(make_objective(objective, CONFIG.hidden, **settings).double())
    return networks, objectives


def train_one(network, objective, inputs, labels, environments, weight_after, anneal):
    """One restart by itself, as IRM's code does it: an ordinary module, an ordinary Adam, the loss
    written out.
    """
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
def test_stacked_restarts_end_where_separate_ones_do(name, settings, weight, anneal):
    inputs, labels, environments = problem()
    networks, objectives = parts(name, **settings)
    alone, alone_objectives = copy.deepcopy(networks), parts(name, **settings)[1]
    stacked = StackedMLPs(networks)
    train_restarts(
        stacked, objectives, inputs, labels, environments, CONFIG, feature_rows=ROWS, row_seed=4
    )
    for r in range(3):
        train_one(
            alone[r], alone_objectives[r], inputs[r], labels[r], environments[r], weight, anneal
        )
        for key, parameter in alone[r].named_parameters():
            torch.testing.assert_close(stacked.parameters[key][r], parameter, rtol=1e-8, atol=1e-10)
        logits, features = stacked(inputs)
        torch.testing.assert_close(logits[r], alone[r](inputs[r]).logits)
        torch.testing.assert_close(features[r], alone[r](inputs[r]).features)


@pytest.mark.parametrize("steps", [1, 5])
def test_the_last_step_only_measures_and_the_given_networks_are_left_alone(steps):
    (networks, objectives), updates = parts("erm"), []
    stacked, before = StackedMLPs(networks), copy.deepcopy(networks[0].state_dict())
    config = replace(CONFIG, steps=steps)
    train_restarts(
        stacked, objectives, *problem(), config, feature_rows=ROWS, after_step=updates.append
    )
    assert updates == list(range(1, steps))
    torch.testing.assert_close(dict(networks[0].state_dict()), dict(before))
    moved = [not torch.equal(stacked.parameters[name][0], value) for name, value in before.items()]
    assert all(moved) if updates else not any(moved)


def test_measuring_gives_each_restarts_own_accuracy_and_risk():
    inputs, labels, _ = problem()
    networks, _ = parts("erm")
    accuracy, risk = measure(StackedMLPs(networks), inputs, labels)
    for r, network in enumerate(networks):
        logits = network(inputs[r]).logits
        right = sum(
            int((logit > 0) == (label == 1)) for logit, label in zip(logits, labels[r], strict=True)
        )
        assert accuracy[r] == pytest.approx(right / 40)
        assert risk[r] == pytest.approx(
            F.binary_cross_entropy_with_logits(logits, labels[r]).item()
        )


def test_the_network_starts_like_irms():
    torch.manual_seed(0)
    network = MLP(392, 390)
    assert all((layer.bias == 0).all() for layer in (network.first, network.second, network.last))
    bound = (6 / (392 + 390)) ** 0.5  # Xavier's uniform law
    assert 0.99 * bound < network.first.weight.abs().max() <= bound
