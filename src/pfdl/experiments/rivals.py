"""Settings at which the weightings of other authors act on batches of a network's features.

With their default settings DWR on a batch and StableNet leave the weights of 64 samples equal. The settings here were
found on made-up features by the effective sample size alone; which of a method's settings counts is chosen on
validation images of the training distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Rival(NamedTuple):
    """A weighting with settings: its name in tables, its objective, and the settings of the objective's parts."""

    title: str
    objective: str
    settings: Mapping[str, Mapping[str, Any]]


ACTING: dict[str, Rival] = {
    **{
        f"dwr-{rate:g}": Rival(f"DWR, learning rate {rate:g}", "dwr", {"dwr": {"learning_rate": rate}})
        for rate in (0.05, 0.1)
    },
    **{
        f"cnbb-{steps}": Rival(
            f"CNBB, {steps} steps, learning rate 0.1",
            "cnbb",
            {"cnbb": {"steps": steps, "learning_rate": 0.1, "solver": "adam"}},
        )
        for steps in (4, 20)
    },
    **{
        f"stablenet-{balance:g}": Rival(
            f"StableNet, λ = {balance:g}, learning rate 10",
            "stablenet",
            {"stablenet": {"balance": balance, "learning_rate": 10.0}},
        )
        for balance in (0.7, 0.07)
    },
    "stablenet-memory": Rival(
        "StableNet, λ = 0.7, learning rate 10, memory that fades by 1 % a batch",
        "stablenet",
        {"stablenet": {"balance": 0.7, "learning_rate": 10.0, "decay": 0.99}},
    ),
}
