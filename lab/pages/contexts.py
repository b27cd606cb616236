"""Which contexts pfdl.infer_contexts accepts, and whether the true ones pass the same checks.

    python lab/pages/contexts.py shapes shapes-0.75 pacs colored-mnist --mnist DIR --out
    contexts.csv python lab/pages/contexts.py --without mnist=DIR fashion-mnist=DIR --out
    contexts.csv python lab/pages/contexts.py --out contexts.csv   # prints the table of what is
    there

Nothing of a test set is read. If the true contexts fail a check, the check is too strict for these
data; if they pass and ours do not, the wrong contexts were found. ``--without`` names data that
have no contexts: folders with the files of MNIST, of which 6,000 images are drawn. A line is
written for every seed; the table has means over the seeds.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from pfdl.contexts import find_contexts, image_statistics
from pfdl.data.context_images import store_images
from pfdl.vision.config import DataOptions
from pfdl_lab.cli.study import make_datasets
from pfdl_lab.report.markdown import markdown_table

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "contexts.csv"
TRUE = "true contexts"
COLUMNS = [
    "data",
    "seed",
    "contexts",
    "method",
    "agreement",
    "true_contexts",
    "true_accepted",
    "usual",
    "unusual",
]
COLUMNS += ["gain", "gain_error", "sentence"]
PLAIN = 6000
IMAGE_SIZE = 64
PARTS = ("images-idx3", "labels-idx1")
# Data set, seed, features, labels, true contexts
Sample = tuple[str, int, Tensor, np.ndarray, np.ndarray | None]


def study_samples(arguments: argparse.Namespace) -> Iterator[Sample]:
    """Yield the training sides of the study's splits."""
    options = DataOptions(layout=arguments.layout, on_bad_image="skip")
    datasets = make_datasets(arguments.data, arguments.group_by, arguments.mnist, options)
    with tempfile.TemporaryDirectory() as folder:
        for number, dataset in enumerate(datasets):
            source = dataset.open()
            images = (
                None
                if source is None
                else store_images(source, Path(folder) / str(number), IMAGE_SIZE)
            )
            for seed in arguments.seeds:
                split = dataset.split(seed, network=arguments.backbone, images=images)
                truth = split.train.contexts.numpy() if split.has_contexts else None
                yield (
                    dataset.name,
                    seed,
                    split.context_features(),
                    split.train.labels.numpy(),
                    truth,
                )


def samples_without(arguments: argparse.Namespace) -> Iterator[Sample]:
    """Yield images that have no contexts."""
    for entry in arguments.without:
        name, _, folder = entry.partition("=")
        contents = [
            gzip.decompress((Path(folder) / f"train-{kind}-ubyte.gz").read_bytes())
            for kind in PARTS
        ]
        images = np.frombuffer(contents[0], np.uint8, offset=16).reshape(-1, 28, 28)
        labels = np.frombuffer(contents[1], np.uint8, offset=8)
        for seed in arguments.seeds:
            rows = np.random.default_rng(seed).permutation(len(labels))[:PLAIN]
            yield (
                name,
                seed,
                image_statistics(images[rows][:, None]),
                labels[rows].astype(np.intp),
                None,
            )


def check(
    features: Tensor, labels: np.ndarray, truth: np.ndarray | None, seed: int
) -> dict[str, object]:
    """Infer contexts, and put the true ones through the same checks."""
    found = find_contexts(features, labels, seed=seed)
    line = {"contexts": found.number, "method": found.method, "sentence": found.sentence}
    if truth is None:
        return line
    (trial,) = find_contexts(features, labels, contexts=truth, seed=seed).tried
    figures = {
        name: round(100 * getattr(trial, name), 1)
        for name in ("usual", "unusual", "gain", "gain_error")
    }
    agreement = round(adjusted_rand_score(truth, found.contexts), 3)
    return {
        **line,
        "agreement": agreement,
        "true_contexts": trial.number,
        "true_accepted": trial.accepted,
        **figures,
    }


def tables(path: Path = RESULTS) -> str:
    """Return what a CSV file says of each data set, as Markdown."""
    rows = []
    for data, part in pd.read_csv(path).groupby("data", sort=False):
        accepted, mean = part[part["contexts"] > 1], part.mean(numeric_only=True)
        known = bool(part["agreement"].notna().all())
        of_true = ["no contexts", "", "", ""]
        if known:
            gain, passed = (
                f"{mean['gain']:+.1f} ± {mean['gain_error']:.1f}",
                part["true_accepted"].astype(bool).sum(),
            )
            of_true = [
                f"{mean['true_contexts']:.0f}",
                f"{mean['usual']:.0f} / {mean['unusual']:.0f}",
                gain,
            ]
            of_true.append(f"{passed} of {len(part)}")
        numbers = " to ".join(
            str(one) for one in sorted({accepted["contexts"].min(), accepted["contexts"].max()})
        )
        agreement = f"{accepted['agreement'].mean():.2f}" if known else ""
        of_ours = [numbers, agreement] if len(accepted) else ["", ""]
        rows.append([data, *of_true, f"{len(accepted)} of {len(part)}", *of_ours])
    heads = [
        "true contexts",
        "usual / unusual",
        "gain",
        "true accepted",
        "ours accepted",
        "our contexts",
        "our ARI",
    ]
    return markdown_table(["data", *heads], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", help="as for pfdl study")
    parser.add_argument(
        "--without", nargs="*", default=[], metavar="NAME=DIR", help="data without contexts"
    )
    parser.add_argument("--group-by", nargs="*", default=[], help="as for pfdl study")
    parser.add_argument("--layout", help="as for pfdl study")
    parser.add_argument("--mnist", type=Path, help="folder of the MNIST files")
    parser.add_argument("--backbone", default="small", help="as for pfdl study")
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument(
        "--out", type=Path, required=True, help="a CSV file, to which lines are added"
    )
    arguments = parser.parse_args()
    for samples in (study_samples(arguments), samples_without(arguments)):
        for name, seed, features, labels, truth in samples:
            line = pd.DataFrame(
                [{"data": name, "seed": seed, **check(features, labels, truth, seed)}],
                columns=COLUMNS,
            )
            line.to_csv(arguments.out, mode="a", header=not arguments.out.exists(), index=False)
    print(tables(arguments.out))


if __name__ == "__main__":
    main()
