"""Readings of "the output of g as auxiliary features", the paper's row of PFDL on tables.

The paper says: "we directly use the output of the feature decomposition network as auxiliary
features, feed it into the coefficient estimator (same as DWR) to fit the biased training data, and
then evaluate the coefficient estimator error". What g sees, how it is trained, what joins what,
which estimator, and what predicts is left open. Here each of these choices is tried on the seven
cells of Table I, and the readings are sorted by their distance to the paper's row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pfdl._internal.cuda_graphs import Captured
from pfdl.data.mmads import make_mmads
from pfdl.decorrelation import FeatureDecomposition
from pfdl.runs import claim
from pfdl.tabular.metrics import rmse
from pfdl_lab.grid import finish, run_grid
from pfdl_lab.mmads.paper import CELLS, METRICS, PAPER
from pfdl_lab.mmads.run import TEST_RATES, judge
from pfdl_lab.workers import IN_SEQUENCE, Execution

FloatArray = NDArray[np.float64]
ITERATIONS, LEARNING_RATE, BATCH = 5000, 0.001, 128
"""Of g: the paper's learning rate and most iterations; batches are ours."""

ESTIMATOR_STEPS, ESTIMATOR_RATE = 3000, 0.001
"""Of DWR's published estimator, RMSProp from zero on all rows."""

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
}


@dataclass(frozen=True)
class Network:
    """One way to make g.

    Args:
        sees: What g predicts a column from: ``"shared"`` (the others, one network that does not
            know which: the paper's), ``"indexed"`` (the others, and which), ``"own"`` (the others,
            a network per column), ``"all"`` (all columns, the predicted one too) or ``"all,
            linear"`` (the same, its exact solution: principal components). ``"nothing"`` is no
            reading: OLS, shrunk along principal components.
        width: Hidden width of g, or its rank, as a share of p; 0 stands for 64.
        optimizer: Of g.
        batches: Whether g is trained on batches of 128 or on all rows at once.
        standardised: Whether g sees standardised columns.
    """

    sees: str = "shared"
    width: float = 0.0
    optimizer: str = "adam"
    batches: bool = True
    standardised: bool = True


NETWORKS: tuple[Network, ...] = (
    *(
        Network("all, linear", width, standardised=scaled)
        for width, scaled in product((0.8, 0.5), (True, False))
    ),
    *(
        Network(sees, width, optimizer, batches, standardised)
        for batches, (sees, width), optimizer, standardised in product(
            (True, False),
            (
                ("shared", 0.0),
                ("indexed", 0.0),
                ("own", 0.0),
                ("all", 0.0),
                ("all", 0.8),
                ("all", 0.5),
            ),
            OPTIMIZERS,
            (True, False),
        )
    ),
    Network("nothing", 0.7, standardised=False),
)
"""All that g may see by all ways to train it, and a description of the paper's row that is no
reading.
"""


class Fitted(NamedTuple):
    """A linear rule.

    Attributes:
        beta: The coefficients that are compared with the true ones, shape (p,).
        predict: From X and g(X) to the prediction.
    """

    beta: FloatArray
    predict: Callable[[FloatArray, FloatArray], FloatArray]


Solver = Callable[[FloatArray, FloatArray], FloatArray]
"""From centred columns and a centred outcome, or several, to coefficients."""
Columns = Callable[[FloatArray, FloatArray], FloatArray]
Use = Callable[[Solver, FloatArray, FloatArray, FloatArray], Fitted]


def _least_norm(columns: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.lstsq(columns, y, rcond=1e-10)[0], dtype=np.float64)


def _ridge(columns: FloatArray, y: FloatArray) -> FloatArray:
    """Shrink a little, as an estimator does that is stopped before it has converged."""
    gram = columns.T @ columns + 0.01 * len(columns) * np.eye(columns.shape[1])
    return np.asarray(np.linalg.solve(gram, columns.T @ y), dtype=np.float64)


def _rmsprop(columns: FloatArray, y: FloatArray) -> FloatArray:
    """Take DWR's published steps, from zero; the loss is the mean squared error."""
    gram, moment = columns.T @ columns / len(y), columns.T @ y / len(y)
    beta = np.zeros_like(moment)
    square = np.ones_like(beta)  # TensorFlow's running mean of squares starts at one
    for _ in range(ESTIMATOR_STEPS):
        gradient = 2 * (gram @ beta - moment)
        square += 0.1 * (gradient**2 - square)
        beta -= ESTIMATOR_RATE * gradient / np.sqrt(square + 1e-10)
    return beta


ESTIMATORS: dict[str, Solver] = {
    "least norm": _least_norm,
    "ridge 0.01 n": _ridge,
    "RMSProp as DWR": _rmsprop,
}


def _use(coefficients: Callable[..., FloatArray], columns: Columns = lambda X, g: X) -> Use:
    """Return a use of g: what gives the coefficients, from a fit, X, g and y, and the columns that
    predict by them.
    """

    def use(solve: Solver, X: FloatArray, g: FloatArray, y: FloatArray) -> Fitted:
        def fit(columns: FloatArray, y: FloatArray) -> FloatArray:
            return solve(columns - columns.mean(0), y - y.mean(0))

        beta = coefficients(fit, X, g, y)
        level = y.mean() - columns(X, g).mean(0) @ beta
        return Fitted(beta[: X.shape[1]], lambda X, g: columns(X, g) @ beta + level)

    return use


def _join(X: FloatArray, g: FloatArray) -> FloatArray:
    return np.hstack([X, g])


USES: dict[str, Use] = {
    "[X, g]": _use(lambda fit, X, g, y: fit(_join(X, g), y), _join),
    "[X, g], g dropped": _use(lambda fit, X, g, y: fit(_join(X, g), y)[: X.shape[1]]),
    "X − g": _use(lambda fit, X, g, y: fit(X - g, y), lambda X, g: X - g),
    "g alone": _use(lambda fit, X, g, y: fit(g, y), lambda X, g: g),
    "X + g": _use(lambda fit, X, g, y: fit(X + g, y), lambda X, g: X + g),
    "g partialled out of y": _use(lambda fit, X, g, y: fit(X, y - g @ fit(g, y))),
    "g partialled out of y and X": _use(
        lambda fit, X, g, y: fit(X - g @ fit(g, X), y - g @ fit(g, y))
    ),
}
SHRINK = _use(lambda fit, X, g, y: fit(X, (X - 2 / 3 * g) @ fit(X, y)))
"""No reading of the paper's words but a description of its row, where g is principal components of
X.
"""


@dataclass(frozen=True)
class ReadingsConfig:
    """Which readings are tried, and on what.

    Args:
        networks: The ways to make g.
        cells: (n, p, r) of the training tables.
        seeds: Tables per cell.
        iterations: Of g.
        num_test: Rows of the test table of each rate.
    """

    networks: Sequence[Network] = NETWORKS
    cells: Sequence[tuple[int, int, float]] = CELLS
    seeds: int = 3
    iterations: int = ITERATIONS
    num_test: int = 5_000


QUICK = ReadingsConfig((Network(), NETWORKS[0], NETWORKS[-1]), CELLS[:2], seeds=1, iterations=50)


def run(config: ReadingsConfig, folder: Path, execution: Execution = IN_SEQUENCE) -> pd.DataFrame:
    """Try what is missing of the readings and write ``results.csv``.

    Args:
        config: Which readings, and on what.
        folder: The run folder, with ``tasks`` (finished trainings of g) and ``results.csv``.
        execution: Where the tasks run, and on which device g is trained; by default a CPU, one
            after the other.

    Returns:
        One line per reading, cell and seed.

    Raises:
        ValueError: If the folder holds another run; more or fewer seeds are the same run.
    """
    sizes = {"iterations": config.iterations, "num_test": config.num_test}
    tasks = [
        {**asdict(network), "n": n, "p": p, "r": r, "seed": seed, **sizes}
        for seed in range(config.seeds)
        for n, p, r in config.cells
        for network in config.networks
    ]
    settings = {**asdict(config), **execution.settings}
    with claim(folder, "readings", settings, may_change=("seeds", "networks", *execution.settings)):
        results = run_grid(
            partial(run_task, device=execution.device), tasks, folder / "tasks", execution
        )
        names = [field.name for field in fields(Network)]
        columns = [*names, "use", "estimator", "n", "p", "r", "seed", *METRICS]
        finish(results[columns].round(5), folder, "tasks")
    return results


def run_task(
    n: int,
    p: int,
    r: float,
    seed: int,
    iterations: int,
    num_test: int,
    *,
    device: str = "cpu",
    **network: Any,
) -> list[dict[str, Any]]:
    """Train one g on one table, then use it in every way; the other arguments are those of the two
    configs.

    Returns:
        Lines of ``use``, ``estimator`` and the four ``METRICS``.
    """
    train = make_mmads(n, p, r, seed=np.random.default_rng([seed, 0]))
    tests = [
        make_mmads(num_test, p, rate, seed=np.random.default_rng([seed, 1 + number, 0]))
        for number, rate in enumerate(TEST_RATES)
    ]
    g = train_network(Network(**network), train.X, iterations, seed, device)
    outputs = [g(table.X) for table in (train, *tests)]
    lines = []
    uses = {"OLS shrunk to a third along them": SHRINK} if network["sees"] == "nothing" else USES
    for use, estimator in product(uses, ["least norm"] if uses is not USES else ESTIMATORS):
        fitted = uses[use](ESTIMATORS[estimator], train.X, outputs[0], train.y)
        errors = [
            rmse(test.y, fitted.predict(test.X, output))
            for test, output in zip(tests, outputs[1:], strict=True)
        ]
        lines.append({"use": use, "estimator": estimator, **judge(train, fitted.beta, errors)})
    return lines


def train_network(
    how: Network, X: FloatArray, iterations: int, seed: int, device: str = "cpu"
) -> Callable[[FloatArray], FloatArray]:
    """Train g on a table and return it as a function of tables, in the units of the columns."""
    center, scale = X.mean(0), X.std(0) if how.standardised else np.ones(X.shape[1])
    p = X.shape[1]
    width = max(1, round(how.width * p)) if how.width else 64
    if how.sees in ("all, linear", "nothing"):
        directions = np.linalg.svd((X - center) / scale, full_matrices=False)[2][:width]
        return lambda table: (
            center + scale * (((table - center) / scale) @ directions.T @ directions)
        )
    rows = torch.from_numpy((X - center) / scale if how.standardised else X).float().to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        g = _make_network(how.sees, p, width).to(device)
        recorded = {} if how.optimizer == "sgd" else {"capturable": rows.is_cuda}
        optimizer = OPTIMIZERS[how.optimizer](g.parameters(), lr=LEARNING_RATE, **recorded)
        _train(g, rows, optimizer, how.batches, iterations)

    def output(table: FloatArray) -> FloatArray:
        with torch.no_grad():
            seen = (
                torch.from_numpy((table - center) / scale if how.standardised else table)
                .float()
                .to(device)
            )
            found: FloatArray = g(seen).double().cpu().numpy()
        return center + scale * found if how.standardised else found

    return output


def _make_network(sees: str, p: int, width: int) -> nn.Module:
    if sees == "own":
        return _OwnNetworks(p, width)
    if sees == "all":
        return nn.Sequential(nn.Linear(p, width), nn.ReLU(), nn.Linear(width, p))
    return FeatureDecomposition(p, width, sharing="strict" if sees == "shared" else "indexed")


class _OwnNetworks(nn.Module):
    """A network of one hidden layer for each column, which sees all the others."""

    def __init__(self, p: int, width: int) -> None:
        super().__init__()
        bound = (p - 1) ** -0.5
        self.first = nn.Parameter(torch.empty(p, p, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(p, width).uniform_(-bound, bound))
        self.second = nn.Parameter(torch.empty(p, width).uniform_(-(width**-0.5), width**-0.5))
        self.constant = nn.Parameter(torch.zeros(p))
        self.others = nn.Buffer(1 - torch.eye(p)[:, :, None])

    def forward(self, rows: Tensor) -> Tensor:
        """Return the prediction of each column, shape (n, p)."""
        hidden = torch.einsum("nk,jkh->njh", rows, self.first * self.others) + self.bias
        return torch.einsum("njh,jh->nj", hidden.relu(), self.second) + self.constant


def _train(
    g: nn.Module, rows: Tensor, optimizer: torch.optim.Optimizer, batches: bool, iterations: int
) -> None:
    """Traverse the table again and again, in a new order each time."""

    def step(batch: Tensor) -> list[Tensor]:
        loss = (g(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return [loss.detach()]

    graph = Captured()
    size, order = BATCH if batches else len(rows), torch.arange(0)
    for _ in range(iterations):
        if len(order) < size:
            order = torch.randperm(len(rows))
        graph.run(step, [rows[order[:size]]])
        order = order[size:]


def distances(results: pd.DataFrame) -> pd.DataFrame:
    """Return the readings by their distance to the paper's row, the closest first.

    The distance is the mean over cells and the four metrics of |ours − paper| / paper; ``printed``
    is the same without the error of β_S, which the paper does not print.
    """
    keys, cell = [*(field.name for field in fields(Network)), "use", "estimator"], ["n", "p", "r"]
    means = results.groupby([*keys, *cell], sort=False)[list(METRICS)].mean()
    paper = pd.DataFrame(PAPER["PFDL"], index=pd.MultiIndex.from_tuples(CELLS, names=cell))
    published = means[[]].join(paper, on=cell)
    off = ((means - published).abs() / published).groupby(keys, sort=False).mean()
    table = means.groupby(keys, sort=False).mean()
    table["distance"] = off.mean(axis=1)
    table["printed"] = off.drop(columns="beta_s_error").mean(axis=1)
    return table.sort_values("distance")
