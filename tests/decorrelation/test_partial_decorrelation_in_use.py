"""PFDL's term beside other things: moved, compiled, and given what it cannot use."""

import threading

import pytest
import torch
from torch import nn

from pfdl import PartialDecorrelation
from tests.decorrelation.small_batches import batch, make, same, snapshot


def test_moving_takes_the_optimiser_along():
    # not a strict g: some of its gradients are zero but for rounding, and Adam takes a whole step
    # by their sign
    moved = make(sharing="indexed")
    stayed = make(sharing="indexed").double()
    moved(batch())
    stayed(batch().double())
    moved.double()
    assert moved.optimizer.state
    for state in moved.optimizer.state.values():
        assert state["exp_avg"].dtype == torch.float64
        assert state["exp_avg_sq"].dtype == torch.float64
    moved(batch(seed=2).double())
    stayed(batch(seed=2).double())
    for a, b in zip(moved.parameters(), stayed.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_inside_a_compiled_training_step():
    eager = make()
    compiled = make()
    torch.manual_seed(2)
    backbone = nn.Linear(6, 6)

    def step(penalty, x):
        return penalty(torch.relu(backbone(x))) + 1

    wrapped = torch.compile(lambda x: step(compiled, x), backend="eager")
    for seed in range(3):
        torch.testing.assert_close(wrapped(batch(seed=seed)), step(eager, batch(seed=seed)))
    torch.testing.assert_close(snapshot(compiled), snapshot(eager))


def test_the_parameters_of_g_ask_for_no_gradient():
    decorrelate = make()
    decorrelate(batch())
    assert not any(parameter.requires_grad for parameter in decorrelate.parameters())


def test_a_model_optimiser_that_holds_g_does_not_move_it():
    decorrelate = make()
    optimizer = torch.optim.AdamW(decorrelate.parameters(), lr=1.0, weight_decay=1.0)
    u = batch().requires_grad_()
    decorrelate(u).backward()
    before = snapshot(decorrelate)
    optimizer.step()
    assert same(before, snapshot(decorrelate))


def non_finite(value):
    u = batch()
    u[3, 4] = value
    return u


@pytest.mark.parametrize(
    ("features", "error", "says"),
    [
        (torch.zeros(1, 6), ValueError, "batch of 1; a correlation needs at least 2"),
        (torch.zeros(0, 6), ValueError, "batch of 0"),
        (torch.zeros(4, 5), ValueError, "5 columns but num_features is 6"),
        (torch.zeros(4, 6, 2), ValueError, r"shape \(4, 6, 2\)"),
        (
            torch.zeros(4, 6, dtype=torch.long),
            TypeError,
            r"int64; give floating-point values, .*\.float\(\)",
        ),
        (non_finite(float("nan")), ValueError, r"features\[3, 4\] is nan"),
        (non_finite(float("inf")), ValueError, r"features\[3, 4\] is inf"),
        (None, TypeError, "features is a NoneType"),
    ],
)
@pytest.mark.parametrize("method", ["__call__", "fit_step", "penalty"])
def test_bad_features_are_named_before_anything_is_updated(features, error, says, method):
    decorrelate = make()
    before = snapshot(decorrelate)
    with pytest.raises(error, match=says):
        getattr(decorrelate, method)(features)
    assert same(before, snapshot(decorrelate))
    assert decorrelate.completed_fits == 0
    assert not decorrelate.optimizer.state


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"weight": -1.0}, ValueError, "weight is -1.0"),
        ({"weight": float("nan")}, ValueError, "weight is nan"),
        ({"weight": "big"}, TypeError, "weight is 'big'"),
        ({"center": "x"}, ValueError, "center is 'x'"),
        ({"fit_steps": 0}, ValueError, "fit_steps is 0"),
        ({"warmup": -1}, ValueError, "warmup is -1"),
    ],
)
def test_bad_options_are_named(options, error, says):
    with pytest.raises(error, match=says):
        make(**options)


def test_a_thread_that_calls_in_the_middle_of_anothers_call_is_told_and_changes_nothing():
    inside = threading.Event()
    may_go_on = threading.Event()
    told = []

    def wait(fits):
        inside.set()
        may_go_on.wait()
        return 1.0

    def call():
        try:
            decorrelate(torch.randn(8, 4))
        except RuntimeError as error:
            told.append(str(error))

    decorrelate = PartialDecorrelation(4, weight=wait)
    first = threading.Thread(target=call)
    first.start()
    inside.wait()
    call()
    may_go_on.set()
    first.join()
    assert len(told) == 1
    assert "let threads that share it take turns" in told[0]
    assert decorrelate.completed_fits == 1
    call()
    assert (len(told), decorrelate.completed_fits) == (1, 2)
