"""Nothing depends on the units of a column or of the label."""

from __future__ import annotations

import numpy as np
import pytest

from pfdl.data import make_mmads
from pfdl.tabular import DWRRegressor, PFDLRegressor, ScreenedRegressor, SelectionScreen, SVIRegressor
from pfdl.tabular.weights import least_squares

UNITS = [1e-8, 1e-7, 1e-3, 1e4, 1e7, 1e8]
REGRESSORS = [
    ScreenedRegressor(),
    PFDLRegressor(max_iter=30, random_state=0),
    DWRRegressor(max_iter=30),
    SVIRegressor(rounds=2, gate_steps=300, random_state=0),
]


@pytest.fixture(scope="module")
def data():
    return make_mmads(400, 10, 1.7, seed=0)


def in_units(X: np.ndarray, unit: float) -> np.ndarray:
    """Give a cause, a column that follows the label and one that does nothing another unit."""
    return X * [1.0, unit, 1.0, 1.0, 1.0 / unit, unit, 1.0, unit, 1.0, 1.0]


@pytest.mark.filterwarnings("ignore::pfdl.tabular.weights.EffectiveSampleSizeWarning")
@pytest.mark.parametrize("model", REGRESSORS, ids=repr)
def test_regressors_predict_the_same_in_all_units(model, data):
    expected = model.fit(data.X, data.y).predict(data.X)
    for unit in UNITS[:: 5 if isinstance(model, SVIRegressor) else 1]:  # this takes a second
        scaled = in_units(data.X, unit)
        assert np.allclose(model.fit(scaled, data.y).predict(scaled), expected, rtol=1e-4, atol=1e-4), unit


@pytest.mark.parametrize("model", [REGRESSORS[0], REGRESSORS[2]], ids=repr)
@pytest.mark.filterwarnings("ignore::pfdl.tabular.weights.EffectiveSampleSizeWarning")
def test_predictions_are_in_the_unit_of_the_label(model, data):
    expected = model.fit(data.X, data.y).predict(data.X)
    for unit in UNITS:
        assert np.allclose(model.fit(data.X, unit * data.y).predict(data.X) / unit, expected, rtol=1e-5, atol=1e-6), (
            unit
        )


def test_the_screen_does_not_depend_on_units(data):
    screen = SelectionScreen().fit(data.X, data.y).explain()
    for unit in UNITS:
        scaled = in_units(data.X, unit)
        found = SelectionScreen().fit(scaled, unit * data.y).explain()
        assert found["decision"].equals(screen["decision"])
        assert np.allclose(found[["m", "k", "share"]], screen[["m", "k", "share"]])


def test_least_squares_is_that_of_the_normal_equations(data):
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 1.5, 400)
    design = np.column_stack([data.X, np.ones(400)])
    coefficients, intercept = least_squares(data.X, data.y, weight)
    expected = np.linalg.solve(design.T @ (design * weight[:, None]), design.T @ (weight * data.y))
    assert np.allclose([*coefficients, intercept], expected)
