"""The naive PFDL step that the library's is measured against."""

import torch
from torch import nn


class Naive:
    """PFDL with p copies of the input, one coordinate left out of each: what the paper's formula
    says literally.
    """

    def __init__(self, p, hidden, device):
        self.p = p
        self.g = nn.Sequential(nn.Linear(p - 1, hidden), nn.ReLU(), nn.Linear(hidden, 1)).to(device)
        self.optimizer = torch.optim.Adam(self.g.parameters(), lr=1e-3)
        others = torch.arange(p - 1, device=device)
        # (p, p-1): all but j
        self.index = others + (others >= torch.arange(p, device=device)[:, None])

    def predict(self, u):
        """Return Ũ, shape (n, p)."""
        return self.g(u[:, self.index]).squeeze(-1)

    def step(self, u):
        """Do the work of one mini-batch."""
        detached = u.detach()
        self.optimizer.zero_grad()
        (detached - self.predict(detached)).square().mean().backward()
        self.optimizer.step()
        self.g.requires_grad_(False)
        others = (u.sum(1, keepdim=True) - u) / (self.p - 1)
        (self.predict(u) * others).mean(0).square().mean().backward()
        self.g.requires_grad_(True)
