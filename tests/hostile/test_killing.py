"""kill -9 at any instant costs at most the work in flight: the rerun ends with the same files, byte for byte."""

import json
import os

import pytest

from tests.hostile.killing_driver import COMMANDS, MOST_WRITES, RANDOM_KILLS, main
from tests.processes import Forked

PRODUCTS = {
    "train": {"manifest.csv", "metrics.csv", "model.safetensors", "resume.safetensors", "evaluations/test.json"},
    "train on inferred contexts": {"contexts.csv", "contexts.json", "model.safetensors"},
    "refit": {"model.safetensors", "config.json"},
    "split": {"manifest.csv", "manifest.json"},
    "nico": {"results.csv", "config.json"},
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the commands are forked")
def test_killed_in_its_writes_and_at_random_a_rerun_ends_with_the_same_files(tmp_path):
    """All commands in one process and in one test, so that it runs once."""
    done = Forked(main, tmp_path, *COMMANDS)
    assert done.finish() == 0, done.stderr
    reports = json.loads(done.stdout)
    assert reports.keys() == PRODUCTS.keys()
    for name, report in reports.items():
        assert report["different"] == {}, name
        assert PRODUCTS[name] <= set(report["files"])
        assert report["writes"] >= len(PRODUCTS[name])
        # A kill at random may come too late, after the end; one within a write never does.
        assert report["kills in writes"] <= report["killed"] <= report["kills in writes"] + RANDOM_KILLS
        assert report["kills in writes"] == report["writes"] or report["kills in writes"] >= MOST_WRITES // 2
