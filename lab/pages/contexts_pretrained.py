"""Are contexts found in the features of a pretrained network, and how much of what the true ones
give do they give?

    python lab/pages/contexts_pretrained.py PACS --store DIR --seeds 240 241 242 243 244 245 246 247
    248 249 python lab/pages/contexts_pretrained.py   # prints the tables of
    docs/results/contexts-pretrained.csv

Splits of PACS at 5:1, features of EfficientNet-lite0 at 96×96 (computed once, into ``--store``), a
logistic readout with C = 0.05. The readout is trained four times: plainly, with classes balanced,
with the groups of the true contexts balanced, and with those of the inferred ones; where nothing is
accepted the last is that of balanced classes. A line of the CSV is a split; accuracies are in
percent, at 1:5 (contexts reversed) and 5:1 (as in training).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_sample_weight

from pfdl.contexts import find_contexts, group_report
from pfdl.data.context_images import store_images
from pfdl_lab.images.data import ImageData
from pfdl_lab.images.networks import FEATURES, FROZEN, write_features
from pfdl_lab.pairing import holm, paired
from pfdl_lab.report.markdown import markdown_table

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "contexts-pretrained.csv"
STRENGTH = 0.05
TESTS = ("1:5", "5:1")
FIRST_DECLARED = 240
"""From this seed on inferred contexts against balanced classes, at both tests, were declared before
they were run.
"""
ROWS = {
    "erm": "ERM",
    "classes": "classes balanced",
    "true": "true contexts",
    "inferred": "inferred contexts",
}


def measure(data: ImageData, folder: Path, seed: int) -> dict[str, object]:
    split = data.split(seed, network=FROZEN, images=folder)
    labels, truth = split.train.labels.numpy(), split.train.contexts.numpy()
    start = time.process_time()
    found = find_contexts(split.context_features(), labels, seed=seed)
    line: dict[str, object] = {
        "seed": seed,
        "believed": int(found.number > 1),
        "method": found.method,
        "contexts": found.number,
        "ari": round(group_report(labels, found.contexts, truth).ari, 3),
        "cpu_seconds": round(time.process_time() - start, 1),
    }
    print(f"seed {seed}: {found.sentence}", flush=True)
    groups = {
        "erm": np.zeros_like(labels),
        "classes": labels,
        "true": labels * 100 + truth,
        "inferred": labels * 100 + found.contexts,
    }
    for row, group in groups.items():
        readout = LogisticRegression(C=STRENGTH, max_iter=300)
        readout.fit(
            split.train.inputs.numpy(),
            labels,
            sample_weight=compute_sample_weight("balanced", group),
        )
        right = readout.predict(split.test.inputs.numpy()) == split.test.labels.numpy()
        line |= {
            f"{row} {test}": round(100 * right[split.tests[test].numpy()].mean(), 2)
            for test in TESTS
        }
    return line


def tables(path: Path = RESULTS) -> str:
    """Return a table of each ten of seeds, which were looked at together."""
    results = pd.read_csv(path).sort_values("seed")
    return "\n\n".join(table(part) for _, part in results.groupby(results["seed"] // 10))


def table(results: pd.DataFrame) -> str:
    rows = [
        [
            name,
            *(
                f"{results[f'{row} {test}'].mean():.1f} ± {results[f'{row} {test}'].sem():.1f}"
                for test in TESTS
            ),
        ]
        for row, name in ROWS.items()
    ]
    beyond = {row: results[f"{row} 1:5"] - results["classes 1:5"] for row in ("inferred", "true")}
    cost = results["inferred 5:1"] - results["classes 5:1"]
    summary = (
        f"Accepted in {results['believed'].sum()} of {len(results)} splits. Beyond balanced classes"
        f" the inferred contexts add {beyond['inferred'].mean():+.1f} ±"
        f" {beyond['inferred'].sem():.1f} points at 1:5, the true ones {beyond['true'].mean():+.1f}"
        f" ± {beyond['true'].sem():.1f}: {beyond['inferred'].sum() / beyond['true'].sum():.0%} of"
        f" their gain. At 5:1 the inferred ones change {cost.mean():+.1f} ± {cost.sem():.1f}"
        " points."
    )
    if results["seed"].min() >= FIRST_DECLARED:
        found = [paired(results[f"inferred {test}"], results[f"classes {test}"]) for test in TESTS]
        adjusted = holm([one.p_value for one in found if one])
        summary += (
            f" Holm's p over these two declared tests: {adjusted[0]:.2g} and {adjusted[1]:.2g}."
        )
    seeds = f"Seeds {results['seed'].min()} to {results['seed'].max()}:"
    return "\n".join([seeds, "", markdown_table(["readout", *TESTS], rows), "", summary])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", nargs="?", help="folder of PACS, class/style; without it tables are printed"
    )
    parser.add_argument("--store", type=Path, help="where features are kept")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(range(FIRST_DECLARED, FIRST_DECLARED + 10))
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    if settings.data is not None:
        data = ImageData(settings.data)
        if not (settings.store / FEATURES).exists():
            write_features(store_images(data.open(), settings.store, 96))
        lines = pd.read_csv(settings.out).to_dict("records") if settings.out.exists() else []
        for seed in settings.seeds:
            if seed not in {line["seed"] for line in lines}:
                lines.append(measure(data, settings.store, seed))
                pd.DataFrame(lines).to_csv(settings.out, index=False)
    print(tables(settings.out))


if __name__ == "__main__":
    main()
