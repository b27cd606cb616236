"""Run folders whose files are whole, and do not belong together: noticed, never believed."""

import shutil

import pytest

from pfdl.cli.common import open_run
from pfdl.data import make_split
from pfdl.vision import TrainingConfig, evaluate, load_model, train
from pfdl.vision.checkpoint import WEIGHTS, read_split
from pfdl.vision.config import DataOptions
from pfdl.vision.evaluation import measure_gap, read_evaluations, save_evaluation
from tests.vision.tiny_images import TinySource

PLAN = {"backbone": "mlp", "image_size": 8, "epochs": 1, "batch_size": 16}


def renamed():
    """Return the same images, whose classes have other names."""
    source = TinySource()
    source.samples = [
        sample._replace(class_name=f"no {sample.class_name}") for sample in source.samples
    ]
    return source


def a_run(folder, source, **changes):
    split = make_split(source, ratio="2:1", seed=changes.get("seed", 0))
    config = TrainingConfig(**{**PLAN, **changes})
    trained = train(config, source, split, folder, device="cpu", tensorboard=False)
    save_evaluation(folder, evaluate(load_model(trained), source, split))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        "this": a_run(folder / "this", TinySource()),
        "other classes": a_run(folder / "classes", renamed()),
        "other seed": a_run(folder / "seed", TinySource(), seed=1),
        "other setting": a_run(folder / "setting", TinySource(), learning_rate=0.5),
    }


@pytest.fixture(params=["other classes", "other seed", "other setting"])
def mixed(request, runs, tmp_path):
    """A copy of a run, and what puts files of another one in the place of its own."""
    folder = shutil.copytree(runs["this"], tmp_path / "run")

    def take(*names):
        for name in names:
            shutil.copy(runs[request.param] / name, folder / name)
        return folder

    return take


def test_weights_of_another_run_are_not_loaded(mixed):
    load_model(mixed())
    with pytest.raises(ValueError, match=f"{WEIGHTS} belongs to a run with other settings"):
        load_model(mixed(WEIGHTS))


def test_results_of_another_run_are_left_out_with_a_sentence(mixed):
    problems = []
    assert list(read_evaluations(mixed(), problems)) == ["test"]
    assert not problems
    assert not read_evaluations(mixed("evaluations/test.json"), problems)
    assert "it is of a run with other settings" in problems[0]


def test_a_split_of_other_images_is_not_taken_for_the_own(runs, tmp_path):
    folder = shutil.copytree(runs["this"], tmp_path / "run")
    read_split(folder)
    assert measure_gap(folder, 0.5, 10) is not None
    for name in ("manifest.csv", "manifest.json"):
        shutil.copy(runs["other seed"] / name, folder / name)
    with pytest.raises(ValueError, match="is not the split that this run was trained on"):
        open_run(folder, "shapes", DataOptions())
    assert measure_gap(folder, 0.5, 10) is None


def test_a_config_that_tells_of_another_training_does_not_get_the_weights(mixed):
    with pytest.raises(ValueError, match="belongs to a run with other settings"):
        load_model(mixed("config.json"))
