"""Every penalty and weighting, and a batch for it."""

from functools import partial

import torch

from pfdl import PartialDecorrelation
from pfdl.objectives.penalties import CORAL, IRM, CovarianceDecorrelation, Quantization, VREx
from pfdl.objectives.weightings import (
    CNBB,
    Balance,
    BatchDWR,
    CVaR,
    GroupDRO,
    Product,
    StableNet,
    Uniform,
)

SGD = partial(torch.optim.SGD, lr=0.01, momentum=0.9, fused=True)
Adagrad = partial(torch.optim.Adagrad, lr=0.01)
PARTS = {
    "PartialDecorrelation": lambda: PartialDecorrelation(6, hidden=4),
    "PartialDecorrelation, plain": lambda: PartialDecorrelation(6, hidden=(4, 3), warmup=3),
    "PartialDecorrelation, standardised": lambda: PartialDecorrelation(
        6, hidden=4, standardize=True, fit_steps=2
    ),
    "PartialDecorrelation, SGD": lambda: PartialDecorrelation(6, hidden=4, optimizer=SGD),
    "PartialDecorrelation, Adagrad": lambda: PartialDecorrelation(6, hidden=4, optimizer=Adagrad),
    "CovarianceDecorrelation": lambda: CovarianceDecorrelation(6, hidden=4),
    "IRM": lambda: IRM(weight=9.0, anneal=1),
    "VREx": lambda: VREx(anneal=2),
    "CORAL": CORAL,
    "Quantization": Quantization,
    "Uniform": Uniform,
    "Balance": Balance,
    "GroupDRO": GroupDRO,
    "CVaR": CVaR,
    "BatchDWR": lambda: BatchDWR(steps=2),
    "CNBB": lambda: CNBB(steps=2),
    "StableNet": lambda: StableNet(steps=2),
    "Product": lambda: Product([Balance(), StableNet(steps=2)]),
}
WITHOUT_STATE = ("Quantization", "Uniform", "CVaR", "BatchDWR", "CNBB")


def batch(seed=0, n=8):
    generator = torch.Generator().manual_seed(seed)
    return {
        "risks": torch.rand(n, generator=generator),
        "logits": torch.randn(n, 3, generator=generator),
        "labels": torch.randint(3, (n,), generator=generator),
        "features": torch.randn(n, 6, generator=generator),
        "environments": torch.arange(n) % 2,
    }


def call(part, tensors):
    return part(*(tensors[name] for name in part.needs))


def used(name):
    torch.manual_seed(0)
    part = PARTS[name]()
    call(part, batch())
    return part
