"""kill -9 at any instant costs at most the work in flight: the rerun ends with the same files, byte
for byte.
"""

import os

import pytest

from tests.hostile.killing_driver import (
    check_reruns,
    main,
    refit,
    split,
    sweep,
    train,
    train_on_inferred_contexts,
)

PRODUCTS = {
    train: {
        "manifest.csv",
        "metrics.csv",
        "model.safetensors",
        "resume.safetensors",
        "evaluations/test.json",
    },
    train_on_inferred_contexts: {"contexts.csv", "contexts.json", "model.safetensors"},
    refit: {"model.safetensors", "config.json"},
    sweep: {"study.log", "results.csv", "chosen.json", "splits/seed-0.csv"},
    split: {"manifest.csv", "manifest.json"},
}


def kill_all():
    main(*PRODUCTS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the commands are forked")
def test_killed_in_its_writes_and_at_random_a_rerun_ends_with_the_same_files(tmp_path):
    """All commands in one process and in one test, so that it runs once."""
    check_reruns(
        kill_all, {command.__name__: files for command, files in PRODUCTS.items()}, tmp_path
    )
