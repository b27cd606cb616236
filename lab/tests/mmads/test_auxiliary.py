"""What the kept columns say of the dropped ones, as further columns."""

import numpy as np

from pfdl.data import make_mmads
from pfdl.tabular import ScreenedRegressor
from pfdl.tabular.metrics import rmse
from pfdl_lab.mmads.auxiliary import AuxiliaryRegressor


def test_auxiliary_prediction_helps_where_y_is_not_linear_and_leaves_coefficients_alone():
    data = make_mmads(1000, 10, 1.7, seed=0)
    plain = ScreenedRegressor().fit(data.X, data.y)
    model = AuxiliaryRegressor(random_state=0).fit(data.X, data.y)
    assert np.array_equal(model.coef_, plain.coef_)
    test = make_mmads(4000, 10, -1.7, seed=1)
    assert rmse(test.y, model.predict(test.X)) < rmse(test.y, plain.predict(test.X))
    # What was dropped is not looked at.
    blind = test.X.copy()
    blind[:, data.biased] = 100.0
    assert np.array_equal(model.predict(blind), model.predict(test.X))


def test_two_followers_in_the_auxiliary_prediction():
    data = make_mmads(1000, 20, 1.7, seed=0)
    model = AuxiliaryRegressor(random_state=0).fit(data.X, data.y)
    assert (model.explain()["decision"] == "follows the label").sum() == 2
    assert model.predict(data.X).shape == (1000,)


def test_without_a_follower_it_is_the_screened_regressor():
    X = np.random.default_rng(0).standard_normal((200, 4))
    model = AuxiliaryRegressor().fit(X, X[:, 0])
    assert model.network_ is None
    assert np.array_equal(model.predict(X), ScreenedRegressor().fit(X, X[:, 0]).predict(X))
