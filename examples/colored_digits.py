"""Objectives by name in an ordinary PyTorch loop: coloured digits whose colour turns against the
label in the test.

Runs offline in some seconds on scikit-learn's small digits, which are not MNIST: `pfdl reproduce
colored-mnist` is the real experiment. With 1,200 images nothing here is a result; it shows how the
pieces fit.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from pfdl.objectives import make_objective

HIDDEN, STEPS, SAMPLE, DECAY = 32, 200, 128, 0.005
SETTINGS = {
    "erm": {},
    "irm": {"irm": {"weight": 10_000.0, "anneal": 60}},
    "irm+pfdl": {"irm": {"weight": 10_000.0, "anneal": 60}, "pfdl": {"weight": 1.0, "hidden": 16}},
}
Environment = tuple[Tensor, Tensor]
"""Images and labels."""


def color(images: Tensor, digits: Tensor, flip: float) -> Environment:
    """Label digits by "below five", a quarter wrongly; the colour disagrees with that label as
    often as given.
    """
    labels = (digits < 5) ^ (torch.rand(len(digits)) < 0.25)
    is_red = labels ^ (torch.rand(len(digits)) < flip)
    return torch.cat([images * is_red[:, None], images * ~is_red[:, None]], 1), labels.float()


def train(name: str, environments: list[Environment]) -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(2 * 64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
    network = nn.Sequential(body, nn.Linear(HIDDEN, 1), nn.Flatten(0))
    objective = make_objective(name, num_features=HIDDEN, **SETTINGS[name])
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    images, labels = map(torch.cat, zip(*environments, strict=True))
    of_environment = torch.cat(
        [torch.full((len(one),), number) for number, (one, _) in enumerate(environments)]
    )
    for _ in range(STEPS):
        features = body(images)
        logits = network[1:](features)
        # PFDL works on mini-batches, also where the rest takes all rows
        sample = torch.randperm(len(labels))[:SAMPLE]
        decay = DECAY * sum(parameter.square().sum() for parameter in network.parameters())
        decay = decay / objective.divisor()  # once IRM's weight acts, everything is divided by it
        loss = decay + objective(
            logits, labels, features=features[sample], environments=of_environment
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


@torch.no_grad()
def accuracy(network: nn.Module, environment: Environment) -> float:
    images, labels = environment
    return ((network(images) > 0) == (labels > 0.5)).float().mean().item()


def main() -> None:
    torch.manual_seed(0)
    pixels, digits = map(torch.from_numpy, load_digits(return_X_y=True))
    order = torch.randperm(len(digits))
    sizes, flips = [600, 600, 300, 297], (0.2, 0.1, 0.15, 0.9)
    parts = zip(
        (pixels[order].float() / 16).split(sizes), digits[order].split(sizes), flips, strict=True
    )
    *environments, held_out, test = (color(*part) for part in parts)
    print("objective        held out, colour helps   test, colour misleads")
    for name in SETTINGS:
        network = train(name, environments)
        print(f"{name:<16} {accuracy(network, held_out):>22.1%}   {accuracy(network, test):>21.1%}")


if __name__ == "__main__":
    main()
