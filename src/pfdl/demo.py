"""``pfdl demo``: a table and a small network, with and without PFDL, where correlations break at test time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from sklearn.base import clone
from sklearn.linear_model import Lasso, LinearRegression
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl.data import make_mmads
from pfdl.metrics import beta_error, rmse
from pfdl.penalties import PartialDecorrelation
from pfdl.tabular import PFDLRegressor

CLASSES, OWN_INPUTS, SCENE_INPUTS, WIDTH = 4, 12, 12, 32
TRAIN_AGREEMENT = 0.9
METHODS: dict[str, Callable[[], PartialDecorrelation | None]] = {
    "ERM": lambda: None,
    "PFDL (paper)": lambda: PartialDecorrelation(WIDTH, hidden=32, sharing="strict"),
    "PFDL (centred)": lambda: PartialDecorrelation(WIDTH, hidden=32, center="batch"),
}
TEST_RATES = (-2.0, -1.3, 1.3, 2.0)
TESTS = {"90 %": TRAIN_AGREEMENT, "25 %": 1 / CLASSES, "0 %": 0.0}


@dataclass
class Outcome:
    """One trained network: accuracy on each test set, and how much its features tell about each other."""

    accuracy: dict[str, float]
    explained: float


def regression_table(seeds: int = 3, rows: int = 2000) -> Table:
    """Fit linear models to a sample with biased selection (MMADS) and test them where the bias is another."""
    models = {"OLS": LinearRegression(), "Lasso": Lasso(alpha=0.01), "PFDLRegressor": PFDLRegressor()}
    table = Table(
        title="RMSE of linear models where the selection of the sample changes\n(training: r = 1.7)",
        caption=f"Mean of {seeds} paired seeds. β_V: mean size of coefficients that should be 0.",
    )
    table.add_column("method")
    for rate in TEST_RATES:
        table.add_column(f"r = {rate:g}", justify="right")
    table.add_column("β_V", justify="right")
    train = [make_mmads(rows, 20, 1.7, seed=seed) for seed in range(seeds)]
    tests = {rate: [make_mmads(4000, 20, rate, seed=10**6 + seed) for seed in range(seeds)] for rate in TEST_RATES}
    for name, model in models.items():
        fitted = [clone(model).fit(data.X, data.y) for data in train]
        cells = [
            sum(rmse(data.y, one.predict(data.X)) for one, data in zip(fitted, drawn, strict=True)) / seeds
            for drawn in tests.values()
        ]
        unstable = sum(
            beta_error(data.beta[data.unstable], one.coef_[data.unstable])
            for one, data in zip(fitted, train, strict=True)
        )
        table.add_row(name, *(f"{cell:.2f}" for cell in cells), f"{unstable / seeds:.3f}")
    return table


def make_scenes(rows: int, agreement: float, seed: int) -> tuple[Tensor, Tensor]:
    """Draw objects in scenes: inputs (rows, 24) and labels.

    Half of the inputs come from the object and are hard to read (two noisy clusters a class), half from the scene
    and are easy. Each class has its own typical scene, in which it stands with probability ``agreement``.
    """
    world = torch.Generator().manual_seed(0)
    objects = torch.randn(CLASSES, 2, OWN_INPUTS, generator=world)
    scenes = torch.randn(CLASSES, SCENE_INPUTS, generator=world)
    draw = torch.Generator().manual_seed(seed)
    label = torch.randint(CLASSES, (rows,), generator=draw)
    other = (label + torch.randint(1, CLASSES, (rows,), generator=draw)) % CLASSES
    scene = torch.where(torch.rand(rows, generator=draw) < agreement, label, other)
    cluster = torch.randint(2, (rows,), generator=draw)
    own = objects[label, cluster] + 1.5 * torch.randn(rows, OWN_INPUTS, generator=draw)
    around = scenes[scene] + 0.7 * torch.randn(rows, SCENE_INPUTS, generator=draw)
    return torch.cat([own, around], dim=1), label


def train(
    decorrelate: PartialDecorrelation | None, seed: int, rows: int, epochs: int, tick: Callable[[], None]
) -> Outcome:
    """Train one network; everything but the penalty is the same for the same seed."""
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Linear(OWN_INPUTS + SCENE_INPUTS, 64), nn.ReLU(), nn.Linear(64, WIDTH), nn.ReLU())
    head = nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=2e-3)
    x, y = make_scenes(rows, TRAIN_AGREEMENT, seed)
    for epoch in range(epochs):
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(1000 * seed + epoch))
        for batch in torch.split(order, 128):
            features = body(x[batch])
            loss = F.cross_entropy(head(features), y[batch])
            if decorrelate is not None:
                loss = loss + decorrelate(features)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        tick()
    with torch.no_grad():
        accuracy = {}
        for number, (name, agreement) in enumerate(TESTS.items()):
            x, y = make_scenes(4000, agreement, seed=10**6 + 10 * seed + number)
            features = body(x)
            accuracy[name] = 100 * (head(features).argmax(1) == y).double().mean().item()
            if agreement == TRAIN_AGREEMENT:
                explained = linear_r2(features)
    return Outcome(accuracy, explained)


def linear_r2(features: Tensor) -> float:
    """Share of the features' variance that the other features explain linearly; constant features left out."""
    u = features.double()
    covariance = torch.cov(u[:, u.var(0) > 1e-6].T)
    unexplained = 1 / torch.linalg.inv(covariance + 1e-9 * torch.eye(len(covariance))).diagonal()
    return 1 - float(unexplained.sum() / covariance.trace())


def run(console: Console, seeds: int = 5, rows: int = 4000, epochs: int = 8) -> Table:
    """Train every method on paired seeds and return the comparison as a table."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in METHODS}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks this small only wait for a second thread
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=len(METHODS) * seeds * epochs)
        for seed in range(seeds):
            for name, make_penalty in METHODS.items():
                progress.update(task, description=f"{name}, seed {seed}")
                torch.manual_seed(seed)
                penalty = make_penalty()
                outcomes[name].append(train(penalty, seed, rows, epochs, lambda: progress.advance(task)))
    torch.set_num_threads(threads)
    return _table(outcomes)


def _table(outcomes: dict[str, list[Outcome]]) -> Table:
    seeds = len(outcomes["ERM"])
    table = Table(
        title="Accuracy when objects stand in their class's usual scene in …\n(training: 90 % of cases)",
        caption=f"Mean of {seeds} paired seeds, in brackets the difference to ERM ± its standard error.\n"
        "R²: how much of a feature the others explain, linearly.",
    )
    table.add_column("method")
    for name in TESTS:
        table.add_column(name, justify="right")
    table.add_column("R²", justify="right")
    for method, results in outcomes.items():
        cells = []
        for test in TESTS:
            accuracy = torch.tensor([result.accuracy[test] for result in results])
            erm = torch.tensor([result.accuracy[test] for result in outcomes["ERM"]])
            cells.append(f"{accuracy.mean():.1f}" + ("" if method == "ERM" else _difference(accuracy - erm)))
        explained = sum(result.explained for result in results) / seeds
        table.add_row(method, *cells, f"{explained:.2f}")
    return table


def _difference(paired: Tensor) -> str:
    if len(paired) < 2:
        return f" ({paired.mean():+.1f})"
    return f" ({paired.mean():+.1f}±{paired.std() / len(paired) ** 0.5:.1f})"
