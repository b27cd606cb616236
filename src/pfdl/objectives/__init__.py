"""What is minimised: a weighting of the samples plus penalties, and the registry of names."""

from pfdl.objectives.objective import Objective
from pfdl.objectives.registry import (
    ObjectiveInfo,
    check_objective_name,
    list_objectives,
    make_objective,
    register_objective,
)
from pfdl.parts import DataShape, Part

__all__ = [
    "DataShape",
    "Objective",
    "ObjectiveInfo",
    "Part",
    "check_objective_name",
    "list_objectives",
    "make_objective",
    "register_objective",
]
