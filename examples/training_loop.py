"""PFDL in a training loop you already have: two lines, the model unchanged.

python examples/training_loop.py
"""

import torch
from torch import nn
from torch.nn import functional as F

import pfdl

torch.manual_seed(0)

# Your model, your data, your optimiser. Here: a small network on scikit-learn-sized toy data.
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))
inputs = torch.randn(1024, 10)
labels = (inputs[:, 0] + 0.5 * inputs[:, 1] * inputs[:, 2] > 0).long()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

tap = pfdl.attach(model)  # new: watches what enters the last linear layer
decorrelate = pfdl.PartialDecorrelation(tap.num_features, hidden=64, center="batch")  # new

for epoch in range(5):
    for batch in torch.randperm(len(inputs)).split(128):
        # New: + decorrelate
        loss = F.cross_entropy(model(inputs[batch]), labels[batch]) + decorrelate(tap.features)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    accuracy = (model(inputs).argmax(1) == labels).float().mean()
    numbers = "  ".join(f"{name} {value:.4f}" for name, value in decorrelate.last.summary().items())
    print(f"epoch {epoch}  accuracy {accuracy:.3f}  {numbers}")

tap.detach()  # inference is the untouched model
