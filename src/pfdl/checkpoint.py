"""A trained model on disk: its weights as safetensors, and beside them what it is, as JSON. Reading runs no code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from pfdl._files import write_atomically, write_bytes_atomically
from pfdl.backbones import make_backbone

FORMAT = "pfdl-run-1"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class ModelConfig:
    """What must be known to build a model again.

    Args:
        backbone: See :func:`pfdl.backbones.make_backbone`.
        classes: Names of the classes, in the order of the logits.
        image_size: Height and width of the images.
        small_stem: See :func:`pfdl.backbones.make_backbone`.
    """

    backbone: str
    classes: tuple[str, ...]
    image_size: int
    small_stem: bool = False


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


def save_weights(path: Path, model: nn.Module) -> None:
    """Write a model's weights as safetensors, whole or not at all."""
    state = model.state_dict()
    write_bytes_atomically(path, save({name: value.cpu().contiguous().clone() for name, value in state.items()}))


def save_config(folder: Path, model: ModelConfig, training: dict[str, Any]) -> None:
    """Write ``config.json`` of a run: the model, and how it is trained."""
    content = {"format": FORMAT, "model": asdict(model), "training": training}
    write_atomically(folder / CONFIG, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_config(folder: Path) -> tuple[ModelConfig, dict[str, Any]]:
    """Read ``config.json`` of a run.

    Args:
        folder: The run folder.

    Returns:
        The model, and how it is trained.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged, or of another version of pfdl.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"there is no {CONFIG} in {folder}; name the folder that pfdl train made.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file ({error}).") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} is not in the format {FORMAT!r}; a newer version of pfdl may have written it.")
    model, training = content.get("model"), content.get("training")
    if not isinstance(model, dict) or not isinstance(training, dict) or set(model) != _MODEL_FIELDS:
        raise ValueError(f"{path} does not say which model this is (it needs {', '.join(sorted(_MODEL_FIELDS))}).")
    return ModelConfig(**{**model, "classes": tuple(model["classes"])}), training


def load_model(path: str | Path) -> TrainedModel:
    """Read a trained model.

    Args:
        path: A run folder, or the ``model.safetensors`` in it.

    Returns:
        The model in ``eval()`` mode, on the CPU.

    Raises:
        FileNotFoundError: If something is missing.
        ValueError: If a file is damaged, or the weights are not those of the model that the configuration names.
    """
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no run {path}; name the folder that pfdl train made.")
    config, _ = read_config(folder)
    weights = folder / WEIGHTS
    if not weights.is_file():
        raise FileNotFoundError(f"there is no {WEIGHTS} in {folder}; its training has not finished an epoch yet.")
    model = make_backbone(
        config.backbone, len(config.classes), image_size=config.image_size, small_stem=config.small_stem
    )
    try:
        model.load_state_dict(load_file(weights))
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{weights} does not hold the weights of a {config.backbone} ({error}).") from error
    return TrainedModel(model.eval(), config, folder)


_MODEL_FIELDS = {field.name for field in fields(ModelConfig)}
