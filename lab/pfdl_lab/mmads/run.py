"""The paper's first experiment: coefficients and stability on MMADS, method by method.

All methods of a task see the same training table and the same test environments, so that
differences are paired. Hyper-parameters are fixed here and were not chosen with a test environment
in view.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import Lasso, LinearRegression, Ridge

from pfdl.data.mmads import MMADS, SETTINGS, Setting, make_mmads
from pfdl.runs import claim
from pfdl.tabular import DWRRegressor, LeakScreen, PFDLRegressor, ScreenedRegressor
from pfdl.tabular.metrics import rmse
from pfdl.tabular.weights import EffectiveSampleSizeWarning
from pfdl_lab.grid import finish, run_grid
from pfdl_lab.mmads.paper import CELLS
from pfdl_lab.workers import IN_SEQUENCE, Execution

TEST_RATES = (-3.0, -2.0, -1.7, -1.5, -1.3, 1.3, 1.5, 1.7, 2.0, 3.0)
#: The cell the paper draws in its figure.
FIGURE_CELL = (2000, 20, 1.7)


def _oracle(data: MMADS, seed: int) -> Any:
    # Least squares of least norm gives a column of zeros the coefficient zero.
    return LinearRegression().fit(
        np.where(np.isin(np.arange(data.X.shape[1]), data.stable), data.X, 0.0), data.y
    )


def _sure() -> LeakScreen:
    """Return the strict screen, which also finds selected columns that go with causes."""
    return LeakScreen(drop="sure")


METHODS: dict[str, Callable[[MMADS, int], Any]] = {
    "OLS": lambda data, seed: LinearRegression().fit(data.X, data.y),
    "Lasso": lambda data, seed: Lasso(alpha=0.01).fit(data.X, data.y),
    "Ridge": lambda data, seed: Ridge(alpha=1.0).fit(data.X, data.y),
    "DWR": lambda data, seed: DWRRegressor(standardize=False, solver="rmsprop").fit(data.X, data.y),
    "PFDL": lambda data, seed: PFDLRegressor(random_state=seed).fit(data.X, data.y),
    "Screened OLS": lambda data, seed: ScreenedRegressor(screen=_sure()).fit(data.X, data.y),
    "OLS on S (oracle)": _oracle,
}


@dataclass(frozen=True)
class MMADSConfig:
    """Which part of the table to run.

    Args:
        cells: (n, p, r) of the training tables.
        settings: How S and V depend on each other.
        seeds: Trainings of each method in each cell; the paper makes five.
        test_sets: Test tables for each test rate; the paper draws five.
        num_test: Rows of each.
        first_seed: The first seed; the others count up.
    """

    cells: Sequence[tuple[int, int, float]] = CELLS
    settings: Sequence[str] = SETTINGS
    seeds: int = 10
    test_sets: int = 5
    num_test: int = 2_000
    first_seed: int = 0

    def tasks(self) -> list[dict[str, Any]]:
        """Return one task per setting, cell and seed."""
        tests = {"test_sets": self.test_sets, "num_test": self.num_test}
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        return [
            {"setting": setting, "n": n, "p": p, "r": r, "seed": seed, **tests}
            for setting, (n, p, r), seed in product(self.settings, self.cells, seeds)
        ]


FULL = MMADSConfig()
QUICK = MMADSConfig(cells=((1000, 10, 1.7), FIGURE_CELL), seeds=3, test_sets=2, num_test=1000)


def run(config: MMADSConfig, folder: Path, execution: Execution = IN_SEQUENCE) -> pd.DataFrame:
    """Run what is missing of the table and write ``results.csv``, one row per number.

    Args:
        config: ``FULL``, ``QUICK`` or one of your own.
        folder: Run folder, see :mod:`pfdl.runs`; finished tasks are kept in its ``tasks``.
        execution: Where the tasks run, on CPUs; by default one after the other.

    Returns:
        What was written, with the number of test rows as a further column.

    Raises:
        ValueError: If the folder holds another run; more or fewer seeds are the same run.
    """
    settings = {**asdict(config), "command": execution.command}
    with claim(folder, "mmads", settings, may_change=("seeds", "command")):
        results = run_grid(run_task, config.tasks(), folder / "tasks", execution)
        columns = ["setting", "n", "p", "r", "method", "seed", "metric", "value"]
        finish(results[columns], folder, "tasks", float_format="%.6g")
    return results


def run_task(
    setting: Setting, n: int, p: int, r: float, seed: int, test_sets: int, num_test: int
) -> list[dict[str, Any]]:
    """Fit every method to one training table and judge it on every test environment.

    Returns:
        Rows of ``method``, ``metric``, ``value``: ``beta_s_error``, ``beta_v_error``, ``ae``,
        ``se``, ``rmse[r]`` per test rate (the mean over its test sets), of weightings
        ``effective_share``, what their weights are worth as a share of the rows, and, in the cell
        of the paper's figure, ``beta[column]``.
    """
    train = make_mmads(n, p, r, setting, seed=np.random.default_rng([seed, 0]))

    def test_tables(number: int, rate: float) -> list[MMADS]:
        draws = [np.random.default_rng([seed, 1 + number, k]) for k in range(test_sets)]
        return [make_mmads(num_test, p, rate, setting, seed=draw) for draw in draws]

    tests = [test_tables(number, rate) for number, rate in enumerate(TEST_RATES)]
    rows = []
    for method, fit in METHODS.items():
        with (
            warnings.catch_warnings()
        ):  # DWR rests on few rows in some cells; that is one of the findings
            warnings.simplefilter("ignore", EffectiveSampleSizeWarning)
            model = fit(train, seed)
        errors = [_mean_rmse(model, sets) for sets in tests]
        values = judge(train, model.coef_, errors)
        values |= {f"rmse[{rate:g}]": error for rate, error in zip(TEST_RATES, errors, strict=True)}
        if hasattr(model, "effective_sample_size_"):
            values["effective_share"] = model.effective_sample_size_ / n
        if (n, p, r) == FIGURE_CELL:
            values |= {
                f"beta[{name}]": float(b)
                for name, b in zip(train.feature_names, model.coef_, strict=True)
            }
        rows += [
            {"method": method, "metric": metric, "value": value} for metric, value in values.items()
        ]
    return rows


def _mean_rmse(model: Any, tables: Sequence[MMADS]) -> float:
    return float(np.mean([rmse(table.y, model.predict(table.X)) for table in tables]))


def judge(
    train: MMADS, coefficients: NDArray[np.float64], errors: Sequence[float]
) -> dict[str, float]:
    """Return the four metrics of Table I for coefficients, and the RMSE of each test environment.

    Of coefficients, the mean absolute error; of the environments, mean and standard deviation. The
    divisor of the latter is their number, which fits the paper's figures best; the authors of DWR
    print the number minus one.
    """
    beta_error = np.abs(train.beta - coefficients)
    return {
        "beta_s_error": float(beta_error[train.stable].mean()),
        "beta_v_error": float(beta_error[train.unstable].mean()),
        "ae": float(np.mean(errors)),
        "se": float(np.std(errors)),
    }
