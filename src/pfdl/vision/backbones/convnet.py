"""CN and CN+BN, the networks of the NICO paper."""

from __future__ import annotations

from torch import Tensor, nn

CHANNELS = (64, 128, 256, 512, 1024)
SMALLEST_IMAGE = 2 ** len(CHANNELS)


class ConvNet(nn.Module):
    """Five convolutions, two layers, tanh, and a linear classifier (He et al., 2021).

    Each block is a 5×5 convolution, ReLU and a 4×4 max-pooling of stride 2, which halves the image. Then comes a layer
    of 512 with ReLU, then the features, which tanh bounds to ±1 (CNBB reads their sign). How many features there are
    is not published; here 512.

    Args:
        num_classes: Number of logits.
        image_size: Height and width of the images; 64 in the paper.
        batch_norm: Normalise after each convolution: CN+BN.
        num_features: Width of the layer that enters the classifier.

    Raises:
        ValueError: If the image is too small for five halvings.

    Example:
        >>> import torch
        >>> ConvNet(num_classes=10, image_size=32)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, num_classes: int, image_size: int = 64, *, batch_norm: bool = False, num_features: int = 512
    ) -> None:
        super().__init__()
        if image_size < SMALLEST_IMAGE:
            raise ValueError(
                f"image_size is {image_size}; CN halves the image five times, so give at least {SMALLEST_IMAGE}."
            )
        blocks: list[nn.Module] = []
        side, width = image_size, 3
        for channels in CHANNELS:
            blocks.append(nn.Conv2d(width, channels, kernel_size=5, padding=2, bias=not batch_norm))
            if batch_norm:
                blocks.append(nn.BatchNorm2d(channels))
            blocks += [nn.ReLU(), nn.MaxPool2d(kernel_size=4, stride=2, padding=1)]
            side, width = side // 2, channels
        self.convolutions = nn.Sequential(*blocks)
        self.embedding = nn.Sequential(
            nn.Flatten(), nn.Linear(width * side**2, 512), nn.ReLU(), nn.Linear(512, num_features), nn.Tanh()
        )
        self.classifier = nn.Linear(num_features, num_classes)
        # PyTorch's default shrinks the signal at every layer, until without batch norm nothing is left to learn from;
        # He's doubles it, because pooling keeps the largest of 16, until tanh saturates. Either way CN stays at chance.
        for layer in (*self.convolutions, *self.embedding):
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, shape (n, num_classes), of images, shape (n, 3, image_size, image_size)."""
        logits: Tensor = self.classifier(self.embedding(self.convolutions(images)))
        return logits
