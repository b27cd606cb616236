"""What the experiments ask of an objective by its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pfdl.objectives import Objective, make_objective
from pfdl.objectives.weightings import Uniform


def make_example(name: str, settings: Mapping[str, Mapping[str, Any]]) -> Objective:
    """Build an objective for features of some width.

    Args:
        name: Its name.
        settings: The settings of its parts, by their names.

    Raises:
        ValueError: If the name or a setting cannot be used.
    """
    parts: dict[str, Any] = dict(settings)
    try:
        return make_objective(name, 2, num_classes=2, num_contexts=2, **parts)
    except TypeError as error:  # such as a word in place of a number
        raise ValueError(f"a setting of {name!r} cannot be used: {error}") from error


@cache
def _example(name: str) -> Objective:
    return make_example(name, {})


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
