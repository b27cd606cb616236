"""Run folders for tests of the report: parts of the published ones, and trainings that are made
up.
"""

import json
from pathlib import Path

import pandas as pd
import pytest
from tests.browsing import HOSTILE

from pfdl.contexts import GroupAccuracy
from pfdl.vision.evaluation import Evaluation, save_evaluation

EVIDENCE = Path(__file__).parents[3] / "evidence"
MADE_WITH = {
    "pfdl": "0.1.0",
    "torch": "2.9.0",
    "python": "3.11.9",
    "git_revision": "0123456789abcdef",
    "hardware": {"cpu": "A fast one", "cpu_count": 2, "gpu": [], "platform": "Linux"},
    "started": "2026-01-02T03:04:05+00:00",
}
RATIOS = ("1:5", "1:3", "1:1", "2:1", "3:1", "4:1", "5:1")


def write_config(folder, kind, settings, made_with=MADE_WITH):
    folder.mkdir(parents=True, exist_ok=True)
    content = {"format": "pfdl-run-2", "kind": kind, "settings": settings, "made_with": made_with}
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def needs_evidence():
    """Skip where the records of the studies are not, as in a distribution."""
    if not EVIDENCE.is_dir():
        pytest.skip("there is no folder evidence/: it is in no distribution")


def copy_published(name, folder, lines, **settings):
    """Copy a study: the lines of its records that a query chooses, with some other settings."""
    needs_evidence()
    published = json.loads((EVIDENCE / name / "config.json").read_text(encoding="utf-8"))
    write_config(folder, published["kind"], {**published["settings"], **settings})
    records = pd.read_csv(EVIDENCE / name / "results.csv.gz", low_memory=False)
    records.query(lines).to_csv(folder / "results.csv", index=False)
    return folder


def make_training(
    folder, objective="pfdl", epochs=3, evaluated=True, contexts=("snow", HOSTILE), images="a1"
):
    training = {
        "backbone": "cn-bn",
        "objective": objective,
        "seed": 0,
        "epochs": 3,
        "sampler": "shuffle",
    }
    write_config(folder, "training", {"model": {"backbone": "cn-bn"}, "training": training})
    curve = pd.DataFrame(
        {"epoch": range(epochs), "learning_rate": 0.01, "val_accuracy": [0.2, 0.3, 0.25][:epochs]}
    )
    if objective == "pfdl":
        curve = curve.assign(
            L_g=[0.9, 0.5, 0.4][:epochs],
            L_decorr=[1e-3, 5e-4, 4e-4][:epochs],
            R2=[0.1, 0.2, 0.3][:epochs],
        )
    curve.to_csv(folder / "metrics.csv", index=False)
    if evaluated:
        first, last = (*contexts[:1], *contexts[-1:]) or ("", "")
        groups = [GroupAccuracy("cat", last, 0.1, 9), GroupAccuracy("dog", first, 0.6, 30)]
        evaluation = Evaluation(
            name="test",
            data_sha256=images,
            images=80,
            overall=0.45,
            average_in_training_mixture=None,
            worst_group=groups[0],
            groups=tuple(groups),
            by_label={"cat": 0.4, "dog": 0.5},
            by_context={name: 0.3 + 0.1 * number for number, name in enumerate(contexts)},
            by_ratio=dict(zip(RATIOS, (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), strict=True)),
            calibration_error=0.0512,
        )
        save_evaluation(folder, evaluation)
    return folder


def make_all(folder):
    copy_published("mmads", folder / "mmads", "n == 2000 and p == 20 and r == 1.7 and seed < 102")
    copy_published("colored-mnist", folder / "colored", "restart < 2")
    copy_published("nico", folder / "images", "seed < 3")
    make_training(folder / "trained-pfdl")
    make_training(folder / "trained-erm", objective="erm")
    return folder
