"""The parts of the backend that a GPU uses, run on a CPU: the flag that skips an update, and both steps at once."""

import copy

import pytest
import torch

from pfdl._internal.cuda_graphs import Captured
from pfdl.decorrelation.backend import StepBackend, _BothCaptured
from pfdl.decorrelation.distributed import Batch
from pfdl.decorrelation.finiteness import FiniteGuard, Unchecked, WaitingCheck
from pfdl.decorrelation.kernels import NoRows
from pfdl.decorrelation.steps import Algorithm, Steps
from tests.objectives.penalties.small_batches import batch, make, same, snapshot


def algorithm_of(penalty):
    return Algorithm(penalty.decomposition, penalty.optimizer, penalty.fit_steps, penalty.form, penalty.center)


@pytest.mark.parametrize("center", ["none", "batch"])
@pytest.mark.parametrize("sharing", ["strict", "indexed"])
def test_both_steps_at_once_are_the_two_steps(sharing, center):
    penalty = make(sharing=sharing, center=center)
    twin = copy.deepcopy(penalty)
    u, v = batch().requires_grad_(), batch().requires_grad_()

    def steps(of, features):
        kernels = of.decomposition.backend(features.device, len(features))
        return Steps(algorithm_of(of), features, Batch(len(features)), kernels, Unchecked())

    together, apart = _BothCaptured(steps(penalty, u), Captured()), steps(twin, v)
    for found, wanted in zip(together.fit(), apart.fit(), strict=True):
        assert torch.equal(found, wanted)
    found, wanted = together.penalise(3.0), apart.penalise(3.0)
    assert torch.equal(found.loss, wanted.loss)
    assert torch.equal(found.sums, wanted.sums)
    found.penalty.backward()
    wanted.penalty.backward()
    assert torch.equal(u.grad, v.grad)
    assert same(snapshot(penalty), snapshot(twin))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e10, 1e20])
def test_the_guard_skips_an_update_and_reports_it_later(value, monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    penalty, guard = make(), FiniteGuard()
    before = snapshot(penalty)

    def fit(u):
        kernels = penalty.decomposition.backend(u.device, len(u))
        return Steps(algorithm_of(penalty), u, Batch(len(u)), kernels, guard).fit()

    bad = batch()
    bad[3, 4] = value
    fit(bad)
    assert same(before, snapshot(penalty))
    with pytest.raises(ValueError, match="That batch did not update g"):
        guard.raise_if_seen()
    guard.raise_if_seen()  # once only
    assert fit(batch()).unexplained.isfinite().all()
    assert not same(before, snapshot(penalty))
    assert all(moment.isfinite().all() for state in penalty.optimizer.state.values() for moment in state.values())


def test_what_keeps_updates_finite_depends_on_the_device_and_the_optimiser():
    backend, cpu, cuda = StepBackend(), torch.device("cpu"), torch.device("cuda")
    default, other = algorithm_of(make()), algorithm_of(make(optimizer=torch.optim.SGD))
    assert isinstance(backend.finiteness(default, False, cuda), Unchecked)
    assert isinstance(backend.finiteness(default, True, cpu), WaitingCheck)
    assert isinstance(backend.finiteness(other, True, cuda), WaitingCheck)
    assert backend.finiteness(default, True, cuda) is backend.guard


def test_a_batch_without_rows_has_gradients_of_zero():
    g = make().decomposition
    u = torch.empty(0, 6)
    assert g.backend(u.device, 0) is NoRows
    net = g.one_hidden(u)
    predicted, base = NoRows.predict(net)
    assert predicted.shape == NoRows.feature_gradient(net, base, predicted).shape == (0, 6)
    found = NoRows.parameter_gradients(net, base, predicted)
    shapes = [value.shape for value in g.parameters()]
    assert [value.shape for value in found[:4]] == shapes
    assert not any(value.any() for value in found)
    plain = make(kernel="plain").decomposition
    assert g(u).shape == plain(u).shape == (0, 6)
