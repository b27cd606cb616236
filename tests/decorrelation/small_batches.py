"""A small penalty and batches for it."""

import torch

import pfdl


def make(p=6, seed=0, **options):
    torch.manual_seed(seed)
    return pfdl.PartialDecorrelation(p, **{"hidden": 5, **options})


def batch(n=12, p=6, seed=1):
    mixing = torch.randn(p, p, generator=torch.Generator().manual_seed(7))
    return torch.relu(torch.randn(n, p, generator=torch.Generator().manual_seed(seed)) @ mixing)


def snapshot(module):
    return [value.detach().clone() for value in module.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
