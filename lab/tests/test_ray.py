"""Grids on a Ray cluster of two machines: the same table as here, whatever is killed meanwhile."""

import json
import os
from pathlib import Path

import pandas as pd
import pytest
from lab.tests.ray_tasks import dies, dies_once, fails

from pfdl._internal.workers import WorkerLostError
from pfdl_lab import workers
from pfdl_lab.grid import run_grid
from pfdl_lab.workers import Execution

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    """Two machines of one core each, one with a pretended GPU, for all tests of this file, as every
    start is slow.
    """
    from ray.cluster_utils import Cluster

    machine = {"num_cpus": 1, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        root = str(Path(__file__).parents[2])
        patch.setenv("SLURM_NTASKS", "2")  # as if srun had started Ray
        patch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
        cluster = Cluster(initialize_head=True, connect=True, head_node_args=machine)
        cluster.add_node(**machine, num_gpus=1)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_killed_worker_costs_nothing(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("attempts").mkdir()
    grid = [{"number": number, "folder": "attempts"} for number in range(6)]
    found = run_grid(dies_once, grid, tmp_path / "ray", Execution(backend="ray"))
    attempts = [
        (path.name.partition(".")[0], json.loads(path.read_text()))
        for path in Path("attempts").iterdir()
    ]
    assert sorted(number for number, _ in attempts) == list("0123345")
    # So that relative paths hold
    assert {facts["folder"] for _, facts in attempts} == {str(tmp_path)}
    assert not any(facts["slurm"] for _, facts in attempts)  # each task trains by itself
    assert {facts["node"] for _, facts in attempts} == {node["NodeID"] for node in ray.nodes()}
    expected = run_grid(dies_once, grid, tmp_path / "joblib")
    pd.testing.assert_frame_equal(found, expected)


def test_an_error_of_a_task_is_raised_as_it_was(cluster, tmp_path):
    with pytest.raises(ValueError, match=r"^3 is no number$"):
        run_grid(fails, [{"number": 3}], tmp_path, Execution(backend="ray"))
    assert list(tmp_path.iterdir()) == []
    assert ray.is_initialized()  # who started it ends it


def test_a_task_on_a_tenth_of_a_gpu_that_is_lost_for_good_gets_a_sentence(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(workers, "RETRIES", 0)
    tenth = Execution(backend="ray", gpus_per_task=0.1)
    with pytest.raises(WorkerLostError, match=r"a task was lost on the cluster 1 times"):
        run_grid(dies, [{"folder": str(tmp_path)}], tmp_path, tenth)
    assert (tmp_path / "gpus").read_text() == "0"


@pytest.mark.parametrize(
    ("address", "started"),
    [("", {"address": "local", "num_cpus": 3}), ("head:6379", {"address": None, "num_cpus": None})],
)
def test_ray_is_the_cluster_that_is_named_or_a_local_one(monkeypatch, address, started):
    def note(**options):
        assert {name: options.get(name) for name in started} == started
        raise InterruptedError  # nothing needs to run

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", note)
    with pytest.raises(InterruptedError):
        list(Execution(3, backend="ray").run(dict, [{"number": 1}]))
