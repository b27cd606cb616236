"""A trained model for use elsewhere: ONNX, plain weights, and what must be done to an image before it enters."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from pfdl._internal.files import write_bytes_atomically, write_json
from pfdl.vision.backbones import OURS, TIMM
from pfdl.vision.checkpoint import ModelConfig, TrainedModel, save_weights
from pfdl.vision.pixels import MEAN, STD

ONNX = "model.onnx"
PREPROCESSING = "preprocessing.json"
PLAIN_WEIGHTS = "weights.safetensors"
TOLERANCE = 1e-3
"""How far the logits of ONNX Runtime may be from PyTorch's, relative to the largest of them."""


def export(trained: TrainedModel, folder: Path) -> list[Path]:
    """Write the model as ONNX and as plain weights.

    The ONNX file is run by ONNX Runtime on images of noise, in batches of other sizes than it was traced with, and must
    agree with PyTorch before it is written.

    Args:
        trained: The model.
        folder: Where ``model.onnx``, ``preprocessing.json`` and ``weights.safetensors`` go; made if missing.

    Returns:
        The files.

    Raises:
        ImportError: If ONNX or ONNX Runtime is not installed.
        ValueError: If the two disagree.
    """
    content = _to_onnx(trained)
    paths = [folder / ONNX, folder / PREPROCESSING, folder / PLAIN_WEIGHTS]
    write_bytes_atomically(paths[0], content)
    write_json(paths[1], describe_preprocessing(trained.config))
    save_weights(paths[2], trained.model.state_dict())
    return paths


def describe_preprocessing(config: ModelConfig) -> dict[str, Any]:
    """Say what to do to an image, what comes out, and how to load the plain weights."""
    size = config.image_size
    return {
        "input": {"name": "images", "dtype": "float32", "shape": ["batch", 3, size, size], "channels": "RGB"},
        "steps": [
            "decode to 8-bit RGB, upright, transparent parts white",
            f"scale the shorter side to {size} pixels, bilinear with antialiasing",
            f"cut out the middle {size}×{size} pixels",
            "divide by 255",
            "subtract the mean and divide by the standard deviation of each channel",
        ],
        "size": size,
        "mean": list(MEAN),
        "std": list(STD),
        "output": {"name": "logits", "shape": ["batch", len(config.classes)]},
        "classes": list(config.classes),
        "load_plain_weights": _loading_code(config),
    }


def _loading_code(config: ModelConfig) -> list[str]:
    classes, size = len(config.classes), config.image_size
    if config.backbone in OURS or config.backbone.startswith(TIMM):
        lines = [
            "from pfdl.vision.backbones import make_backbone",
            f"model = make_backbone({config.backbone!r}, {classes}, image_size={size}, small_stem={config.small_stem})",
        ]
    else:
        lines = [
            "import torchvision",
            f"model = torchvision.models.get_model({config.backbone!r}, weights=None, num_classes={classes})",
        ]
        if config.small_stem:
            lines += [
                "from torch import nn",
                "model.conv1 = nn.Conv2d(3, model.conv1.out_channels, 3, padding=1, bias=False)",
                "model.maxpool = nn.Identity()",
            ]
    return [*lines, "from safetensors.torch import load_file", f"model.load_state_dict(load_file({PLAIN_WEIGHTS!r}))"]


def _to_onnx(trained: TrainedModel) -> bytes:
    try:
        import onnx  # noqa: F401, the exporter of PyTorch asks for it too late for a good message
        import onnxruntime  # type: ignore[import-untyped]
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ModuleNotFoundError(f"exporting needs {error.name}: install onnx, onnxscript and onnxruntime.") from None
    size = trained.config.image_size
    generator = torch.Generator().manual_seed(0)
    example = torch.randn(2, 3, size, size, generator=generator)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / ONNX
        torch.onnx.export(
            trained.model,
            (example,),
            path,
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=65536)},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        content = path.read_bytes()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        images = torch.randn(batch, 3, size, size, generator=generator)
        (there,) = session.run(["logits"], {"images": images.numpy()})
        with torch.no_grad():
            here = trained.model(images)
        distance = float((here - torch.from_numpy(there)).abs().max() / here.abs().max().clamp(min=1e-6))
        if not distance <= TOLERANCE:
            raise ValueError(
                f"ONNX Runtime's logits differ from PyTorch's by {distance:.2g} of the largest; nothing was written."
            )
    return content
