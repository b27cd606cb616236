"""Speed and memory of the tabular estimators against named rivals; ratios, on this machine, now.

    python benchmarks/tabular.py                 # both tables, minutes
    python benchmarks/tabular.py --rows 100000   # stop the second table there
    python benchmarks/tabular.py --large         # DWR to the end on large tables, minutes
    python benchmarks/tabular.py --solvers       # DWR on MMADS with the published solver and ours,
    minutes

DWR: this package's loss and gradient (one weighted covariance matrix) against a transcription of
the published form, which stacks the table once per column, with PyTorch's autograd. The screen and
PFDL: time of ``fit`` against scikit-learn's.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Lasso, LinearRegression

from pfdl.data import make_mmads
from pfdl.data.mmads import SETTINGS
from pfdl.objectives.weightings.dwr import dwr_loss_and_gradient
from pfdl.tabular import DWRRegressor, PFDLRegressor, ScreenedRegressor
from pfdl.tabular.weights import EffectiveSampleSizeWarning
from pfdl_lab.mmads.paper import CELLS

# The published solver where it ends in a minute; ours also where it would take hours.
SOLVERS = ("rmsprop", "lbfgs")
LARGE = ((20_000, 40, "rmsprop"), (20_000, 40, "lbfgs"), (100_000, 200, "lbfgs"))


def published_step(X: torch.Tensor, weight: torch.Tensor) -> float:
    """Take one loss and gradient of DWR as its authors wrote them: p copies of the table, each with
    a column zeroed.
    """
    n, p = X.shape
    copies = torch.stack([X * (torch.arange(p) != j) for j in range(p)])
    both = torch.einsum("i,ij,jik->jk", weight, X, copies) / n
    apart = (weight @ X / weight.sum())[:, None] * torch.einsum("i,jik->jk", weight, copies) / n
    loss = 2000 / p * torch.linalg.vector_norm(both - apart, dim=1).sum()
    loss = loss + 0.0005 * (weight.sum() - n) ** 2 + 0.00005 * (weight @ weight)
    loss.backward()
    return float(copies.nbytes)


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the best time of several calls, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def dwr_table(n: int = 2000) -> Table:
    table = Table(
        "p",
        "published, ms",
        "ours, ms",
        "times faster",
        "published, MB",
        "ours, MB",
        "times less memory",
    )
    for p in (10, 40, 160):
        rng = np.random.default_rng(0)
        X, weight = rng.standard_normal((n, p)), rng.random(n)
        tensor = torch.from_numpy(X)

        def published(tensor: torch.Tensor = tensor, weight: np.ndarray = weight) -> float:
            return published_step(tensor, torch.tensor(weight, requires_grad=True))

        def ours(tensor: torch.Tensor = tensor, weight: np.ndarray = weight) -> object:
            return dwr_loss_and_gradient(tensor, torch.from_numpy(weight))

        slow, fast = seconds(published, 5), seconds(ours, 15)
        # PyTorch's allocations are not traced: the copies are counted for the published form, and
        # for ours the table times the weights and the product with the directions.
        copies, peak = published(), 2.0 * tensor.nbytes
        table.add_row(
            str(p),
            f"{slow * 1e3:.1f}",
            f"{fast * 1e3:.2f}",
            f"{slow / fast:.0f}",
            f"{copies / 1e6:.1f}",
            f"{peak / 1e6:.2f}",
            f"{copies / peak:.0f}",
        )
    return table


def large_dwr_table() -> Table:
    """Solve DWR to the end on standardised, correlated columns."""
    table = Table(
        "rows",
        "columns",
        "solver",
        "steps",
        "s",
        "CPU s",
        "first loss",
        "last loss",
        "effective rows",
    )
    for rows, columns, solver in LARGE:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((rows, columns)) @ (
            np.eye(columns) + 0.05 * rng.standard_normal((columns, columns))
        )
        X /= X.std(axis=0)
        y = X[:, :10].sum(axis=1) + rng.standard_normal(rows)
        before, _ = dwr_loss_and_gradient(
            torch.from_numpy(X), torch.ones(rows, dtype=torch.float64)
        )
        start, start_of_work = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EffectiveSampleSizeWarning)
            model = DWRRegressor(solver=solver).fit(X, y)
        table.add_row(
            f"{rows:,}",
            f"{columns}",
            f"{solver}, published" if solver == "rmsprop" else solver,
            f"{model.n_iter_}",
            f"{time.perf_counter() - start:.0f}",
            f"{time.process_time() - start_of_work:.0f}",
            f"{float(before):.0f}",
            f"{model.loss_:.1f}",
            f"{model.effective_sample_size_:,.0f}",
        )
    return table


def solver_table() -> Table:
    """Fit DWR to one table of each cell of MMADS, with both solvers."""
    measures = [
        f"{measure}, {solver}"
        for measure in ("loss", "effective rows", "β_V error")
        for solver in SOLVERS
    ]
    table = Table("setting", "n, p, r", *measures)
    for setting in SETTINGS:
        for n, p, rate in CELLS:
            data = make_mmads(n, p, rate, setting, seed=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EffectiveSampleSizeWarning)
                models = [DWRRegressor(solver=solver).fit(data.X, data.y) for solver in SOLVERS]
            errors = [float(np.abs(model.coef_[data.unstable]).mean()) for model in models]
            table.add_row(
                setting,
                f"{n}, {p}, {rate:g}",
                *(f"{model.loss_:.2f}" for model in models),
                *(f"{model.effective_sample_size_:.0f}" for model in models),
                *(f"{error:.3f}" for error in errors),
            )
    return table


def fit_table(most_rows: int) -> Table:
    methods = {
        "screened OLS": ScreenedRegressor(),
        "PFDL": PFDLRegressor(random_state=0),
        "OLS": LinearRegression(),
        "Lasso": Lasso(alpha=0.01),
        "gradient boosting": HistGradientBoostingRegressor(random_state=0),
    }
    table = Table(
        "rows (20 columns)",
        *(f"{name}, s" for name in methods),
        "screened / OLS",
        "boosting / screened",
    )
    for n in (1_000, 10_000, 100_000, 1_000_000):
        if n > most_rows:
            break
        data = make_mmads(n, 20, 1.7, seed=0)
        times = {}
        for name, model in methods.items():
            start = time.perf_counter()
            model.fit(data.X, data.y)
            times[name] = time.perf_counter() - start
        table.add_row(
            f"{n:,}",
            *(f"{value:.3f}" for value in times.values()),
            f"{times['screened OLS'] / times['OLS']:.1f}",
            f"{times['gradient boosting'] / times['screened OLS']:.1f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="most rows in the second table")
    parser.add_argument(
        "--large", action="store_true", help="instead of the second table, DWR up to 100,000 × 200"
    )
    parser.add_argument(
        "--solvers", action="store_true", help="only DWR on MMADS with both of its solvers"
    )
    arguments = parser.parse_args()
    console = Console(width=140)
    torch.set_num_threads(1)
    if arguments.solvers:
        console.print("DWR on one table per cell of MMADS:", solver_table())
        return
    console.print("One loss and gradient of DWR, 2,000 rows:", dwr_table())
    if arguments.large:
        console.print("DWR to the end on large tables, standardised columns:", large_dwr_table())
        return
    console.print("Time of one fit, MMADS with r = 1.7:", fit_table(arguments.rows))


if __name__ == "__main__":
    main()
