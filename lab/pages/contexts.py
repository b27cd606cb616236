"""Why contexts are believed or not: every check, for what pfdl.infer_contexts finds and for the true contexts.

    python lab/pages/contexts.py shapes shapes-0.75 pacs colored-mnist --mnist DIR --out contexts.csv
    python lab/pages/contexts.py --without mnist=DIR fashion-mnist=DIR --out contexts.csv
    python lab/pages/contexts.py --out contexts.csv   # prints the table of what is there

Nothing of a test set is read. If the true contexts fail a check, the check is too strict for these data; if they pass
and ours do not, the wrong contexts were found. ``--without`` names data that have no contexts: folders with the files
of MNIST, of which 6,000 images are drawn. A line is written for every candidate of every seed; the table has means over
the seeds.
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
from pfdl.contexts.confirmation import confirm
from pfdl.contexts.inference import LEAST_AGREEMENT, METHODS
from pfdl.data.context_images import store_images
from pfdl.vision.config import DataOptions
from pfdl_lab.cli.study import make_datasets
from pfdl_lab.report.markdown import markdown_table

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "contexts.csv"
TRUE = "true contexts"
PLAIN = 6000
IMAGE_SIZE = 64
PARTS = ("images-idx3", "labels-idx1")
Sample = tuple[str, int, Tensor, np.ndarray, np.ndarray | None]  # data set, seed, features, labels, true contexts


def study_samples(arguments: argparse.Namespace) -> Iterator[Sample]:
    """Yield the training sides of the study's splits."""
    options = DataOptions(layout=arguments.layout, on_bad_image="skip")
    datasets = make_datasets(arguments.data, arguments.group_by, arguments.mnist, options)
    with tempfile.TemporaryDirectory() as folder:
        for number, dataset in enumerate(datasets):
            source = dataset.open()
            images = None if source is None else store_images(source, Path(folder) / str(number), IMAGE_SIZE)
            for seed in arguments.seeds:
                split = dataset.split(seed, network=arguments.backbone, images=images)
                truth = split.train.contexts.numpy() if split.has_contexts else None
                yield dataset.name, seed, split.context_features(), split.train.labels.numpy(), truth


def samples_without(arguments: argparse.Namespace) -> Iterator[Sample]:
    """Yield images that have no contexts."""
    for entry in arguments.without:
        name, _, folder = entry.partition("=")
        contents = [gzip.decompress((Path(folder) / f"train-{kind}-ubyte.gz").read_bytes()) for kind in PARTS]
        images = np.frombuffer(contents[0], np.uint8, offset=16).reshape(-1, 28, 28)
        labels = np.frombuffer(contents[1], np.uint8, offset=8)
        for seed in arguments.seeds:
            rows = np.random.default_rng(seed).permutation(len(labels))[:PLAIN]
            yield name, seed, image_statistics(images[rows][:, None]), labels[rows].astype(np.intp), None


def check(method: str, features: Tensor, labels: np.ndarray, truth: np.ndarray | None, seed: int) -> dict[str, object]:
    """Put one candidate through every check, also where an earlier one fails."""
    if method == TRUE:
        contexts, stability = truth, 1.0
    else:
        found = find_contexts(features, labels, method=method, confirmation=0.0, seed=seed)
        contexts, stability = found.contexts, found.tried[0].stability
    array = features.double().numpy()
    spread = array.std(axis=0)
    z = ((array - array.mean(axis=0)) / np.where(spread > 0, spread, 1.0))[:, spread > 0]
    trial = confirm(method, stability, z, labels, contexts, seed=seed)
    return {
        "candidate": method,
        "number": trial.number,
        "agreement": "" if truth is None else round(adjusted_rand_score(truth, contexts), 3),
        "stability": round(stability, 3),
        "association": round(trial.association, 3),
        **{name: round(100 * getattr(trial, name), 1) for name in ("usual", "unusual", "gain", "gain_error")},
        "believed": int(trial.accepted and stability >= LEAST_AGREEMENT.get(method, 1.0)),
    }


def tables(path: Path = RESULTS) -> str:
    """Return the means over seeds of a CSV file as Markdown."""
    lines, rows = pd.read_csv(path), []
    for (data, candidate), part in lines.groupby(["data", "candidate"], sort=False):
        mean = part.mean(numeric_only=True)
        measured = not np.isnan(mean["gain"])
        rows.append(
            [
                data,
                candidate,
                f"{mean['number']:.1f}",
                "no contexts" if np.isnan(mean["agreement"]) else f"{mean['agreement']:.2f}",
                "given" if candidate == TRUE else f"{mean['stability']:.2f}",
                f"{mean['association']:.2f}",
                f"{mean['usual']:.0f} / {mean['unusual']:.0f}" if measured else "not measured",
                f"{mean['gain']:+.1f} ± {mean['gain_error']:.1f}" if measured else "not measured",
                f"{part['believed'].sum()} of {len(part)}",
            ]
        )
    columns = ["data", "candidate", "contexts", "ARI", "stability", "Cramér's V", "usual / unusual", "gain", "believed"]
    return markdown_table(columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="as for pfdl study")
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME=DIR", help="data without contexts")
    parser.add_argument("--group-by", nargs="*", default=[], help="as for pfdl study")
    parser.add_argument("--layout", help="as for pfdl study")
    parser.add_argument("--mnist", type=Path, help="folder of the MNIST files")
    parser.add_argument("--backbone", default="small", help="as for pfdl study")
    parser.add_argument("--methods", nargs="+", default=[name for name in METHODS if name not in ("auto", "errors")])
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--out", type=Path, required=True, help="a CSV file, to which lines are added")
    arguments = parser.parse_args()
    for samples in (study_samples(arguments), samples_without(arguments)):
        for name, seed, features, labels, truth in samples:
            for method in [*([] if truth is None else [TRUE]), *arguments.methods]:
                line = pd.DataFrame([{"data": name, "seed": seed, **check(method, features, labels, truth, seed)}])
                line.to_csv(arguments.out, mode="a", header=not arguments.out.exists(), index=False)
    print(tables(arguments.out))


if __name__ == "__main__":
    main()
