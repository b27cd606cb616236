"""How much each method learns beside the model, at 10^3 to 10^7 training samples: parameters and bytes.

The paper argues against reweighting that a weight per training sample grows with their number n. PFDL's network g does
not. DWR as published, on all rows at once, does; CNBB and StableNet, which see one batch at a time, do not. Bytes count
the parameters, the state of their optimiser and whatever is remembered between batches, as the library keeps them;
nothing of the model itself, and no gradients.

    python lab/pages/parameters.py             # prints the table, writes docs/results/parameters.csv
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import pfdl
from pfdl.objectives.weightings import StableNet
from pfdl_lab.report.markdown import markdown_table

FEATURES, HIDDEN, BATCH = 2048, 256, 64
SIZES = [10**exponent for exponent in range(3, 8)]
RESULTS = Path(__file__).parents[2] / "docs" / "results"


class Size(NamedTuple):
    """What a method learns."""

    parameters: int
    bytes: int


def count(parameters: list[Tensor], kept: list[Tensor]) -> Size:
    return Size(sum(value.numel() for value in parameters), sum(value.nbytes for value in [*parameters, *kept]))


def learnt_weights(n: int, optimizer: Callable[[list[Tensor]], torch.optim.Optimizer]) -> Size:
    """One weight for each of n samples, and what its optimiser keeps."""
    weights = torch.ones(n, requires_grad=True)
    weights.grad = torch.zeros(n)
    made = optimizer([weights])
    made.step()
    return count([weights], list(made.state[weights].values()))


def of_pfdl(n: int) -> Size:
    penalty = pfdl.PartialDecorrelation(FEATURES, hidden=HIDDEN)
    penalty(torch.randn(4, FEATURES))
    state = [value for values in penalty.optimizer.state.values() for value in values.values()]
    return count(list(penalty.parameters()), state)


def of_dwr(n: int) -> Size:
    return learnt_weights(n, lambda weights: torch.optim.RMSprop(weights, lr=0.005))


def of_cnbb(n: int) -> Size:
    return learnt_weights(BATCH, lambda weights: torch.optim.Adam(weights, lr=1e-3))


def of_stablenet(n: int) -> Size:
    size = learnt_weights(BATCH, lambda weights: torch.optim.SGD(weights, lr=1.0, momentum=0.9))
    weighting = StableNet(steps=0)
    weighting(torch.randn(BATCH, FEATURES))
    return Size(size.parameters, size.bytes + sum(value.nbytes for value in weighting.buffers()))


METHODS = {
    "PFDL": of_pfdl,
    "DWR, all samples": of_dwr,
    "CNBB, one batch": of_cnbb,
    "StableNet, one batch and a memory of one": of_stablenet,
}


def measure() -> list[dict[str, str | int]]:
    """One row per method and size."""
    torch.manual_seed(0)
    rows: list[dict[str, str | int]] = []
    for name, size_at in METHODS.items():
        for n in SIZES:
            size = size_at(n)
            rows.append({"method": name, "n": n, "parameters": size.parameters, "bytes": size.bytes})
    return rows


def readable(number: int) -> str:
    for limit, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= limit:
            return f"{number / limit:.1f} {unit}"
    return f"{number} B"


def markdown(rows: list[dict[str, str | int]]) -> str:
    """The table of docs/results/parameters.md, from the rows of the CSV: one line per method, one column per n."""
    lines = []
    for name in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == name]
        lines.append([name, *(f"{int(row['parameters']):,} ({readable(int(row['bytes']))})" for row in mine)])
    columns = ["learnt beside the model", *(f"n = 10^{len(str(n)) - 1}" for n in SIZES)]
    return markdown_table(columns, lines)


def main() -> None:
    rows = measure()
    print(markdown(rows))
    with (RESULTS / "parameters.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["method", "n", "parameters", "bytes"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
