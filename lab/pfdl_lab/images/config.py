"""How the experiment on images is made: the only place where its settings are written. Importing it
imports no PyTorch.

Each setting is an option of ``pfdl study`` and ``pfdl reproduce nico``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from pfdl._internal.settings import check_settings, setting


@dataclass(frozen=True)
class ImagesConfig:
    """How the experiment is made.

    Args:
        rows: Keys for :func:`pfdl_lab.images.rows.find_row`.
        seeds: Paired repetitions.
        first_seed: The first seed; what was tried while a method was made should have others.
        backbone: Network of rows that have none of their own: see ``pfdl list backbones``, from
            scratch; efficientnet-lite0, pretrained and fine-tuned; or efficientnet-lite0-features,
            a small network on its features. Digits have their own.
        image_size: Height and width, of rows that have no other; if none is given 64, or 96 for the
            pretrained network.
        epochs: Passes over the training samples.
        decay_every: Epochs after which the learning rate falls to a tenth; by default half of all.
        batch_size: Samples per step, of rows that have no other.
        learning_rate: Learning rate of SGD at the start, of rows that have no other.
        precision: bf16: convolutions in bfloat16 on a GPU; or 32.
        validation: Share of the training set to hold out; it chooses an epoch, tested beside the
            last.
        select: What chooses an epoch: accuracy, or worst-group (of inferred contexts; of true ones
            for oracles).
        test_every: Also test after every so many epochs; 0 for never.
        deterministic: Whether a GPU adds in a fixed order, so that rows that do the same have the
            same result.

    Raises:
        ValueError: If a value cannot be used.
    """

    rows: tuple[str, ...] = ()
    seeds: int = setting(10, minimum=1)
    first_seed: int = setting(0, minimum=0)
    backbone: str = setting("resnet18")
    image_size: int | None = setting(None, minimum=8)
    epochs: int = setting(30, minimum=1)
    decay_every: int | None = setting(None, minimum=1)
    batch_size: int = setting(64, minimum=2)
    learning_rate: float = setting(0.01, minimum=0)
    precision: Literal["bf16", "32"] = setting("bf16")
    validation: float = setting(0.0, minimum=0, maximum=0.9)
    select: Literal["accuracy", "worst-group"] = setting("accuracy")
    test_every: int = setting(0, minimum=0)
    deterministic: bool = setting(True)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.rows:
            from pfdl_lab.images.rows import find_row

            for row in self.rows:
                find_row(row)

    @property
    def size(self) -> int:
        """Height and width of images."""
        from pfdl_lab.images.networks import FROZEN, PRETRAINED

        return self.image_size or (96 if self.backbone in (FROZEN, PRETRAINED) else 64)

    @property
    def training(self) -> dict[str, Any]:
        """All that changes the result of one training."""
        how = {**asdict(self), "image_size": self.size}
        return {
            name: value
            for name, value in how.items()
            if name not in ("rows", "seeds", "first_seed")
        }


NICO: dict[str, Any] = {
    "seeds": 5,
    "backbone": "resnet50",
    "image_size": 96,
    "epochs": 160,
    "learning_rate": 0.01,
    "deterministic": False,
}
"""The paper's protocol; it is silent on the batch size, the size of the images and the number of
repetitions.
"""
