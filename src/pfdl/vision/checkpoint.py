"""A trained model on disk: weights as safetensors beside what it is as JSON, read without running
code; and ONNX.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from pfdl._internal.files import write_atomically, write_json
from pfdl._internal.state import save_tensors
from pfdl.data.manifest import Manifest, read_manifest
from pfdl.runs import CONFIG, MANIFEST, identify, read_run
from pfdl.vision.backbones import check_backbone_name, make_backbone
from pfdl.vision.pixels import MEAN, STD

WEIGHTS = "model.safetensors"
RUN = "run"
"""The entry in the header of the weights that says of which run they are."""
ONNX = "model.onnx"
PREPROCESSING = "preprocessing.json"
TOLERANCE = 1e-3
"""How far the logits of ONNX Runtime may be from PyTorch's, relative to the largest of them."""
MAX_IMAGE_SIZE = 1 << 14
MAX_FEATURES = 1 << 20
"""A configuration that claims more is damaged; to build its model could take all memory."""


_OF_IMAGES: dict[str, type] = {
    "backbone": str,
    "classes": list,
    "image_size": int,
    "small_stem": bool,
}
_OF_FEATURES: dict[str, type] = {"num_features": int, "network": str, "fingerprint": str}
"""The kinds of what a run folder says of its model."""


@dataclass(frozen=True)
class ModelConfig:
    """What must be known to build a model again.

    Args:
        backbone: See :func:`pfdl.vision.make_backbone`.
        classes: Names of the classes, in the order of the logits.
        image_size: Height and width of the images.
        small_stem: See :func:`pfdl.vision.make_backbone`.
        num_features: Width of the features that it takes in place of images; 0 for images.
        network: What computed these features; ``""`` where that is not known.
        fingerprint: The hash of that network.
    """

    backbone: str
    classes: tuple[str, ...]
    image_size: int
    small_stem: bool = False
    num_features: int = 0
    network: str = ""
    fingerprint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it; of features only where there are any."""
        told = asdict(self)
        return told if self.num_features else {name: told[name] for name in _OF_IMAGES}


class TrainedModel(NamedTuple):
    """A model that was read from disk.

    Attributes:
        model: In ``eval()`` mode, from normalised images to logits.
        config: What it is.
        folder: The run it comes from.
    """

    model: nn.Module
    config: ModelConfig
    folder: Path


def check_weights(path: Path) -> None:
    """Raise ValueError unless a file is whole as safetensors are: its header fits its length."""
    if not path.is_file():  # to open a pipe would be to wait for ever
        raise FileNotFoundError(f"there is no regular file {path}.")
    try:
        with safe_open(path, framework="pt"):
            pass
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole file of weights ({error}).") from error


def read_model_config(folder: Path) -> ModelConfig:
    """Read from a run folder which model it holds; ValueError if it holds none, is damaged, or
    newer than this pfdl.
    """
    run = read_run(folder)
    if run.kind != "training":
        raise ValueError(
            f"{folder} is a run of the kind {run.kind!r} and holds no model; name one of pfdl"
            " train."
        )
    model: Any = run.settings.get("model")
    if not isinstance(model, dict) or not _is_sound(model):
        raise ValueError(
            f"{folder / CONFIG} does not say which model this is (it needs"
            f" {', '.join(_OF_IMAGES)})."
        )
    return ModelConfig(**{**model, "classes": tuple(model["classes"])})


def _is_sound(model: Mapping[str, Any]) -> bool:
    """Return whether values can be those of a model."""
    kinds = {name: type(value) for name, value in model.items()}
    if kinds not in (_OF_IMAGES, {**_OF_IMAGES, **_OF_FEATURES}):
        return False
    sizes_fit = 1 <= model["image_size"] <= MAX_IMAGE_SIZE
    width_fits = 0 <= model.get("num_features", 0) <= MAX_FEATURES
    return sizes_fit and width_fits and all(isinstance(name, str) for name in model["classes"])


def save_weights(folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write the weights of a run, and of which run they are."""
    save_tensors(folder / WEIGHTS, weights, {RUN: identify(folder)})


def read_split(folder: Path) -> Manifest:
    """Read the split that a run was trained on.

    Raises:
        FileNotFoundError: If it is missing.
        ValueError: If it is damaged, or the split of another run.
    """
    manifest = read_manifest(folder / MANIFEST)
    if manifest.sha256 != read_run(folder).settings.get("split"):
        raise ValueError(
            f"{folder / MANIFEST} is not the split that this run was trained on, of which its"
            f" {CONFIG} has the hash; restore the one or the other."
        )
    return manifest


def _check_owner(folder: Path) -> None:
    """Raise ValueError if the weights are those of a run with other settings."""
    with safe_open(folder / WEIGHTS, framework="pt") as stream:
        owner = (stream.metadata() or {}).get(RUN)
    if owner not in (None, identify(folder)):  # older versions did not write it
        raise ValueError(
            f"{folder / WEIGHTS} belongs to a run with other settings than {CONFIG} says; restore"
            " the one or the other."
        )


def load_model(path: str | Path) -> TrainedModel:
    """Read a trained model.

    Args:
        path: A run folder, or the ``model.safetensors`` in it.

    Returns:
        The model in ``eval()`` mode, on the CPU.

    Raises:
        FileNotFoundError: If something is missing.
        ValueError: If a file is damaged, or the weights are not those of the model that the
            configuration names.
    """
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no run {path}; name the folder that pfdl train made.")
    config = read_model_config(folder)
    weights = folder / WEIGHTS
    if not weights.is_file():
        raise FileNotFoundError(
            f"there is no {WEIGHTS} in {folder}; its training has saved none yet."
        )
    # Imports the backbone's library: PyTorch 2.6 to 2.8 cannot import it on the device "meta".
    check_backbone_name(config.backbone)
    try:
        _check_owner(folder)
        state = load_file(weights)
        # A damaged configuration must not take all memory; some models compute while they are built
        with suppress(NotImplementedError), torch.device("meta"):
            _build(config).load_state_dict(state, assign=True)
        model = _build(config)
        model.load_state_dict(state)
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(
            f"{weights} does not hold the weights of a {config.backbone} for {len(config.classes)}"
            f" classes and images of {config.image_size} pixels ({' '.join(str(error).split())})."
        ) from error
    for name, value in model.state_dict().items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(
                f"{weights} has values that are not finite in {name!r}: the training diverged or"
                " the file is damaged; train again, with a smaller learning rate."
            )
    return TrainedModel(model.eval(), config, folder)


def _build(config: ModelConfig) -> nn.Module:
    return make_backbone(
        config.backbone,
        len(config.classes),
        image_size=config.image_size,
        num_features=config.num_features,
        small_stem=config.small_stem,
    )


def export(trained: TrainedModel, folder: Path) -> list[Path]:
    """Write the model as ONNX, and what to do to an image before it enters.

    The ONNX file is run by ONNX Runtime on images of noise, in batches of other sizes than it was
    traced with, and must agree with PyTorch before it is written.

    Args:
        trained: The model.
        folder: Where ``model.onnx`` and ``preprocessing.json`` go; made if missing.

    Returns:
        The files.

    Raises:
        ImportError: If ONNX or ONNX Runtime is not installed.
        ValueError: If the two disagree, or the model reads features in place of images.
    """
    if trained.config.num_features:
        raise ValueError(
            f"the model reads {trained.config.num_features} features, no images, and is not"
            " exported; train one on images."
        )
    content = _to_onnx(trained)
    size = trained.config.image_size
    preprocessing = {
        "input": {
            "name": "images",
            "dtype": "float32",
            "shape": ["batch", 3, size, size],
            "channels": "RGB",
        },
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
        raise ModuleNotFoundError(
            f"exporting needs {error.name}: install onnx, onnxscript and onnxruntime."
        ) from None
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
        distance = float(
            (here - torch.from_numpy(there)).abs().max() / here.abs().max().clamp(min=1e-6)
        )
        if not distance <= TOLERANCE:
            raise ValueError(
                f"ONNX Runtime's logits differ from PyTorch's by {distance:.2g} of the largest;"
                " nothing was written."
            )
    return content
