"""How much each method learns beside the model, at 10^3 to 10^7 training samples: parameters and
bytes.

The paper argues against reweighting that a weight per training sample grows with their number n.
PFDL's network g does not. DWR as published, on all rows at once, does; CNBB and StableNet, which
see one batch at a time, do not. Bytes count the parameters, the state of their optimiser and
whatever is remembered between batches, as the library keeps them; nothing of the model itself, and
no gradients.

    python lab/pages/parameters.py             # prints the table, writes
    docs/results/parameters.csv
"""

from __future__ import annotations

from argparse import ArgumentParser
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

import pfdl
from pfdl.objectives.weightings import StableNet
from pfdl_lab.report.markdown import markdown_table

FEATURES, HIDDEN, BATCH = 2048, 256, 64
SIZES = [10**exponent for exponent in range(3, 8)]
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "parameters.csv"
Learnt = tuple[list[Tensor], list[Tensor]]
"""Parameters, and what is kept beside them."""


def learnt_weights(n: int, optimizer: type[torch.optim.Optimizer], **settings: float) -> Learnt:
    """Return one weight for each of n samples, and what its optimiser keeps."""
    weights = torch.ones(n, requires_grad=True)
    weights.grad = torch.zeros(n)
    made = optimizer([weights], **settings)
    made.step()
    return [weights], list(made.state[weights].values())


def of_pfdl(n: int) -> Learnt:
    penalty = pfdl.PartialDecorrelation(FEATURES, hidden=HIDDEN)
    penalty(torch.randn(4, FEATURES))
    return list(penalty.parameters()), [
        one for state in penalty.optimizer.state.values() for one in state.values()
    ]


def of_stablenet(n: int) -> Learnt:
    parameters, kept = learnt_weights(BATCH, torch.optim.SGD, lr=1.0, momentum=0.9)
    weighting = StableNet(steps=0)
    weighting(torch.randn(BATCH, FEATURES))
    return parameters, [*kept, *weighting.buffers()]


METHODS = {
    "PFDL": of_pfdl,
    "DWR, all samples": partial(learnt_weights, optimizer=torch.optim.RMSprop, lr=0.005),
    "CNBB, one batch": lambda n: learnt_weights(BATCH, torch.optim.Adam, lr=1e-3),
    "StableNet, one batch and a memory of one": of_stablenet,
}


def measure() -> pd.DataFrame:
    """Return one row per method and size."""
    torch.manual_seed(0)
    rows = []
    for name, learnt in METHODS.items():
        for n in SIZES:
            parameters, kept = learnt(n)
            numbers = (
                sum(one.numel() for one in parameters),
                sum(one.nbytes for one in (*parameters, *kept)),
            )
            rows.append((name, n, *numbers))
    return pd.DataFrame(rows, columns=["method", "n", "parameters", "bytes"])


def readable(number: int) -> str:
    for limit, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= limit:
            return f"{number / limit:.1f} {unit}"
    return f"{number} B"


def markdown(measured: pd.DataFrame) -> str:
    """Return the table of docs/results/parameters.md: one line per method, one column per n."""
    cells = measured["parameters"].map("{:,}".format) + " (" + measured["bytes"].map(readable) + ")"
    lines = [[name, *cells[part.index]] for name, part in measured.groupby("method", sort=False)]
    return markdown_table(
        ["learnt beside the model", *(f"n = 10^{len(str(n)) - 1}" for n in SIZES)], lines
    )


if __name__ == "__main__":
    ArgumentParser(description=__doc__).parse_args()
    found = measure()
    print(markdown(found))
    found.to_csv(RESULTS, index=False, lineterminator="\n")
