"""The networks of the experiment: CN and other backbones from scratch, small ones for digits, and
EfficientNet-lite0, whose weights come in a package.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl.data.context_images import StoredImages
from pfdl.vision.backbones import LITE0, make_backbone
from pfdl.vision.embedding import load_extractor
from pfdl.vision.pixels import normalise

PRETRAINED = "efficientnet-lite0"
FROZEN = "efficientnet-lite0-features"
"""The pretrained network, fine-tuned; and its features, on top of which a small network is trained.
"""

PERCEPTRON = "perceptron"
LENET = "lenet"
CN = "cn"
CN_BN = "cn-bn"
CHANNELS = (64, 128, 256, 512, 1024)
"""Of the convolutions of CN and CN+BN, the networks of the NICO paper."""

HIDDEN_WIDTH = 256
SIZE = 224
BATCH = 64
FEATURES = "features.npy"


def make_network(name: str, inputs: Tensor, classes: int, *, width: int | None = None) -> nn.Module:
    """Make an untrained network, or one to be fine-tuned.

    Args:
        name: A name for :func:`pfdl.vision.make_backbone`, or one of this module.
        inputs: Some inputs: images, shape (n, 3, h, w), or numbers, shape (n, p).
        classes: Number of logits.
        width: Width of the embedding, by a hidden layer in front of the classifier; None for the
            network's own.
    """
    if name in (PERCEPTRON, FROZEN):
        return _perceptron(inputs.shape[1], classes, width, layers=1 if name == FROZEN else 2)
    if name == LENET:
        model = lenet(_square(inputs), classes)
    elif name in (CN, CN_BN):
        model = ConvNet(classes, inputs.shape[-1], batch_norm=name == CN_BN)
    elif name == PRETRAINED:
        model = make_backbone(LITE0, classes, pretrained=True)
    else:
        model = make_backbone(name, classes, image_size=inputs.shape[-1])
    if width is not None:
        path, last = [
            (path, part) for path, part in model.named_modules() if isinstance(part, nn.Linear)
        ][-1]
        parent, _, child = path.rpartition(".")
        head = nn.Sequential(
            nn.Linear(last.in_features, width), nn.ReLU(), nn.Linear(width, classes)
        )
        setattr(model.get_submodule(parent), child, head)
    return model


class ConvNet(nn.Module):
    """Five convolutions, two layers, tanh, and a linear classifier (He et al., 2021).

    Each block is a 5×5 convolution, ReLU and a 4×4 max-pooling of stride 2, which halves the image.
    Then comes a layer of 512 with ReLU, then the features, which tanh bounds to ±1 (CNBB reads
    their sign). How many features there are is not published; here 512.

    Args:
        num_classes: Number of logits.
        image_size: Height and width of the images; 64 in the paper.
        batch_norm: Normalise after each convolution: CN+BN.

    Raises:
        ValueError: If the image is too small for five halvings.

    Example:
        >>> ConvNet(num_classes=10, image_size=32)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, num_classes: int, image_size: int = 64, *, batch_norm: bool = False) -> None:
        super().__init__()
        smallest = 2 ** len(CHANNELS)
        if image_size < smallest:
            raise ValueError(
                f"image_size is {image_size}; CN halves the image five times, so give at least"
                f" {smallest}."
            )
        blocks: list[nn.Module] = []
        side = image_size
        width = 3
        for channels in CHANNELS:
            blocks.append(nn.Conv2d(width, channels, kernel_size=5, padding=2, bias=not batch_norm))
            if batch_norm:
                blocks.append(nn.BatchNorm2d(channels))
            blocks += [nn.ReLU(), nn.MaxPool2d(kernel_size=4, stride=2, padding=1)]
            side //= 2
            width = channels
        self.convolutions = nn.Sequential(*blocks)
        self.embedding = nn.Sequential(
            nn.Flatten(), nn.Linear(width * side**2, 512), nn.ReLU(), nn.Linear(512, 512), nn.Tanh()
        )
        self.classifier = nn.Linear(512, num_classes)
        # PyTorch's default shrinks the signal at every layer, until without batch norm nothing is
        # left to learn from; He's doubles it, because pooling keeps the largest of 16, until tanh
        # saturates. Either way CN stays at chance.
        for layer in (*self.convolutions, *self.embedding):
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, shape (n, num_classes), of images, shape (n, 3, image_size,
        image_size).
        """
        logits: Tensor = self.classifier(self.embedding(self.convolutions(images)))
        return logits


def _perceptron(inputs: int, classes: int, width: int | None, *, layers: int) -> nn.Module:
    widths = [inputs, *[HIDDEN_WIDTH] * (layers - 1), width or HIDDEN_WIDTH]
    hidden = list[nn.Module]()
    for before, after in pairwise(widths):
        hidden += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], classes))


def _square(flat: Tensor) -> torch.Size:
    """Return the shape of square colour images that were flattened."""
    size = round((flat.shape[1] / 3) ** 0.5)
    return torch.Size((3, size, size))


def lenet(shape: torch.Size, classes: int = 5) -> nn.Module:
    """Make the network of SpuCo's benchmark, for flat images; how wide its maps end depends on
    their size.
    """
    maps = nn.Sequential(
        nn.Unflatten(1, shape),
        nn.Conv2d(3, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, padding=0 if shape[1] >= 16 else 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    with torch.no_grad():
        width = maps(torch.zeros(1, shape.numel())).shape[1]
    return nn.Sequential(
        maps,
        nn.Linear(width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def write_features(folder: Path, device: str = "cpu") -> None:
    """Embed stored images by the pretrained network, once; the features lie beside them.

    Args:
        folder: Where :func:`pfdl.data.context_images.store_images` has put the images.
        device: Where to compute.

    Raises:
        ModuleNotFoundError: If the packages with the network and its weights are missing.
    """
    source = StoredImages(folder)
    paths = [sample.path for sample in source.samples]
    batches = (source.take(paths[first : first + BATCH]) for first in range(0, len(paths), BATCH))
    np.save(folder / FEATURES, embed(batches, device).half().numpy())


@torch.inference_mode()
def embed(batches: Iterable[Tensor], device: str) -> Tensor:
    """Return the pretrained network's features of images, given as bytes: shape (n, 1280)."""
    model = load_extractor(LITE0).model.to(device)
    found = []
    for images in batches:
        pixels = normalise(images.to(device))
        found.append(model(F.interpolate(pixels, size=(SIZE, SIZE), mode="bilinear")).cpu())
    return torch.cat(found)
