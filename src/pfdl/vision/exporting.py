"""A trained model for use elsewhere: ONNX, and what must be done to an image before it enters."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from pfdl._internal.files import write_atomically, write_json
from pfdl.vision.checkpoint import TrainedModel
from pfdl.vision.pixels import MEAN, STD

ONNX = "model.onnx"
PREPROCESSING = "preprocessing.json"
TOLERANCE = 1e-3
"""How far the logits of ONNX Runtime may be from PyTorch's, relative to the largest of them."""


def export(trained: TrainedModel, folder: Path) -> list[Path]:
    """Write the model as ONNX, and what to do to an image before it enters.

    The ONNX file is run by ONNX Runtime on images of noise, in batches of other sizes than it was traced with, and must
    agree with PyTorch before it is written.

    Args:
        trained: The model.
        folder: Where ``model.onnx`` and ``preprocessing.json`` go; made if missing.

    Returns:
        The files.

    Raises:
        ImportError: If ONNX or ONNX Runtime is not installed.
        ValueError: If the two disagree.
    """
    content, size = _to_onnx(trained), trained.config.image_size
    preprocessing = {
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
        "output": {"name": "logits", "shape": ["batch", len(trained.config.classes)]},
        "classes": list(trained.config.classes),
    }
    write_atomically(folder / ONNX, content)
    write_json(folder / PREPROCESSING, preprocessing)
    return [folder / ONNX, folder / PREPROCESSING]


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
