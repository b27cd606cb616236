"""Is a trained network leaning on correlations? Its features, judged on data it was not trained on.

python examples/diagnose_model.py
"""

import torch
from torch import nn
from torch.nn import functional as F

import pfdl

torch.manual_seed(0)
CLASSES = 4


def draw(count: int, agreement: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs that show a class faintly and a scene clearly; in a share of them the scene is that of the class."""
    labels = torch.randint(CLASSES, (count,))
    scenes = torch.where(torch.rand(count) < agreement, labels, torch.randint(CLASSES, (count,)))
    shown = torch.cat([0.8 * F.one_hot(labels, CLASSES), 3.0 * F.one_hot(scenes, CLASSES)], dim=1)
    return shown.repeat(1, 2) + torch.randn(count, 4 * CLASSES), labels, scenes


# Your model and data. Here: in training the scene nearly always goes with the class, in the test it does not.
model = nn.Sequential(nn.Linear(4 * CLASSES, 32), nn.ReLU(), nn.Linear(32, CLASSES))
inputs, labels, _ = draw(2000, agreement=0.9)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(200):
    optimizer.zero_grad()
    F.cross_entropy(model(inputs), labels).backward()
    optimizer.step()

inputs, labels, scenes = draw(1000, agreement=0.0)
with torch.no_grad(), pfdl.attach(model) as tap:
    predictions = model(inputs).argmax(1)
    found = pfdl.diagnose(tap.features, labels, contexts=scenes, predictions=predictions)

print(*found.verdict(), sep="\n")
print(found.frame().head().round(2))
