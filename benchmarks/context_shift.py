"""What the penalty does to a small network whose easy inputs show the context and whose hard ones show the object.

python benchmarks/context_shift.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import pfdl

CLASSES, OWN_INPUTS, CONTEXT_INPUTS, WIDTH = 4, 12, 12, 32
TRAIN_AGREEMENT = 0.9
TESTS = {"90 %": TRAIN_AGREEMENT, "25 %": 1 / CLASSES, "0 %": 0.0}
METHODS: dict[str, Callable[[], pfdl.PartialDecorrelation | None]] = {
    "ERM": lambda: None,
    "PFDL as published": lambda: pfdl.PartialDecorrelation(WIDTH, hidden=32, sharing="strict"),
    "PFDL, indexed": lambda: pfdl.PartialDecorrelation(WIDTH, hidden=32),
    "PFDL, indexed, centred": lambda: pfdl.PartialDecorrelation(WIDTH, hidden=32, center="batch"),
}


def make_contexts(rows: int, agreement: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw objects in contexts: inputs (rows, 24), labels and contexts.

    Half of the inputs come from the object and are hard to read (two noisy clusters a class), half from the context
    and are easy. Each class has its own typical context, in which it stands with probability ``agreement``.
    """
    world = torch.Generator().manual_seed(0)
    objects = torch.randn(CLASSES, 2, OWN_INPUTS, generator=world)
    contexts = torch.randn(CLASSES, CONTEXT_INPUTS, generator=world)
    draw = torch.Generator().manual_seed(seed)
    label = torch.randint(CLASSES, (rows,), generator=draw)
    other = (label + torch.randint(1, CLASSES, (rows,), generator=draw)) % CLASSES
    context = torch.where(torch.rand(rows, generator=draw) < agreement, label, other)
    cluster = torch.randint(2, (rows,), generator=draw)
    own = objects[label, cluster] + 1.5 * torch.randn(rows, OWN_INPUTS, generator=draw)
    around = contexts[context] + 0.7 * torch.randn(rows, CONTEXT_INPUTS, generator=draw)
    return torch.cat([own, around], dim=1), label, context


def train(
    make_penalty: Callable[[], pfdl.PartialDecorrelation | None], seed: int, rows: int, epochs: int
) -> list[float]:
    """Train one network: its accuracy in each test, and R² of a feature from the others; paired over methods."""
    torch.manual_seed(seed)
    decorrelate = make_penalty()
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Linear(OWN_INPUTS + CONTEXT_INPUTS, 64), nn.ReLU(), nn.Linear(64, WIDTH), nn.ReLU())
    head = nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=2e-3)
    x, y, _ = make_contexts(rows, TRAIN_AGREEMENT, seed)
    for epoch in range(epochs):
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(1000 * seed + epoch))
        for batch in torch.split(order, 128):
            features = body(x[batch])
            loss = F.cross_entropy(head(features), y[batch])
            if decorrelate is not None:
                loss = loss + decorrelate(features)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    figures = []
    with torch.no_grad():
        for number, agreement in enumerate(TESTS.values()):
            x, y, context = make_contexts(4000, agreement, seed=10**6 + 10 * seed + number)
            features = body(x)
            figures.append(100 * (head(features).argmax(1) == y).double().mean().item())
    r2 = torch.from_numpy(pfdl.diagnose(features, y, context).r2)
    return [*figures, float(r2.nanmedian())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # networks this small only wait for a second thread
    figures = {
        name: torch.tensor([train(penalty, seed, 4000, arguments.epochs) for seed in range(arguments.seeds)])
        for name, penalty in METHODS.items()
    }
    print(f"Accuracy (%) where objects stand in their class's usual context in … of cases; training: 90 %. "
          f"{arguments.seeds} paired seeds;\nin brackets the difference to ERM ± its standard error.\n")  # fmt: skip
    print(f"| | {' | '.join(TESTS)} | median R² of a feature |\n|---|{'---|' * (len(TESTS) + 1)}")
    for name, values in figures.items():
        cells = [f"{mean:.1f}" for mean in values.mean(0)[:-1]]
        if name != "ERM":
            paired = values - figures["ERM"]
            errors = paired.std(0) / arguments.seeds**0.5
            cells = [f"{cell} ({d:+.1f} ± {e:.1f})" for cell, d, e in zip(cells, paired.mean(0), errors, strict=False)]
        print(f"| {name} | {' | '.join(cells)} | {values.mean(0)[-1]:.2f} |")


if __name__ == "__main__":
    main()
