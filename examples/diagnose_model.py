"""Does a trained network rely on the context? Judged on data it was not trained on.

python examples/diagnose_model.py
"""

import torch
from torch import nn
from torch.nn import functional as F

import pfdl
from pfdl.diagnosis import count_groups

torch.manual_seed(0)
CLASSES = 4


def draw(count: int, agreement: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs that show a class faintly and a context clearly; in a share of them the context is
    that of the class.
    """
    labels = torch.randint(CLASSES, (count,))
    contexts = torch.where(torch.rand(count) < agreement, labels, torch.randint(CLASSES, (count,)))
    shown = torch.cat([0.8 * F.one_hot(labels, CLASSES), 3.0 * F.one_hot(contexts, CLASSES)], dim=1)
    return shown.repeat(1, 2) + torch.randn(count, 4 * CLASSES), labels, contexts


# Your model and data. Here: in training the context nearly always goes with the class, in the test
# it does not.
model = nn.Sequential(nn.Linear(4 * CLASSES, 32), nn.ReLU(), nn.Linear(32, CLASSES))
inputs, labels, contexts = draw(2000, agreement=0.9)
training = count_groups(labels.numpy(), contexts.numpy())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(200):
    optimizer.zero_grad()
    F.cross_entropy(model(inputs), labels).backward()
    optimizer.step()

inputs, labels, contexts = draw(1000, agreement=0.0)
with torch.no_grad(), pfdl.attach(model) as tap:
    predictions = model(inputs).argmax(1)
    found = pfdl.diagnose(
        tap.features, labels, contexts, predictions=predictions, training=training
    )

print(f"Does it rely on the context? {found.answer}")
print(*found.verdict(), sep="\n")
print("accuracy from the training mixture to the reversed one:", found.shift.accuracy[::5].round(2))
