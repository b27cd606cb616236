"""Every objective over two gloo processes against one process on the union of their batches."""

import re

import pytest
import torch
import torch.distributed as dist

from tests.objectives.distributed_worker import NAMES, alone, batches, loss_and_gradients, main, make, sampled
from tests.processes import run

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="gloo is not available")


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What each of two processes saw."""
    folder = tmp_path_factory.mktemp("objectives")
    run(2, main, folder)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_and_its_gradient_are_those_of_the_union(processes, name):
    wanted, state = alone(name)
    for rank, results in enumerate(processes):
        found, state_here = results[name]
        for (loss, of_features, of_head, metrics), step in zip(found, wanted, strict=True):
            torch.testing.assert_close(loss, step[0], rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(of_features, step[1][rank], rtol=1e-6, atol=1e-10)
            torch.testing.assert_close(of_head, step[2], rtol=1e-6, atol=1e-10)
            torch.testing.assert_close(metrics, step[3], rtol=1e-6, atol=1e-10)
        assert state_here.keys() == state.keys()
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(state_here[key], value, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_what_an_objective_learns_is_the_same_in_all_processes_to_the_last_bit(processes, name):
    first, second = (results[name][1] for results in processes)
    for key, value in first.items():
        assert str(value) == str(second[key])
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, second[key])


SENTENCES = {
    "no contexts": "GroupDRO needs environments",
    "a wrong label": "Target 9 is out of bounds",
    "a NaN": r"features\[0, 0\] is nan; all values must be finite",
}


@pytest.mark.parametrize("change", SENTENCES)
def test_what_one_process_cannot_use_stops_all_with_a_sentence(processes, change):
    (said, unchanged), (said_there, unchanged_there) = (results["asked"][change] for results in processes)
    assert said == "process 1 cannot use its batch and says why; nothing was updated in this one."
    assert re.match(SENTENCES[change], said_there)
    assert unchanged
    assert unchanged_there
    assert [results["asked"]["nothing else"] for results in processes] == [("nothing", False)] * 2


def test_a_batch_that_is_empty_everywhere_is_refused(processes):
    for results in processes:
        assert results["all are empty"] == "all processes together have a batch of 0; give at least 1 samples."


def test_a_process_may_show_the_features_of_some_samples_only(processes):
    loss, gradient = sampled(slice(0, 5))
    for results in processes:
        torch.testing.assert_close(results["sampled features"][0], loss)
    torch.testing.assert_close(sum(results["sampled features"][1] for results in processes) / 2, gradient)


def test_in_eval_mode_each_process_is_by_itself(processes):
    _, *batch = next(iter(batches()))
    for rank, results in enumerate(processes):
        part = [one[6 * rank : 6 * rank + 6] for one in batch]
        torch.testing.assert_close(results["by itself"], loss_and_gradients(make("irm").eval(), *part))
