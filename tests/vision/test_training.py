import json
import sys
from dataclasses import asdict, replace

import pandas as pd
import pytest
import torch

from pfdl._internal.runs import CONFIG, claim, read_run
from pfdl.vision import training
from pfdl.vision.backbones import make_backbone
from pfdl.vision.checkpoint import WEIGHTS, ModelConfig, load_model, save_weights
from pfdl.vision.resume import STATE
from pfdl.vision.training import SCENES, TrainingConfig, train
from tests.vision.tiny_images import tiny_data

PLAN = TrainingConfig(backbone="mlp", objective="erm", image_size=8, epochs=1, batch_size=8)


def test_a_run_can_be_read_back_without_any_code_of_its_own(tmp_path):
    source, manifest = tiny_data()
    train(PLAN, source, manifest, tmp_path / "run", device="cpu")
    trained = load_model(tmp_path / "run" / WEIGHTS)
    assert trained.config == ModelConfig("mlp", ("bright", "dark"), 8)
    assert trained.folder == tmp_path / "run"
    assert not trained.model.training
    assert read_run(tmp_path / "run").settings["training"]["objective"] == "erm"


def test_a_folder_of_another_run_is_refused_with_what_differs(tmp_path):
    source, manifest = tiny_data()
    train(PLAN, source, manifest, tmp_path / "run", device="cpu")
    with pytest.raises(ValueError, match="differs in objective, seed"):
        train(replace(PLAN, objective="pfdl", seed=1), source, manifest, tmp_path / "run")
    with pytest.raises(ValueError, match="differs in image_size"):
        train(replace(PLAN, image_size=9), source, manifest, tmp_path / "run")
    with pytest.raises(ValueError, match="differs in split"):
        train(PLAN, source, tiny_data(seed=1)[1], tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(ValueError, match="no run of pfdl"):
        train(PLAN, source, manifest, tmp_path / "other")


def test_without_validation_images_the_last_weights_are_kept_and_nothing_stops_early(tmp_path):
    source, manifest = tiny_data(validation_fraction=0)
    train(replace(PLAN, epochs=2), source, manifest, tmp_path / "run", device="cpu")
    assert (tmp_path / "run" / WEIGHTS).exists()
    with pytest.raises(ValueError, match="needs a validation set"):
        train(replace(PLAN, patience=1), source, manifest, tmp_path / "other", device="cpu")


def test_training_stops_when_validation_accuracy_does(tmp_path, monkeypatch):
    monkeypatch.setattr("pfdl.vision.classifier._accuracy", lambda logits, labels: torch.tensor(0.5))
    source, manifest = tiny_data()
    train(replace(PLAN, epochs=9, patience=2), source, manifest, tmp_path / "run", device="cpu")
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 1 + 3


def test_objectives_between_environments_are_told_the_contexts(tmp_path):
    source, manifest = tiny_data()
    train(replace(PLAN, objective="groupdro"), source, manifest, tmp_path / "run", device="cpu")
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 1 + PLAN.epochs


def test_tensorboard_is_not_required(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    train(PLAN, *tiny_data(), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_the_progress_bar_leaves_standard_output_alone(tmp_path, capsys):
    train(PLAN, *tiny_data(), tmp_path / "run", device="cpu", progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "val_accuracy" in printed.err
    assert "v_num" not in printed.err


@pytest.mark.parametrize(
    "wrong",
    [{"epochs": 0}, {"seed": -1}, {"precision": "16"}, {"patience": 0}, {"objective": "sgd"}, {"backbone": "x"}],
)
def test_a_wrong_plan_is_a_sentence_before_anything_is_written(wrong, tmp_path):
    with pytest.raises(ValueError, match=r"must be|choose|unknown"):
        train(replace(PLAN, **wrong), *tiny_data(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def write_run(folder):
    folder.mkdir()
    with claim(folder, "training", {"model": asdict(ModelConfig("mlp", ("a", "b"), 8)), "training": {}}):
        pass
    save_weights(folder / WEIGHTS, make_backbone("mlp", 2, image_size=8))
    return folder


def test_damaged_runs_are_sentences(tmp_path):
    run = write_run(tmp_path / "run")
    load_model(run)
    with pytest.raises(FileNotFoundError, match="there is no run"):
        load_model(tmp_path / "nowhere")
    (run / WEIGHTS).write_bytes(b"\x80\x04 not tensors")
    with pytest.raises(ValueError, match="does not hold the weights of a mlp"):
        load_model(run)
    save_weights(run / WEIGHTS, make_backbone("mlp", 3, image_size=8))
    with pytest.raises(ValueError, match="does not hold the weights of a mlp"):
        load_model(run)
    (run / WEIGHTS).unlink()
    with pytest.raises(FileNotFoundError, match="not finished an epoch"):
        load_model(run)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a whole JSON file"),
        ("[]", "does not say what this run is"),
        ('{"format": "pfdl-run-1", "model": {"backbone": "mlp"}, "training": {}}', "which model this is"),
        ('{"format": "pfdl-run-2", "kind": "mmads", "settings": {}, "made_with": {}}', "holds no model"),
    ],
)
def test_a_damaged_configuration_is_a_sentence(text, message, tmp_path):
    run = write_run(tmp_path / "run")
    (run / CONFIG).write_text(text)
    with pytest.raises(ValueError, match=message):
        load_model(run)
    (run / CONFIG).unlink()
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        load_model(run)


def test_the_configuration_is_plain_json(tmp_path):
    content = json.loads((write_run(tmp_path / "run") / CONFIG).read_text())
    assert content["settings"]["model"] == {
        "backbone": "mlp",
        "classes": ["a", "b"],
        "image_size": 8,
        "small_stem": False,
    }


def test_reading_a_model_does_not_need_lightning(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)
    assert isinstance(load_model(write_run(tmp_path / "run"))[0], torch.nn.Module)


def test_inferred_scenes_are_kept_and_damage_is_mended(tmp_path, caplog):
    source, manifest = tiny_data()
    folder = train(replace(PLAN, objective="pfdl"), source, manifest, tmp_path / "run", device="cpu")
    scenes = pd.read_csv(folder / SCENES)
    assert sorted(scenes["path"]) == sorted(row.path for row in manifest.rows_of("train"))
    found = (folder / SCENES).read_bytes()

    def again():
        (folder / STATE).unlink()  # so that it trains anew
        train(replace(PLAN, objective="pfdl"), source, manifest, folder, device="cpu")

    scenes["scene"] = 1 - scenes["scene"] % 2  # what stands there is taken
    scenes.to_csv(folder / SCENES, index=False)
    kept = (folder / SCENES).read_bytes()
    again()
    assert (folder / SCENES).read_bytes() == kept
    for damage in (b"path,scene\nelsewhere,0\n", b"\xff\x00"):
        (folder / SCENES).write_bytes(damage)
        again()
        assert (folder / SCENES).read_bytes() == found
    assert "contexts are inferred anew" in caplog.text


def test_objectives_without_pfdl_infer_nothing(tmp_path):
    assert not (train(PLAN, *tiny_data(), tmp_path / "run", device="cpu") / SCENES).exists()
