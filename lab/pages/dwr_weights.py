"""Show where the published loss of DWR leads on the features of a network, for
docs/results/nico.md.

Trains ERM by the protocol of that page. After some epochs it learns one weight per training sample
from the features of that moment, by the published solver and by L-BFGS. With --pretrained the
features are those of EfficientNet-lite0 and stay fixed, and both published stages are run: the
weights, then a weighted (logistic) regression, beside a plain one.

    python lab/pages/dwr_weights.py PACS --device cuda
    python lab/pages/dwr_weights.py PACS --pretrained
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import typer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from pfdl.data.context_images import store_images
from pfdl.objectives.weightings.dwr import (
    decorrelating_weights,
    decorrelating_weights_by_lbfgs,
    dwr_loss_and_gradient,
)
from pfdl.vision.config import DataOptions, TrainingConfig
from pfdl.vision.features import embed
from pfdl_lab.images.data import ImageData
from pfdl_lab.images.networks import FROZEN, make_network, write_features
from pfdl_lab.pairing import holm, paired
from pfdl_lab.report.markdown import markdown_table
from pfdl_lab.statistics import difference_cell, mean_cell
from pfdl_lab.training import Progress, train_row

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "dwr-weights.csv"
READOUTS = RESULTS.with_name("dwr-readouts.csv")

BACKBONE, EPOCHS, TESTED = "resnet50", 160, (1, 20, 40, 80, 160)
SEEDS, READOUT_SEEDS = range(200, 205), range(240, 245)
DECLARED = ("1:5", "5:1", "mean of the ratios")
PUBLISHED = "RMSProp, at most 5,000 steps (published)"
SOLVERS = {
    PUBLISHED: lambda x: decorrelating_weights(x, steps=5000, tol=1e-8),
    "L-BFGS, at most 500 steps": lambda x: decorrelating_weights_by_lbfgs(x, steps=500, tol=1e-8),
}


def measure(data: ImageData, images: Path, seed: int, device: str) -> list[dict[str, Any]]:
    """Train with one seed, and return a line for each tested epoch and solver."""
    train = data.split(seed, network=BACKBONE, validation=0.1, images=images).train
    precision = "bf16" if device.startswith("cuda") else "32"
    config = TrainingConfig(
        epochs=EPOCHS, batch_size=64, learning_rate=0.01, precision=precision, seed=seed
    )
    torch.manual_seed(seed)
    model = make_network(BACKBONE, train.inputs, int(train.labels.max()) + 1)
    found = []

    def look(progress: Progress) -> None:
        if progress.epoch not in TESTED:
            return
        features = embed(model, train.inputs, device=device).double().cpu().numpy()
        x = torch.from_numpy(StandardScaler().fit_transform(features)).float().to(device)
        for solver, solve in SOLVERS.items():
            weights, loss, steps = solve(x)
            found.append(
                {
                    "seed": seed,
                    "epoch": progress.epoch,
                    "samples": len(x),
                    "features": x.shape[1],
                    "solver": solver,
                    "steps": steps,
                    "loss_at_one": float(dwr_loss_and_gradient(x, torch.ones_like(weights))[0]),
                    "loss": loss,
                    "loss_at_zero": 0.0005 * len(x) ** 2,
                    "mean_weight": float(weights.mean()),
                    "effective_share_of_all": float(
                        weights.sum() ** 2 / weights.square().sum() / len(x)
                    ),
                }
            )

    train_row(config, model, train, torch.zeros_like(train.labels), device=device, after_epoch=look)
    return found


def table(path: Path = RESULTS) -> str:
    """Return what became of the weights of the five seeds, from the smallest to the largest, as
    Markdown.
    """
    rows = []
    for (solver, epoch), part in pd.read_csv(path).groupby(["solver", "epoch"], sort=False):
        worth = part["effective_share_of_all"] * part["samples"]
        ranges = [
            f"{one.min():,.0f} to {one.max():,.0f}"
            for one in (part["loss_at_one"], part["loss_at_zero"], part["loss"])
        ]
        mean = f"{part['mean_weight'].min():.2f} to {part['mean_weight'].max():.2f}"
        rows.append([solver, epoch, *ranges, mean, f"{worth.min():.0f} to {worth.max():.0f}"])
    heads = [
        "solver",
        "epoch",
        "loss, all weights 1",
        "loss, all weights 0",
        "loss at the end",
        "mean weight",
    ]
    return markdown_table([*heads, "worth so many samples"], rows)


def readouts(path: Path = READOUTS) -> str:
    """Return the accuracies of both readouts and the three declared tests as Markdown."""
    found = pd.read_csv(path).set_index(["row", "seed"])
    found[DECLARED[-1]] = found.filter(like=":").mean(axis=1)
    erm, dwr = found.loc["erm"], found.loc["dwr"]
    tests = [paired(dwr[name], erm[name]) for name in DECLARED]
    adjusted = holm([test.p_value for test in tests if test])
    rows = [
        [
            name,
            *(str(mean_cell(row[name], 1)) for row in (erm, dwr)),
            str(difference_cell(test, 1)),
            f"{p_value:.2g}",
        ]
        for name, test, p_value in zip(DECLARED, tests, adjusted, strict=True)
    ]
    return markdown_table(
        ["test", "equal weights", "weights of DWR", "difference", "Holm's p"], rows
    )


def measure_readouts(data: ImageData, images: Path, seed: int) -> list[dict[str, Any]]:
    """Run both stages on fixed features, and return accuracies in percent with equal and with
    learnt weights.
    """
    split = data.split(seed, network=FROZEN, images=images)
    scaler = StandardScaler().fit(split.train.inputs.numpy())
    x, test_x = (scaler.transform(part.inputs.numpy()) for part in (split.train, split.test))
    learnt, _, steps = SOLVERS[PUBLISHED](torch.from_numpy(x))
    lines = []
    for row, weights in {"erm": torch.ones_like(learnt), "dwr": learnt}.items():
        worth = float(weights.sum() ** 2 / weights.square().sum())
        readout = LogisticRegression(C=0.05, max_iter=300)
        readout.fit(x, split.train.labels.numpy(), sample_weight=(weights / weights.mean()).numpy())
        right = readout.predict(test_x) == split.test.labels.numpy()
        accuracies = {
            test: round(100 * right[rows.numpy()].mean(), 2) for test, rows in split.tests.items()
        }
        sizes = {
            "samples": len(x),
            "worth": round(worth, 1),
            "mean_weight": round(float(weights.mean()), 4),
        }
        lines.append({"seed": seed, "row": row, "steps": steps, **sizes, **accuracies})
    print(lines[-1], flush=True)
    return lines


def main(folder: str, device: str = "cpu", pretrained: bool = False) -> None:
    """Learn the weights of DWR on features of PACS as ERM trains, or on pretrained ones; write and
    print the table.
    """
    data = ImageData(folder, DataOptions(layout="class/context"))
    with tempfile.TemporaryDirectory() as place:
        images = store_images(data.open(), Path(place) / "images", 96)
        if pretrained:
            write_features(images)
            lines = [
                line for seed in READOUT_SEEDS for line in measure_readouts(data, images, seed)
            ]
        else:
            lines = [line for seed in SEEDS for line in measure(data, images, seed, device)]
    pd.DataFrame(lines).to_csv(
        READOUTS if pretrained else RESULTS, index=False, float_format="%.6g"
    )
    print(readouts() if pretrained else table())


if __name__ == "__main__":
    typer.run(main)
