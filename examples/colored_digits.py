"""Objectives by name in an ordinary PyTorch loop: coloured digits whose colour turns against the label in the test.

Runs offline in some seconds on scikit-learn's small digits, which are not MNIST: `pfdl reproduce colored-mnist` is the
real experiment. With 1,200 images nothing here is a result; it shows how the pieces fit. The digits come from the
laboratory: `pip install ./lab`.
"""

from __future__ import annotations

import torch

from pfdl.objectives import make_objective
from pfdl_lab.colored_mnist.environments import ColoredMNIST
from pfdl_lab.colored_mnist.perceptron import MLP
from pfdl_lab.digits import bundled_digits

HIDDEN, STEPS, SAMPLE, DECAY = 32, 200, 128, 0.005
SETTINGS = {
    "erm": {},
    "irm": {"irm": {"weight": 10_000.0, "anneal": 60}},
    "irm+pfdl": {"irm": {"weight": 10_000.0, "anneal": 60}, "pfdl": {"weight": 1.0, "hidden": 16}},
}


def train(name: str, data: ColoredMNIST) -> MLP:
    torch.manual_seed(0)
    network = MLP(2 * 14 * 14, HIDDEN)
    objective = make_objective(name, num_features=HIDDEN, **SETTINGS[name])
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    images = torch.cat([environment.images for environment in data.train]).flatten(1)
    labels = torch.cat([environment.labels for environment in data.train])
    environments = torch.arange(2).repeat_interleave(len(labels) // 2)
    for _ in range(STEPS):
        logits, features = network(images)
        sample = torch.randperm(len(labels))[:SAMPLE]  # PFDL works on mini-batches, also where the rest takes all rows
        decay = DECAY * sum(parameter.square().sum() for parameter in network.parameters())
        decay = decay / objective.divisor()  # once IRM's weight acts, everything is divided by it
        loss = decay + objective(logits, labels, features=features[sample], environments=environments)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


@torch.no_grad()
def accuracy(network: MLP, environment) -> float:
    return ((network(environment.images.flatten(1)).logits > 0) == (environment.labels > 0.5)).float().mean().item()


def main() -> None:
    data = ColoredMNIST(bundled_digits(), seed=0)
    print(f"Digits: {data.source.name}")
    print("objective        held out, colour helps   test, colour misleads")
    for name in SETTINGS:
        network = train(name, data)
        helps = sum(accuracy(network, environment) for environment in data.held_out) / 2
        print(f"{name:<16} {helps:>22.1%}   {accuracy(network, data.test):>21.1%}")


if __name__ == "__main__":
    main()
