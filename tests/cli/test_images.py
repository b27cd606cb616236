import json
import os
import re
import signal
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from pfdl.cli.main import app
from pfdl.cli.options import read_objective_settings, split_settings
from pfdl.cli.train import RunOptions
from pfdl.vision import DataOptions, TrainingConfig
from pfdl.vision.resume import RunKeeper
from tests.cli.typing_commands import FAST, draw_all, typed


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two classes, two contexts; the classes differ in brightness."""
    contexts = ("in the house", "in the garden")
    return draw_all(tmp_path_factory.mktemp("photos"), contexts, 20, classes=("cat", "[bold]dog"))


TRAINED = f"{FAST.removesuffix('--no-export')} --ratio 2:1 -O pfdl --set pfdl.weight=0.5"


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "run"
    return output, typed(f"train {photos} {TRAINED} -o {output}")


def test_one_command_trains_tests_and_exports(trained):
    output, result = trained
    for text in (
        "by dominant ratio",
        "1:5",
        "5:1",
        "[bold]dog",
        "in the garden",
        "Worst group",
        "calibration",
    ):
        assert text in result.output
    for name in (
        "model.safetensors",
        "config.json",
        "manifest.csv",
        "metrics.csv",
        "export/model.onnx",
    ):
        assert (output / name).is_file()
    assert json.loads((output / "config.json").read_text())["settings"]["training"][
        "objective_settings"
    ] == {"pfdl": {"weight": 0.5}}


def test_the_settings_of_a_run_train_another_one_alike(photos, trained, tmp_path):
    first, _ = trained
    typed(f"train {photos} --config {first} --device cpu --ratio 2:1 --no-export -o {tmp_path}")
    settings = [json.loads((run / "config.json").read_text()) for run in (first, tmp_path)]
    assert settings[0]["settings"] == settings[1]["settings"]


def test_export_writes_where_it_is_told(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("pfdl.vision.checkpoint._to_onnx", lambda trained: b"onnx")
    typed(f"export {trained[0]} -o {tmp_path / 'out'}")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "model.onnx",
        "preprocessing.json",
    }


def test_the_built_in_data_and_a_manifest(tmp_path, monkeypatch):
    from pfdl.data import Shapes, make_split

    manifest = make_split(Shapes(per_cell=14))
    manifest.save(tmp_path / "split.csv")
    result = typed(
        f"train shapes {FAST} --set manifest={tmp_path / 'split.csv'} -o {tmp_path / 'run'}"
    )
    assert "crescent" in result.output
    assert not (tmp_path / "run" / "export").exists()
    result = typed(
        f"train shapes {FAST} --set manifest={tmp_path / 'split.csv'} --ratio 5:1", fails=True
    )
    assert "leave out the ratio 5:1" in result.output


def test_without_onnx_training_still_ends_well(trained, photos, monkeypatch):
    def missing(trained, folder):
        raise ModuleNotFoundError("exporting needs onnx")

    monkeypatch.setattr("pfdl.vision.export", missing)
    result = typed(f"train {photos} {TRAINED} -o {trained[0]}")
    assert "No ONNX file: exporting needs onnx" in result.output


def test_ctrl_c_is_answered_with_how_to_go_on(photos, tmp_path, monkeypatch):
    original = RunKeeper.before_epoch

    def interrupted(self):
        original(self)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RunKeeper, "before_epoch", interrupted)
    result = CliRunner().invoke(app, f"train {photos} {FAST} --ratio 2:1 -o {tmp_path / 'run'}")
    assert result.exit_code == 130
    assert "the same command resumes" in result.output


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("train nowhere", "there is no folder nowhere"),
        ("train shapes -O irm+pfd", "or join several with '+'; did you mean 'pfdl'?"),
        ("train shapes -O pfdl --set pfdl.wieght=1", "did you mean 'weight'?"),
        ("train shapes --set momentum=1 --set momentum=2", "names it twice"),
        ("train shapes --columns labels=animal", "did you mean 'label'?"),
        ("train shapes --contexts inferred --set infer_by=jtt --set jtt.up=5", "it has upweight"),
        ("train shapes --contexts inferred --set infer_by=jt", "did you mean 'jtt'?"),
        ("train shapes -O pfdl --set pfdl.weight=heavy", "weight is 'heavy'; give a number"),
        ("train shapes -b mlp --set small_stem=true", "small-image stem"),
        ("train shapes --device tpu", "the device 'tpu' is not available"),
        ("export nowhere", "there is no run nowhere"),
        ("list friends", "choose one of 'backbones', 'contexts', 'objectives', 'settings'"),
        ("list backbones 'nothing*'", "no backbones match 'nothing*'"),
        ("diagnose nowhere", "nowhere is taken for a run; say where its images are"),
        ("diagnose nowhere.csv", "say which column of nowhere.csv is to be predicted"),
        (
            "diagnose nowhere.csv shapes",
            "is a table: it takes --target and neither images nor --compare",
        ),
        ("diagnose run shapes --compare ./run", "run would be compared with itself"),
        ("diagnose nowhere --target y", "--target is for a table"),
        ("diagnose nowhere.csv --target y", "there is no table nowhere.csv"),
    ],
)
def test_a_mistake_is_a_sentence(line, sentence):
    assert sentence in typed(line, fails=True).output


def test_run_and_images_the_wrong_way_round_are_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}", encoding="utf-8")
    answer = typed("evaluate photos run", fails=True).output
    assert "run is a run and photos is not: name the run first" in answer


def test_the_example_of_a_setting_works():
    text = " ".join(typed("train --help").output.split())
    example = re.search(r"pfdl\.weight=[\d.]+", text)[0]
    found = read_objective_settings("irm+pfdl", split_settings([example, "irm.anneal=3"], ()))
    assert found == {"pfdl": {"weight": 0.1}, "irm": {"anneal": 3}}


def test_what_can_be_listed_is_listed():
    kinds = [line.split()[2] for line in typed("list").output.splitlines()]
    assert kinds == ["objectives", "backbones", "contexts", "settings"]
    described = " ".join(typed("list objectives '*dro'").output.split())
    assert " Needs contexts. Settings: step_size=0.01" in described
    assert "resnet50" in typed("list backbones 'resnet*'").output.splitlines()
    listed = typed("list settings").output
    for kind in (TrainingConfig, DataOptions, RunOptions):
        for one in fields(kind):
            assert re.search(rf"^{one.name} ", listed, re.MULTILINE) or one.name in (
                "objective_settings",
                "infer_settings",
            )
    assert "(--set" not in listed
    chosen = typed("list settings 'weight_*'").output
    words = "weight_decay Weight decay of the optimiser. Default 0.0001. --set weight_decay=VALUE"
    assert chosen.split() == words.split()


def test_help_shows_at_most_twenty_options_and_says_how_to_set_the_rest():
    text = typed("train --help", env={"COLUMNS": "200"}).output
    options = re.findall(r"^│ (--[a-z-]+)", text, re.MULTILINE)
    assert {"--backbone", "--set", "--help"} <= set(options)
    assert len(set(options) - {"--help", "--import"}) <= 20  # every command has these two
    wrong = typed("train shapes --momentum 0.8", fails=True, env={"COLUMNS": "200"})
    assert "--set momentum=VALUE" in wrong.output


def test_settings_of_training_reach_the_run(photos, tmp_path):
    settings = (
        "--learning-rate 0.001 --set select=worst-group --set weight-decay=0.01 --set"
        " tensorboard=false"
    )
    line = (
        f"train {photos} {FAST} --ratio 2:1 -O balance --contexts inferred {settings} -o"
        f" {tmp_path / 'run'}"
    )
    result = typed(line)
    training = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["training"]
    expected = {
        "contexts": "inferred",
        "learning_rate": 0.001,
        "select": "worst-group",
        "weight_decay": 0.01,
    }
    assert training.items() >= expected.items()
    assert json.loads((tmp_path / "run" / "contexts.json").read_text())["sentence"] in result.output
    assert "epoch 1/1: loss" in result.output
    assert not (tmp_path / "run" / "tensorboard").exists()
