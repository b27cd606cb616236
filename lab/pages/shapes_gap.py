"""How strongly the backgrounds of the shapes mislead: plain training (ERM) at 5:1, tested at the
seven ratios.

The generator's constants were chosen by this measurement, that is by the behaviour of ERM, and by
nothing else.

    python lab/pages/shapes_gap.py                   # accuracy at the seven ratios
    python lab/pages/shapes_gap.py --strength 0      # backgrounds that tell nothing: the gap must
    vanish
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfdl.data import ContextImages, Manifest, Shapes, make_split
from pfdl.data.proportions import TEST_RATIOS
from pfdl.vision.backbones import make_backbone


def to_input(images: Tensor) -> Tensor:
    """Return images as numbers from -1 to 1."""
    return images.float() / 127.5 - 1


def train(dataset: ContextImages, classes: int, epochs: int, seed: int) -> nn.Module:
    """Train a small network on one set."""
    torch.manual_seed(seed)
    network = make_backbone("small", classes)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3, weight_decay=1e-4)
    steps = epochs * (len(dataset) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(dataset))[: len(dataset) // 64 * 64].split(64):
            optimizer.zero_grad()
            cross_entropy(network(to_input(dataset.images[rows])), dataset.labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return network.eval()


@torch.no_grad()
def accuracy(network: nn.Module, dataset: ContextImages) -> float:
    """Return the accuracy in percent."""
    predicted = torch.cat(
        [network(to_input(images)).argmax(1) for images in dataset.images.split(256)]
    )
    return 100 * (predicted == dataset.labels).double().mean().item()


def measure(source: Shapes, epochs: int, seed: int) -> dict[str, float]:
    """Return the accuracy in percent on the training set and on the seven test sets of one
    split.
    """
    manifest: Manifest = make_split(source, ratio="5:1", seed=seed)
    names = ["train", *(f"test-{ratio}" for ratio in TEST_RATIOS)]
    sets = {name: ContextImages(source, manifest, name) for name in names}
    network = train(sets["train"], len(manifest.classes), epochs, seed)
    return {name: accuracy(network, dataset) for name, dataset in sets.items()}


def main() -> None:
    """Measure some splits and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, default=5, help="splits, each with its own dominant contexts"
    )
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--per-cell", type=int, default=100)
    parser.add_argument("--strength", type=float, default=1.0)
    arguments = parser.parse_args()
    source = Shapes(arguments.per_cell, strength=arguments.strength)
    results = []
    for seed in range(arguments.seeds):
        results.append(measure(source, arguments.epochs, seed))
        print(
            f"seed {seed}:",
            "  ".join(f"{name} {value:.1f}" for name, value in results[-1].items()),
            flush=True,
        )
    print(
        "mean:  ",
        "  ".join(f"{name} {statistics.mean(r[name] for r in results):.1f}" for name in results[0]),
    )
    gaps = [result["test-5:1"] - result["test-1:5"] for result in results]
    print(f"points lost from 5:1 to 1:5: {statistics.mean(gaps):.1f} (smallest {min(gaps):.1f})")


if __name__ == "__main__":
    main()
