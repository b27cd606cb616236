"""Contexts without labels: infer them, balance them, judge them."""

from pfdl.contexts.balancing import ContextSampler, choose_balance, context_sampler, context_weights
from pfdl.contexts.confirmation import Trial
from pfdl.contexts.groups import Accuracies, GroupAccuracy
from pfdl.contexts.inference import InferredContexts, find_contexts, infer_contexts
from pfdl.contexts.network import find_by_eiil, find_by_jtt, find_by_spare, spread_contexts
from pfdl.contexts.quality import (
    GroupReport,
    Scores,
    group_accuracy,
    group_report,
    measure_scores,
    worst_group_accuracy,
)
from pfdl.contexts.refitting import Readout, refit_readout
from pfdl.contexts.statistics import ImageStatistics, image_statistics

__all__ = [
    "Accuracies",
    "ContextSampler",
    "GroupAccuracy",
    "GroupReport",
    "ImageStatistics",
    "InferredContexts",
    "Readout",
    "Scores",
    "Trial",
    "choose_balance",
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
    "measure_scores",
    "refit_readout",
    "spread_contexts",
    "worst_group_accuracy",
]
