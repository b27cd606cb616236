"""The command refit: a new last layer for a finished run, on groups that count alike."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from pfdl.contexts import InferredContexts
from pfdl.data import make_split
from pfdl.runs import read_run
from pfdl.vision import inferring, refitting as refit
from pfdl.vision.checkpoint import ModelConfig, TrainedModel, load_model
from pfdl.vision.evaluation import read_evaluations
from tests.cli.typing_commands import FAST, draw, draw_all, typed
from tests.vision.tiny_images import TinySource


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Brightness says the class; the colour is the context and mostly goes with the class, except
    in the test set.
    """
    root = tmp_path_factory.mktemp("photos")
    for seed, (part, usual, rare) in enumerate(
        (("train", 40, 6), ("val", 24, 8), ("test", 16, 16))
    ):
        for label, name in enumerate(("cat", "dog")):
            for context, colour in enumerate(("red", "blue")):
                count = usual if context == label else rare
                where = {
                    "seed": 10 * seed + 2 * label + context,
                    "brightness": 40 * label,
                    "channel": 2 * context,
                }
                draw(root / part / name / colour, count, **where)
    return root


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "erm"
    typed(
        f"train {photos} {FAST.replace('--epochs 1', '--epochs 4')} --layout class/context -o"
        f" {folder}"
    )
    return folder


def test_refit_makes_a_run_that_differs_in_the_last_layer_alone(run, photos):
    result = typed(f"refit {run} {photos} --contexts known --device cpu")
    assert "Refitted on 8 validation images of each group" in result.output
    new = run.with_name("erm-refit")
    before = load_model(run).model.state_dict()
    after = load_model(new).model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert len(changed) == 2
    assert {name.rpartition(".")[2] for name in changed} == {"weight", "bias"}
    told = json.loads((new / "refit.json").read_text())
    assert told["samples_per_group"] == 8
    tested = read_evaluations(new)["test"], read_evaluations(run)["test"]
    assert tested[0].data_sha256 == tested[1].data_sha256
    assert tested[0].worst_group.accuracy >= tested[1].worst_group.accuracy
    assert read_run(new).kind == "training"


def test_what_cannot_be_refitted_is_answered_with_a_sentence(run, photos, tmp_path):
    line = f"refit {run} {photos} --device cpu --contexts"
    assert "name another folder" in typed(f"{line} known -o {run}", fails=True).output
    assert "known" in typed(f"{line} guessed", fails=True).output
    draw_all(tmp_path, count=1)
    assert (
        "not what the run was trained on"
        in typed(f"refit {run} {tmp_path} -o {run}-new", fails=True).output
    )


def test_known_contexts_must_be_there(tmp_path):
    source = TinySource(contexts=("",))
    split = make_split(source)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    trained = TrainedModel(model, ModelConfig("own", split.classes, 8), tmp_path)
    with pytest.raises(ValueError, match="the validation images have no contexts"):
        refit.refit(trained, source, split, tmp_path / "new", contexts="known")


def test_where_no_contexts_are_found_nothing_is_refitted(run, photos, tmp_path):
    result = typed(f"refit {run} {photos} -o {tmp_path / 'new'} --device cpu", fails=True)
    assert "nothing was refitted. All samples are one context" in result.output
    assert "the data has contexts of its own, which --contexts known uses" in result.output
    assert not (tmp_path / "new").exists()


def test_inferred_contexts_are_those_of_the_images_that_are_refitted_on(
    run, photos, tmp_path, monkeypatch
):
    def find(images, labels, **settings):
        red = [int(image[0].float().mean() > image[2].float().mean()) for image, *_ in images]
        return InferredContexts(np.array(red), "pooled", "Found 2 contexts by their colour.", ())

    monkeypatch.setattr(inferring, "find_contexts", find)
    result = typed(f"refit {run} {photos} -o {tmp_path / 'new'} --device cpu")
    assert "Found 2 contexts by their colour." in result.output
    assert "Refitted on 8 validation images of each group" in result.output
    assert json.loads((tmp_path / "new" / "contexts.json").read_text())["number"] == 2
    table = pd.read_csv(tmp_path / "new" / "contexts.csv")
    red = table["path"].str.contains("/red/")
    assert (table["context"] == red).all()
    assert table["path"].str.startswith(("train/", "val/")).all()


def test_a_refit_that_would_teach_the_shortcut_is_refused(run, photos, tmp_path, monkeypatch):
    def find(images, labels, **settings):
        red = np.array([bool(image[0].sum() > image[2].sum()) for image, *_ in images])
        # The dogs in red are taken for dogs in blue, as rare groups of inferred contexts are
        red_cats = red & (np.asarray(labels.tolist()) == 0)
        return InferredContexts(red_cats.astype(int), "early", "Found 2.")

    monkeypatch.setattr(inferring, "find_contexts", find)
    result = typed(f"refit {run} {photos} -o {tmp_path / 'new'} --device cpu", fails=True)
    assert "context 1 has 4 samples or more of cat alone" in result.output
    assert not (tmp_path / "new").exists()
