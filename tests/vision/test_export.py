import json
import sys

import numpy as np
import onnxruntime
import pytest
import torch

from pfdl.vision import exporting as module
from pfdl.vision.backbones import make_backbone
from pfdl.vision.checkpoint import ModelConfig, TrainedModel
from pfdl.vision.exporting import export


def trained(backbone, tmp_path, image_size=32, small_stem=False):
    torch.manual_seed(0)
    model = make_backbone(backbone, 3, image_size=image_size, small_stem=small_stem).eval()
    return TrainedModel(model, ModelConfig(backbone, ("a", "b", "ü"), image_size, small_stem), tmp_path)


def test_onnx_agrees_with_pytorch_for_any_batch(tmp_path):
    model = trained("cn-bn", tmp_path)
    onnx_file, _, _ = export(model, tmp_path / "out")
    session = onnxruntime.InferenceSession(onnx_file)
    images = torch.randn(5, 3, 32, 32)
    (there,) = session.run(None, {"images": images.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(there, model.model(images).numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("backbone", "small_stem"), [("resnet18", False), ("resnet18", True), ("mlp", False), ("timm/resnet10t", False)]
)
def test_the_written_recipe_loads_the_plain_weights(backbone, small_stem, tmp_path, monkeypatch):
    model = trained(backbone, tmp_path, small_stem=small_stem)
    monkeypatch.setattr(module, "_to_onnx", lambda _: b"")
    export(model, tmp_path)
    recipe = json.loads((tmp_path / "preprocessing.json").read_text())
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec("\n".join(recipe["load_plain_weights"]), namespace)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(namespace["model"].eval()(images), model.model(images))
    assert ("pfdl" in "".join(recipe["load_plain_weights"])) == (backbone != "resnet18")
    assert recipe["classes"] == ["a", "b", "ü"]
    assert recipe["input"]["shape"] == ["batch", 3, 32, 32]


def test_a_wrong_onnx_file_is_not_written(tmp_path, monkeypatch):
    model = trained("mlp", tmp_path, image_size=8)
    monkeypatch.setattr(module, "TOLERANCE", -1.0)
    with pytest.raises(ValueError, match="differ from PyTorch"):
        export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="exporting needs onnxruntime"):
        export(trained("mlp", tmp_path, image_size=8), tmp_path / "out")
