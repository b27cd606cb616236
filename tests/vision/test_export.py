import json
import sys

import numpy as np
import onnxruntime
import pytest
import torch

from pfdl.vision import checkpoint
from pfdl.vision.backbones import make_backbone
from pfdl.vision.checkpoint import ModelConfig, TrainedModel, export


def trained(tmp_path, image_size=32):
    torch.manual_seed(0)
    model = make_backbone("small", 3, image_size=image_size).eval()
    return TrainedModel(model, ModelConfig("small", ("a", "b", "ü"), image_size), tmp_path)


def test_onnx_agrees_with_pytorch_for_any_batch(tmp_path):
    model = trained(tmp_path)
    onnx_file, recipe = export(model, tmp_path / "out")
    session = onnxruntime.InferenceSession(onnx_file)
    images = torch.randn(5, 3, 32, 32)
    (there,) = session.run(None, {"images": images.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(there, model.model(images).numpy(), rtol=1e-3, atol=1e-4)
    steps = json.loads(recipe.read_text())
    assert steps["classes"] == ["a", "b", "ü"]
    assert steps["input"]["shape"] == ["batch", 3, 32, 32]


def test_a_wrong_onnx_file_is_not_written(tmp_path, monkeypatch):
    model = trained(tmp_path)
    monkeypatch.setattr(checkpoint, "TOLERANCE", -1.0)
    with pytest.raises(ValueError, match="differ from PyTorch"):
        export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="exporting needs onnxruntime"):
        export(trained(tmp_path), tmp_path / "out")


def test_a_model_of_features_is_refused_with_a_sentence(tmp_path):
    model = trained(tmp_path)
    of_features = model._replace(config=ModelConfig("readout", ("a", "b"), 1, num_features=4))
    with pytest.raises(ValueError, match="the model reads 4 features, no images"):
        export(of_features, tmp_path / "out")
    assert not (tmp_path / "out").exists()
