"""Contexts without labels: infer them, balance them, judge them."""

from pfdl.contexts.balancing import choose_balance, context_sampler, context_weights
from pfdl.contexts.confirmation import Trial
from pfdl.contexts.finders import (
    Demands,
    FinderInfo,
    Proposal,
    list_contexts,
    register_contexts,
)
from pfdl.contexts.groups import Accuracies, GroupAccuracy
from pfdl.contexts.inference import InferredContexts, find_contexts, infer_contexts
from pfdl.contexts.network import find_by_eiil, find_by_jtt, find_by_spare, spread_contexts
from pfdl.contexts.positions import context_map, position_colours
from pfdl.contexts.quality import (
    GroupReport,
    Scores,
    group_accuracy,
    group_report,
    measure_scores,
    worst_group_accuracy,
)
from pfdl.contexts.refitting import Readout, refit_readout
from pfdl.contexts.statistics import image_statistics

__all__ = [
    "Accuracies",
    "Demands",
    "FinderInfo",
    "GroupAccuracy",
    "GroupReport",
    "InferredContexts",
    "Proposal",
    "Readout",
    "Scores",
    "Trial",
    "choose_balance",
    "context_map",
    "context_sampler",
    "context_weights",
    "find_by_eiil",
    "find_by_jtt",
    "find_by_spare",
    "find_contexts",
    "group_accuracy",
    "group_report",
    "image_statistics",
    "infer_contexts",
    "list_contexts",
    "measure_scores",
    "position_colours",
    "refit_readout",
    "register_contexts",
    "spread_contexts",
    "worst_group_accuracy",
]
