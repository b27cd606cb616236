"""An operation that raises leaves the object, or the folder, as it was."""

import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, is_classifier

import pfdl.tabular
from pfdl._internal.state import save_state
from pfdl.data.manifest import Manifest, ManifestRow
from pfdl.runs import claim, set_aside
from pfdl.vision import Classifier, TrainingConfig
from tests.hostile.tampering import files, full_disk
from tests.states import StateTester, each
from tests.vision.tiny_images import tiny_data


class TestStatesOfClassifiers(StateTester):
    name = each(["stablenet+irm+pfdl"])
    ours = "objective."

    def make(self, name, seed=0):
        torch.manual_seed(seed)
        return Classifier(TrainingConfig("mlp", name, image_size=8, augment="none"), 2)

    def use(self, thing, seed=0):
        pictures = torch.randint(
            256, (8, 3, 8, 8), generator=torch.Generator().manual_seed(seed)
        ).byte()
        return thing.loss_of([pictures, torch.arange(8) % 2, torch.arange(8) // 2 % 2]).detach()


def a_run(folder: Path) -> Path:
    with claim(folder / "run", "training", {"seed": 1}):
        save_state(folder / "run" / "resume.safetensors", {"epoch": 1})
    return folder / "run"


def claim_and_raise(run: Path, settings: dict[str, Any]) -> None:
    with claim(run, "training", settings):
        raise KeyError("in the middle of the work")


def a_manifest(folder: Path) -> Path:
    tiny_data()[1].save(folder / "manifest.csv")
    return folder


def _row(side: str) -> ManifestRow:
    return ManifestRow(f"{side}.png", "cat", "", "0" * 64, side, (side,))


FAILURES = {
    "other settings": (a_run, lambda run: claim_and_raise(run, {"seed": 2})),
    "work that fails": (a_run, lambda run: claim_and_raise(run, {"seed": 1})),
    "a state that cannot be kept": (
        a_run,
        lambda run: save_state(run / "resume.safetensors", {"epoch": object()}),
    ),
    "a missing file set aside": (a_run, lambda run: set_aside(run / "absent", "It is absent.")),
    "a wrong name": (a_manifest, lambda folder: tiny_data(seed=5)[1].save(folder / "manifest.txt")),
    "a leak": (
        a_manifest,
        lambda folder: Manifest((_row("train"), _row("test")), {}).save(folder / "manifest.csv"),
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_what_raises_changes_nothing(failure, tmp_path):
    make, fail = FAILURES[failure]
    folder = make(tmp_path)
    before = files(folder)
    with pytest.raises(Exception):  # noqa: B017, PT011, which one is tested elsewhere
        fail(folder)
    assert files(folder) == before


@pytest.mark.parametrize("fits", [0, 1])
def test_a_full_disk_leaves_both_files_of_a_manifest(fits, tmp_path):
    before = files(a_manifest(tmp_path))
    with full_disk(fits), pytest.raises(OSError, match="No space left on device"):
        tiny_data(seed=5)[1].save(tmp_path / "manifest.csv")
    assert files(tmp_path) == before


def table(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    X = rng.normal(size=(rows, columns))
    return X, (X[:, 0] + 0.1 * rng.normal(size=rows) > 0).astype(float)


def bad_tables() -> dict[str, tuple[Any, Any]]:
    """Tables of another width than the first one, each with something that no estimator can use."""
    X, y = table(40, 5)
    return {
        "a NaN": (np.where(X.max() == X, np.nan, X), y),
        "an infinity": (np.where(X.max() == X, np.inf, X), y),
        "too few labels": (X, y[:-1]),
        "no rows": (X[:0], y[:0]),
        "no columns": (X[:, :0], y),
        "words": (X.astype(str) + "x", y),
        "labels that are NaN": (X, y * np.nan),
        "one class": (X, np.ones(40)),
    }


def estimators() -> dict[str, type[BaseEstimator]]:
    found = {name: getattr(pfdl.tabular, name) for name in pfdl.tabular.__all__}
    return {
        name: one
        for name, one in found.items()
        if isinstance(one, type) and issubclass(one, BaseEstimator)
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", estimators())
def test_a_fit_that_raises_leaves_the_fitted_estimator(name):
    estimator = estimators()[name]()
    if name == "PFDLRegressor":
        estimator.set_params(max_iter=20)  # 5,000 steps of g would show no more
    needs_groups = "groups" in inspect.signature(estimator.fit).parameters

    def fit(X: Any, y: Any) -> None:
        estimator.fit(X, y, **({"groups": np.arange(len(X)) % 2} if needs_groups else {}))

    fit(*table(60, 3))
    before = pickle.dumps(vars(estimator))
    fine = {"a NaN"} if estimator.__sklearn_tags__().input_tags.allow_nan else set()
    fine |= set() if is_classifier(estimator) else {"one class"}
    for X, y in [bad for name, bad in bad_tables().items() if name not in fine]:
        with pytest.raises((ValueError, TypeError)):
            fit(X, y)
        assert pickle.dumps(vars(estimator)) == before
