"""Contexts that nobody labelled: infer them, balance them, judge them."""

from pfdl.contexts.balancing import ContextSampler, context_sampler, context_weights
from pfdl.contexts.confirmation import Trial
from pfdl.contexts.inference import InferredContexts, find_contexts, infer_contexts
from pfdl.contexts.quality import (
    GroupAccuracy,
    GroupReport,
    choose_by_worst_group,
    group_accuracy,
    group_report,
    worst_group_accuracy,
)
from pfdl.contexts.refitting import Readout, refit_readout
from pfdl.contexts.statistics import ImageStatistics, image_statistics

__all__ = [
    "ContextSampler",
    "GroupAccuracy",
    "GroupReport",
    "ImageStatistics",
    "InferredContexts",
    "Readout",
    "Trial",
    "choose_by_worst_group",
    "context_sampler",
    "context_weights",
    "find_contexts",
    "group_accuracy",
    "group_report",
    "image_statistics",
    "infer_contexts",
    "refit_readout",
    "worst_group_accuracy",
]
