"""A plain PyTorch loop on images whose contexts nobody labelled: infer them, then draw all groups
equally often.

The images were made so that this helps: an illustration, not a result.

Run: python examples/inferred_contexts.py
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import pfdl
from pfdl.contexts import find_contexts, worst_group_accuracy

CLASSES = 2


def draw(count: int, agreement: float) -> tuple[Tensor, Tensor, Tensor]:
    """Images with a faint pattern (the class) on a coloured ground (the context), which often goes
    with the class.
    """
    labels = torch.randint(CLASSES, (count,))
    contexts = torch.where(torch.rand(count) < agreement, labels, 1 - labels)
    colour = torch.tensor([[0.8, 0.7, 0.4], [0.3, 0.5, 0.8]])[contexts]
    stripes = torch.tensor([1.0, -1.0]).repeat(8)[None, None, :, None] * torch.ones(1, 1, 1, 16)
    pattern = torch.where(labels[:, None, None, None] == 1, stripes, stripes.transpose(2, 3))
    images = colour[:, :, None, None] + 0.04 * pattern + 0.12 * torch.randn(count, 3, 16, 16)
    return images.clamp(0, 1), labels, contexts


def train(loader: DataLoader[tuple[Tensor, ...]]) -> nn.Module:
    """Train as you always do: nothing in here knows of contexts."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 6 * 6, CLASSES),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(5):
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def main() -> None:
    torch.manual_seed(0)
    images, labels, _ = draw(600, agreement=0.9)  # yours: training images and their classes
    dataset = TensorDataset(images, labels)

    # A Dataset, a DataLoader, or a tensor of images or features with labels
    found = find_contexts(dataset)
    print(found.sentence)
    # Draws every class in every context equally often
    sampler = pfdl.context_sampler(labels, found.contexts)

    loaders = {
        "plain training": DataLoader(dataset, batch_size=32, shuffle=True),
        "inferred contexts, drawn equally often": DataLoader(
            dataset, batch_size=32, sampler=sampler
        ),
    }
    test_images, test_labels, test_contexts = draw(400, agreement=0.5)
    for name, loader in loaders.items():
        model = train(loader)
        with torch.no_grad():
            answers = model(test_images).argmax(1)
        worst = worst_group_accuracy(answers, test_labels, test_contexts)
        print(
            f"{name}: {(answers == test_labels).float().mean():.0%} right, {worst:.0%} in the worst"
            " group"
        )


if __name__ == "__main__":
    main()
