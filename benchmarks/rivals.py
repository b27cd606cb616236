"""What PFDL's step is measured against: a naive one, and the reweighting steps of StableNet and CNBB.

Each rival is a class with a ``step(u)`` that does all the work of one mini-batch on given features and leaves their
gradient in ``u.grad`` where it has one. They are written as their papers define them and kept short.
"""

import torch
from torch import nn


class Naive:
    """PFDL with p copies of the input, one coordinate left out of each: what the paper's formula says literally."""

    def __init__(self, p, hidden, device):
        self.p = p
        self.g = nn.Sequential(nn.Linear(p - 1, hidden), nn.ReLU(), nn.Linear(hidden, 1)).to(device)
        self.optimizer = torch.optim.Adam(self.g.parameters(), lr=1e-3)
        others = torch.arange(p - 1, device=device)
        self.index = others + (others >= torch.arange(p, device=device)[:, None])  # (p, p-1): all but j

    def predict(self, u):
        """Ũ, shape (n, p)."""
        return self.g(u[:, self.index]).squeeze(-1)

    def step(self, u):
        """The work of one mini-batch."""
        detached = u.detach()
        self.optimizer.zero_grad()
        (detached - self.predict(detached)).square().mean().backward()
        self.optimizer.step()
        self.g.requires_grad_(False)
        others = (u.sum(1, keepdim=True) - u) / (self.p - 1)
        (self.predict(u) * others).mean(0).square().mean().backward()
        self.g.requires_grad_(True)


class StableNet:
    """Zhang et al., CVPR 2021: sample weights that decorrelate random Fourier features, 20 inner SGD steps."""

    def __init__(self, p, device, functions=1, inner_steps=20):
        self.frequency = torch.randn(p, functions, device=device)
        self.phase = 2 * torch.pi * torch.rand(p, functions, device=device)
        self.inner_steps = inner_steps

    def step(self, u):
        """The work of one mini-batch."""
        n, _ = u.shape
        x = u.detach()
        x = (x - x.amin(0)) / (x.amax(0) - x.amin(0) + 1e-8) * (torch.pi / 2)
        z = (2**0.5 * torch.cos(x[:, :, None] * self.frequency + self.phase)).flatten(1)
        logits = torch.zeros(n, device=u.device, requires_grad=True)
        optimizer = torch.optim.SGD([logits], lr=1.0, momentum=0.9)
        for _ in range(self.inner_steps):
            weights = logits.softmax(0)[:, None]
            centred = z - (weights * z).sum(0)
            covariance = (weights * centred).T @ centred
            loss = covariance.square().sum() - covariance.diagonal().square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


class CNBB:
    """He et al., Pattern Recognition 2021: sample weights that balance each binarised feature, 4 inner steps."""

    def __init__(self, inner_steps=4):
        self.inner_steps = inner_steps

    def step(self, u):
        """The work of one mini-batch."""
        n, _ = u.shape
        x = u.detach()
        treated = (x > x.median(0).values).to(x.dtype)
        weights = torch.full((n, 1), 1 / n, device=u.device, requires_grad=True)
        optimizer = torch.optim.SGD([weights], lr=1e-3)
        for _ in range(self.inner_steps):
            w1, w0 = weights * treated, weights * (1 - treated)
            gap = (w1.T @ x) / (w1.sum(0)[:, None] + 1e-8) - (w0.T @ x) / (w0.sum(0)[:, None] + 1e-8)
            loss = gap.square().sum() - gap.diagonal().square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
