import json
import os
import signal
import sys

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from pfdl.cli import train as cli_train
from pfdl.cli.main import app
from pfdl.vision.resume import ResumeCallback

runner = CliRunner()
FAST = ["--backbone", "mlp", "--image-size", "8", "--epochs", "1", "--batch-size", "8", "--device", "cpu"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two classes, two contexts; the classes differ in brightness."""
    root = tmp_path_factory.mktemp("photos")
    generator = torch.Generator().manual_seed(0)
    for label, name in enumerate(("cat", "[bold]dog")):
        for context in ("indoors", "outdoors"):
            (root / name / context).mkdir(parents=True)
            for number in range(20):
                pixels = torch.randint(0, 100, (8, 8, 3), generator=generator) + 120 * label
                Image.fromarray(pixels.to(torch.uint8).numpy()).save(root / name / context / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["train", str(photos), *FAST, "--ratio", "2:1", "--set", "pfdl.smoothing=0.5", "-o", str(output)]
    return output, runner.invoke(app, arguments)


def test_one_command_trains_tests_and_exports(trained):
    output, result = trained
    assert result.exit_code == 0, result.output
    for text in ("by dominant ratio", "1:5", "5:1", "[bold]dog", "outdoors", "Worst group", "calibration"):
        assert text in result.output
    for name in ("model.safetensors", "config.json", "manifest.csv", "metrics.csv", "export/model.onnx"):
        assert (output / name).is_file()
    assert json.loads((output / "config.json").read_text())["settings"]["training"]["objective_settings"] == {
        "pfdl": {"smoothing": 0.5}
    }


def test_evaluate_gives_the_figures_of_the_end_of_training(trained, photos):
    output, result = trained
    at_the_end = (output / "evaluation.json").read_text()
    again = runner.invoke(app, ["evaluate", str(output), str(photos), "--device", "cpu"])
    assert again.exit_code == 0, again.output
    assert (output / "evaluation.json").read_text() == at_the_end
    assert again.output.strip() in result.output


def test_export_writes_where_it_is_told(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("pfdl.vision.export._to_onnx", lambda trained: b"onnx")
    result = runner.invoke(app, ["export", str(trained[0]), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "model.onnx",
        "preprocessing.json",
        "weights.safetensors",
    }


def test_the_built_in_data_and_a_manifest(tmp_path, monkeypatch):
    from pfdl.data import ProceduralContexts, make_split

    manifest = make_split(ProceduralContexts(per_cell=14))
    manifest.save(tmp_path / "split.csv")
    where = ["--manifest", str(tmp_path / "split.csv"), "-o", str(tmp_path / "run"), "--no-export"]
    result = runner.invoke(app, ["train", "contexts", *FAST, *where])
    assert result.exit_code == 0, result.output
    assert "crescent" in result.output
    assert not (tmp_path / "run" / "export").exists()


def test_without_onnx_training_still_ends_well(trained, photos, monkeypatch):
    def missing(trained, folder):
        raise ModuleNotFoundError("exporting needs onnx")

    monkeypatch.setattr("pfdl.vision.export.export", missing)
    arguments = ["train", str(photos), *FAST, "--ratio", "2:1", "--set", "pfdl.smoothing=0.5", "-o", str(trained[0])]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert "No ONNX file: exporting needs onnx" in result.output


def test_ctrl_c_is_answered_with_how_to_go_on(photos, tmp_path, monkeypatch):
    original = ResumeCallback.on_train_batch_start

    def interrupted(self, *args):
        original(self, *args)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ResumeCallback, "on_train_batch_start", interrupted)
    result = runner.invoke(app, ["train", str(photos), *FAST, "--ratio", "2:1", "-o", str(tmp_path / "run")])
    assert result.exit_code == 130
    assert "the same command resumes" in result.output


def test_bad_images_are_named(photos, tmp_path):
    import shutil

    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    (folder / "cat" / "indoors" / "empty.png").touch()
    arguments = ["train", str(folder), *FAST, "--ratio", "2:1", "--no-export"]
    refused = runner.invoke(app, [*arguments, "-o", str(tmp_path / "a")])
    assert refused.exit_code == 2
    assert "empty.png" in refused.output
    skipped = runner.invoke(app, [*arguments, "-o", str(tmp_path / "b"), "--on-bad-image", "skip"])
    assert skipped.exit_code == 0, skipped.output
    assert "empty.png" in skipped.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "nowhere"], "there is no folder nowhere"),
        (["train", "contexts", "-b", "resnet19"], "did you mean 'resnet18'"),
        (["train", "contexts", "-O", "sgd"], "'sgd' in the objective 'sgd' is unknown"),
        (["train", "contexts", "--set", "pfdl.colour=1"], "unexpected keyword argument 'colour'"),
        (["train", "contexts", "-O", "pfdl", "--set", "pfdl.form=round"], "form is 'round'"),
        (["train", "contexts", "--set", "weight"], "give PART.NAME=VALUE"),
        (["train", "contexts", "--precision", "8"], "precision is '8'"),
        (["train", "contexts", "-b", "cn", "--small-stem"], "small-image stem"),
        (["train", "contexts", "--device", "tpu"], "the device 'tpu' is not available"),
        (["evaluate", "nowhere", "contexts"], "there is no run nowhere"),
        (["export", "nowhere"], "there is no run nowhere"),
        (["list", "friends"], "choose one of 'backbones', 'objectives'"),
        (["list", "backbones", "nothing*"], "no backbones match 'nothing*'"),
    ],
)
def test_a_mistake_is_a_sentence(arguments, sentence):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_group_dro_is_told_its_groups_later():
    assert cli_train._parse_settings("groupdro", ["groupdro.step_size=0.1"]) == {"groupdro": {"step_size": 0.1}}


def test_names_are_listed():
    assert runner.invoke(app, ["list", "objectives", "*dro"]).output == "groupdro\n"
    assert "resnet50" in runner.invoke(app, ["list", "backbones", "resnet*"]).output.splitlines()


@pytest.mark.parametrize("arguments", [["train", "contexts"], ["reproduce", "contexts"]])
def test_a_missing_package_is_named_with_what_to_install(arguments, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[:2] in (["pfdl", "training"], ["pfdl", "lightning"])]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("pfdl.experiments.contexts.run", "pfdl.experiments.contexts.report"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert "pfdl[images]" in result.output
