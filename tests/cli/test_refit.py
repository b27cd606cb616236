"""The command refit: a new last layer for a finished run, on groups that count alike."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from pfdl.cli.main import app
from pfdl.contexts import InferredContexts
from pfdl.vision import refitting as refit
from pfdl.vision.checkpoint import load_model
from pfdl.vision.evaluation import read_evaluations

runner = CliRunner()


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Brightness says the class; the colour is the context and mostly goes with the class, except in the test set."""
    root = tmp_path_factory.mktemp("photos")
    generator = torch.Generator().manual_seed(0)
    for part, usual, rare in (("train", 40, 6), ("val", 24, 8), ("test", 16, 16)):
        for label, name in enumerate(("cat", "dog")):
            for context, colour in enumerate(("red", "blue")):
                folder = root / part / name / colour
                folder.mkdir(parents=True)
                for number in range(usual if context == label else rare):
                    pixels = torch.randint(0, 90, (8, 8, 3), generator=generator) + 40 * label
                    pixels[..., 0 if context == 0 else 2] += 120
                    Image.fromarray(pixels.clamp(max=255).to(torch.uint8).numpy()).save(folder / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "erm"
    fast = ["--backbone", "mlp", "--image-size", "8", "--epochs", "4", "--batch-size", "8", "--device", "cpu"]
    result = invoke("train", photos, *fast, "-O", "erm", "--layout", "class/context", "--no-export", "-o", folder)
    assert result.exit_code == 0, result.output
    return folder


def test_refit_makes_a_run_that_differs_in_the_last_layer_alone(run, photos):
    result = invoke("refit", run, photos, "--contexts", "known", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "Refitted on 8 validation images of each group" in result.output
    new = run.with_name("erm-refit")
    before, after = load_model(run).model.state_dict(), load_model(new).model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert len(changed) == 2
    assert {name.rpartition(".")[2] for name in changed} == {"weight", "bias"}
    told = json.loads((new / "refit.json").read_text())
    assert told["samples_per_group"] == 8
    tested = read_evaluations(new)["test"], read_evaluations(run)["test"]
    assert tested[0].data_sha256 == tested[1].data_sha256
    assert tested[0].worst_group.accuracy >= tested[1].worst_group.accuracy


def test_a_report_takes_refitted_runs(run, photos, tmp_path):
    folder = tmp_path / "refit"
    assert invoke("refit", run, photos, "--contexts", "known", "--device", "cpu", "-o", folder).exit_code == 0
    result = invoke("report", run, folder, "-o", tmp_path / "report.html")
    assert result.exit_code == 0, result.output
    assert "refit" in (tmp_path / "report.html").read_text()


def test_what_cannot_be_refitted_is_answered_with_a_sentence(run, photos):
    result = invoke("refit", run, photos, "-o", run, "--contexts", "known", "--device", "cpu")
    assert result.exit_code == 2
    assert "name another folder" in result.output
    result = invoke("refit", run, photos, "--contexts", "guessed", "--device", "cpu")
    assert result.exit_code == 2
    assert "known" in result.output


def test_where_no_contexts_are_found_nothing_is_refitted(run, photos, tmp_path):
    result = invoke("refit", run, photos, "-o", tmp_path / "new", "--device", "cpu")
    assert result.exit_code == 2
    assert "nothing was refitted. All samples are one context" in result.output
    assert "the data has contexts of its own, which --contexts known uses" in result.output
    assert not (tmp_path / "new").exists()


def test_inferred_contexts_are_those_of_the_images_that_are_refitted_on(run, photos, tmp_path, monkeypatch):
    def find(images, labels, seed):
        red = [int(image[0].float().mean() > image[2].float().mean()) for image, *_ in images]
        return InferredContexts(np.array(red), "pooled", "Found 2 contexts by their colour.", ())

    monkeypatch.setattr(refit, "find_contexts", find)
    result = invoke("refit", run, photos, "-o", tmp_path / "new", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "Found 2 contexts by their colour." in result.output
    assert "Refitted on 8 validation images of each group" in result.output
    assert json.loads((tmp_path / "new" / "contexts.json").read_text())["number"] == 2
