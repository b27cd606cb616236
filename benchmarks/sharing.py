"""What knowing the index is worth: share of variance that a strict and an indexed g explain on
fresh data.

Features are p noisy, rectified, nonlinear mixtures of 8 latent factors, so that most of each can be
known from the others. g trains on fresh mini-batches of 128, as it does beside a model, with the
library's default optimiser.

    python benchmarks/sharing.py   # prints the table, writes evidence/sharing/results.csv.gz
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import torch
from rich.progress import track

import pfdl

RESULTS = Path(__file__).parents[1] / "evidence" / "sharing" / "results.csv.gz"
SIZES = [(64, 64), (256, 128)]
CHECKPOINTS = (100, 300)


def mixtures(p: int, rows: int, seed: int) -> torch.Tensor:
    world, draw = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    inner, outer = torch.randn(8, 64, generator=world), torch.randn(64, p, generator=world)
    factors = torch.randn(rows, 8, generator=draw)
    return torch.relu(
        torch.tanh(factors @ inner / 8**0.5) @ outer / 8
        + 0.3 * torch.randn(rows, p, generator=draw)
    )


def explained(p: int, h: int, sharing: str) -> list[float]:
    torch.manual_seed(0)
    penalty = pfdl.PartialDecorrelation(p, hidden=h, sharing=sharing)
    fresh = mixtures(p, 2000, seed=10**6)
    found = []
    for step in track(range(CHECKPOINTS[-1]), f"p = {p}, {sharing}", transient=True):
        penalty.fit_step(mixtures(p, 128, seed=step))
        if step + 1 in CHECKPOINTS:
            with torch.no_grad():
                unexplained = (fresh - penalty.decomposition(fresh)).square().mean(0).sum()
            found.append(1 - (unexplained / fresh.var(0).sum()).item())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    rows = [
        (p, h, sharing, *explained(p, h, sharing))
        for p, h in SIZES
        for sharing in ("strict", "indexed")
    ]
    table = pd.DataFrame(
        rows, columns=["p", "h", "g", *(f"after {steps} steps" for steps in CHECKPOINTS)]
    ).round(4)
    table.to_csv(settings.out, index=False, lineterminator="\n")
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
