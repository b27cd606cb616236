"""A run is read back as it is, or refused with a sentence."""

import json
import sys
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pfdl._internal.state import save_tensors
from pfdl.runs import CONFIG, claim
from pfdl.vision.backbones import make_backbone
from pfdl.vision.checkpoint import WEIGHTS, ModelConfig, load_model


def write_run(folder):
    folder.mkdir()
    with claim(
        folder, "training", {"model": asdict(ModelConfig("mlp", ("a", "b"), 8)), "training": {}}
    ):
        pass
    save_tensors(folder / WEIGHTS, make_backbone("mlp", 2, image_size=8).state_dict())
    return folder


def test_damaged_runs_are_sentences(tmp_path):
    run = write_run(tmp_path / "run")
    load_model(run)
    with pytest.raises(FileNotFoundError, match="there is no run"):
        load_model(tmp_path / "nowhere")
    (run / WEIGHTS).write_bytes(b"\x80\x04 not tensors")
    with pytest.raises(ValueError, match="does not hold the weights of a mlp"):
        load_model(run)
    save_tensors(run / WEIGHTS, make_backbone("mlp", 3, image_size=8).state_dict())
    with pytest.raises(ValueError, match="does not hold the weights of a mlp"):
        load_model(run)
    (run / WEIGHTS).unlink()
    with pytest.raises(FileNotFoundError, match="has saved none yet"):
        load_model(run)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a whole JSON file"),
        (
            '{"format": "pfdl-run-2", "kind": "mmads", "settings": {}, "made_with": {}}',
            "holds no model",
        ),
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


def test_reading_a_model_does_not_need_lightning(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)
    assert isinstance(load_model(write_run(tmp_path / "run"))[0], torch.nn.Module)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state["1.weight"].fill_(float("nan")), "not finite in '1.weight'"),
        (
            lambda state: state.update({"1.bias": state["1.bias"].to(torch.int8)}),
            "does not hold the weights of a mlp",
        ),
        (
            lambda state: state.update({"1.bias": state["1.bias"][:5].clone()}),
            "size mismatch for 1.bias",
        ),
        (lambda state: state.pop("5.bias"), 'Missing .*"5.bias"'),
        (lambda state: state.update({"more": torch.ones(1)}), 'Unexpected .*"more"'),
    ],
)
def test_wrong_weights_are_sentences(change, message, tmp_path):
    run = write_run(tmp_path / "run")
    state = load_file(run / WEIGHTS)
    change(state)
    save_file(state, run / WEIGHTS)
    with pytest.raises(ValueError, match=message):
        load_model(run)


def test_a_huge_image_size_is_compared_with_the_weights_before_memory_is_taken(
    tmp_path, monkeypatch
):
    run = write_run(tmp_path / "run")
    content = json.loads((run / CONFIG).read_text())
    content["settings"]["model"].update(image_size=16384)
    (run / CONFIG).write_text(json.dumps(content))
    devices = set()
    monkeypatch.setattr(
        nn.Linear, "reset_parameters", lambda layer: devices.add(layer.weight.device.type)
    )
    with pytest.raises(
        ValueError, match="does not hold the weights of a mlp for 2 classes and images of 16384"
    ):
        load_model(run)
    assert devices == {"meta"}
