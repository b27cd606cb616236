"""The methods of the paper's table on NICO, and the paper's own figures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pfdl.data.proportions import TEST_RATIOS

RATIOS = tuple(map(str, TEST_RATIOS))
RESNET = "resnet"
"""Stands for the ResNet of the run's config."""


@dataclass(frozen=True)
class ContextsRow:
    """One method.

    Args:
        key: Its name in results.
        title: Its name in tables.
        backbone: A backbone, or ``RESNET``.
        objective: What it is trained on.
        baseline: Key of the row with the same backbone and plain training; None for such a row itself.
        paper: The paper's accuracies in percent, on NICO, at ``RATIOS``; None where the paper has none.
        contexts: What the objective may know of contexts: ``"hidden"``, ``"known"`` or ``"inferred"``.
    """

    key: str
    title: str
    backbone: str
    objective: str
    baseline: str | None = None
    paper: tuple[float | None, ...] | None = None
    contexts: str = "hidden"

    def for_network(self, network: str) -> ContextsRow:
        """Return the row with the title that it has where another network stands in for the ResNet."""
        if network.startswith(RESNET):
            return self
        return replace(self, title=self.title.replace("ResNet", f"{network.capitalize()} network"))


ROWS = {
    row.key: row
    for row in (
        ContextsRow("cn", "CN (ERM)", "cn", "erm", None, (37.17, None, 37.80, 41.46, 42.50, 43.23, None)),
        ContextsRow("cn-bn", "CN+BN (ERM)", "cn-bn", "erm", None, (38.70, None, 39.60, 41.64, 42.00, 43.85, None)),
        ContextsRow("cnbb", "CNBB", "cn", "cnbb", "cn", (39.06, None, 39.60, 42.12, 43.33, 44.15, None)),
        # In the paper's source this row is commented out.
        ContextsRow("resnet", "ResNet (ERM)", RESNET, "erm", None, (39.79, 39.98, 40.54, 42.41, 43.21, 46.67, 44.73)),
        # The paper does not say on which network it ran DWR.
        ContextsRow("dwr", "ResNet, DWR", RESNET, "dwr", "resnet", (35.66, 35.61, 37.29, 40.37, 41.81, 43.08, 43.72)),
        ContextsRow("stablenet", "ResNet, StableNet", RESNET, "stablenet", "resnet"),
        ContextsRow(
            "pfdl",
            "ResNet, PFDL",
            RESNET,
            "pfdl",
            "resnet",
            (41.31, 41.41, 43.70, 47.46, 46.80, 49.29, 50.87),
        ),
        ContextsRow(
            "balance", "ResNet, balance of inferred contexts", RESNET, "balance", "resnet", contexts="inferred"
        ),
    )
}
