"""Run folders with made-up results, in the format of pfdl._internal.runs, for tests of the report."""

import json

import pandas as pd
from tests.report.browsing import HOSTILE

from pfdl.contexts import GroupAccuracy
from pfdl.data.mmads import true_coefficients
from pfdl.vision.evaluation import Evaluation, save_evaluation
from pfdl_lab.mmads.run import FIGURE_CELL, METHODS, TEST_RATES

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


def make_images(folder, rows=("erm", "pfdl"), seeds=3, gain=1.0):
    """PFDL is better than plain training by ``gain``, give or take a tenth from seed to seed."""
    settings = {"epochs": 2, "seeds": seeds, "rows": list(rows), "command": "pfdl reproduce nico shapes"}
    write_config(folder, "images", settings)
    lines = [
        {
            "data": "shapes",
            "backbone": "resnet18",
            "row": row,
            "seed": seed,
            "epoch": "last",
            "test": test,
            "value": 30 + 3 * place + seed + (row == "pfdl") * (gain + seed / 10),
        }
        for row in rows
        for seed in range(seeds)
        for place, test in enumerate((*RATIOS, "whole", "worst group"))
    ]
    pd.DataFrame(lines).to_csv(folder / "results.csv", index=False)
    return folder


def make_training(folder, objective="pfdl", epochs=3, evaluated=True, contexts=("snow", HOSTILE), images="a1"):
    training = {"backbone": "cn-bn", "objective": objective, "seed": 0, "epochs": 3, "patience": None}
    write_config(folder, "training", {"model": {"backbone": "cn-bn"}, "training": training})
    curve = pd.DataFrame({"epoch": range(epochs), "learning_rate": 0.01, "val_accuracy": [0.2, 0.3, 0.25][:epochs]})
    if objective == "pfdl":
        curve = curve.assign(
            L_g=[0.9, 0.5, 0.4][:epochs], L_decorr=[1e-3, 5e-4, 4e-4][:epochs], R2=[0.1, 0.2, 0.3][:epochs]
        )
    curve.to_csv(folder / "metrics.csv", index=False)
    if evaluated:
        groups = [GroupAccuracy("cat", contexts[-1], 0.1, 9), GroupAccuracy("dog", contexts[0], 0.6, 30)]
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


def mmads_rows(setting="independent", cell=FIGURE_CELL, seed=0):
    """What one task would give: the error of screening is 0.4 everywhere, all others' grows with −r_test."""
    n, p, r = cell
    names = [f"S{i + 1}" for i in range(p // 2)] + [f"V{i + 1}" for i in range(p - p // 2)]
    rows = []
    for number, method in enumerate(METHODS):
        stable = method.startswith("Screened")
        errors = {
            f"rmse[{rate:g}]": 0.4 if stable else 0.8 - 0.1 * rate + number / 100 + seed / 100 for rate in TEST_RATES
        }
        mean = sum(errors.values()) / len(errors)
        values = {
            "beta_s_error": 0.3,
            "beta_v_error": 0.0 if stable else 0.07,
            "ae": mean,
            "se": 0.0 if stable else 0.3,
            **errors,
        }
        if cell == FIGURE_CELL:
            truth = dict(zip(names, true_coefficients(p), strict=True))
            values |= {f"beta[{name}]": 0.0 if stable and name[0] == "V" else truth[name] + 0.1 for name in names}
        rows += [{"method": method, "metric": metric, "value": float(value)} for metric, value in values.items()]
    task = {"setting": setting, "n": n, "p": p, "r": r, "seed": seed}
    return task, rows


def make_mmads(folder, seeds=3, planned_seeds=None):
    cells = [list(FIGURE_CELL), [1000, 10, 1.7]]
    settings = {"cells": cells, "settings": ["independent"], "seeds": planned_seeds or seeds, "num_test": 100}
    write_config(folder, "mmads", {**settings, "command": "pfdl reproduce mmads --quick"})
    lines = []
    for cell in cells:
        for seed in range(seeds):
            task, rows = mmads_rows(cell=tuple(cell), seed=seed)
            lines += [{**task, **row} for row in rows]
    pd.DataFrame(lines).to_csv(folder / "results.csv", index=False)
    return folder


def make_colored(folder, rows=("erm", "irm", "erm-pfdl", "irm-pfdl-1"), restarts=2, planned=()):
    settings = {"digits": "scikit-learn's digits (not MNIST)", "restarts": restarts, "seed": 4, "max_train": 100}
    write_config(folder, "colored-mnist", {**settings, "max_hidden": 8, "rows": [*rows, *planned], "command": None})
    lines = [
        {
            "row": row,
            "restart": restart,
            "train_accuracy": 90 - number + restart,
            "test_accuracy": 20 + 10 * number + restart,
            "held_out_risk_0.2": 0.5,
            "held_out_risk_0.1": 0.4,
        }
        for number, row in enumerate(rows)
        for restart in range(restarts)
    ]
    pd.DataFrame(lines).to_csv(folder / "results.csv", index=False)
    return folder


def make_all(folder):
    make_mmads(folder / "mmads")
    make_colored(folder / "colored")
    make_images(folder / "images")
    make_training(folder / "trained-pfdl")
    make_training(folder / "trained-erm", objective="erm")
    return folder
