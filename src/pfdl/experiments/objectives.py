"""What the experiments ask of an objective by its name."""

from __future__ import annotations

from functools import cache

from pfdl.objectives import Objective, make_objective
from pfdl.objectives.weightings import Uniform


@cache
def _example(name: str) -> Objective:
    return make_objective(name, 2, num_classes=2, num_contexts=2)


def weighs_samples(name: str) -> bool:
    """Return whether an objective gives samples different weights.

    Example:
        >>> weighs_samples("dwr"), weighs_samples("irm+pfdl")
        (True, False)
    """
    return not isinstance(_example(name).weighting, Uniform)


def needs_contexts(name: str) -> bool:
    """Return whether an objective reads contexts.

    Example:
        >>> needs_contexts("groupdro"), needs_contexts("dwr")
        (True, False)
    """
    return _example(name).needs_contexts
