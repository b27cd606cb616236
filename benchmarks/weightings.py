"""The sample weights of one batch by StableNet, CNBB and DWR: ours against their loops with a
backward pass each step.

    python benchmarks/weightings.py [--device cuda] [--cpu-time]

The loops are transcriptions: the same loss written out, automatic differentiation, PyTorch's
optimiser. Both are given the same batch and the same random numbers, and the largest difference of
the weights is printed beside the times. On a GPU ours replays a CUDA graph after the first calls;
the best call of several counts on both sides.
"""

import argparse
import time

import torch

from machine import describe_machine
from pfdl.objectives.weightings import CNBB, BatchDWR, StableNet
from pfdl.objectives.weightings.stablenet import draw_maps, fourier_features


def dependence(mapped, weights):
    """Return StableNet's loss: squared weighted covariances of all pairs, for mapped features
    (functions, n, p).
    """
    weighted = mapped * weights[:, None]
    means = weighted.sum(1)
    covariance = mapped.transpose(1, 2) @ weighted - means[:, :, None] * means[:, None, :]
    return covariance.square().sum() - covariance.diagonal(dim1=1, dim2=2).square().sum()


def balance_loss(f, weights):
    """Return CNBB's loss: how treated and untreated samples differ in all other features."""
    treated = f > 0
    comparable = treated.any(0) & ~treated.all(0)
    weighted = weights[:, None] * treated
    size = torch.where(comparable, weighted.sum(0), 0.5 * weights.sum())
    mean, total = f.T @ weighted / size, (f.T @ weights)[:, None]
    difference = (mean - (total - mean * size) / (weights.sum() - size)) * comparable
    return difference.square().sum() - difference.diagonal().square().sum()


def dwr_loss(x, weights):
    """Return DWR's loss, from one weighted covariance matrix."""
    n, p = x.shape
    weighted = x * weights[:, None]
    covariance = x.T @ weighted / n - torch.outer(
        weighted.sum(0) / weights.sum(), weighted.sum(0) / n
    )
    lengths = (covariance.square().sum(1) - covariance.diagonal().square()).clamp(min=1e-30).sqrt()
    return (
        2000 / p * lengths.sum()
        + 0.0005 * (weights.sum() - n).square()
        + 0.00005 * weights.square().sum()
    )


def stablenet_loop(u):
    ours = StableNet()
    logits = torch.ones_like(u[:, 0]).requires_grad_()
    optimizer = torch.optim.SGD([logits], lr=ours.learning_rate, momentum=ours.momentum)
    for step, drawn in enumerate(zip(*draw_maps(u, ours.functions, ours.steps), strict=True)):
        optimizer.param_groups[0]["lr"] = ours.learning_rate * (
            1.0 if 2 * step < ours.steps else 0.1
        )
        mapped = fourier_features(u, *drawn)
        loss = (
            dependence(mapped, logits.softmax(0)) / ours.balance + logits.softmax(0).square().sum()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return len(u) * logits.detach().softmax(0)


def cnbb_loop(f):
    ours = CNBB()
    weights = torch.full_like(f[:, 0], 1 / len(f))
    for _ in range(ours.steps):
        weights.requires_grad_()
        loss = balance_loss(f, weights) + ours.size_weight * weights.square().sum()
        (gradient,) = torch.autograd.grad(loss, weights)
        weights = (weights.detach() - ours.learning_rate * (gradient - gradient.mean())).abs()
        weights = weights / weights.sum()
    return len(f) * weights


def dwr_loop(x):
    """Take the steps of TensorFlow 1's RMSProp, whose mean square begins at 1, as in the published
    code.
    """
    ours = BatchDWR()
    root, mean_square = torch.ones_like(x[:, 0]).requires_grad_(), torch.ones_like(x[:, 0])
    for _ in range(ours.steps):
        (gradient,) = torch.autograd.grad(dwr_loss(x, root.square()), root)
        mean_square = 0.9 * mean_square + 0.1 * gradient.square()
        root = (
            (root - ours.learning_rate * gradient / (mean_square + 1e-10).sqrt())
            .detach()
            .requires_grad_()
        )
    weights = root.detach().square()
    return weights / weights.mean()


def best_ms(work, settings):
    clock = time.process_time if settings.cpu_time else time.perf_counter
    times = []
    for _ in range(settings.turns + 1):
        if settings.device == "cuda":
            torch.cuda.synchronize()
        begin = clock()
        work()
        if settings.device == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - begin)
    return 1e3 * min(times[1:])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count processor time, on a machine with other work"
    )
    parser.add_argument("--turns", type=int, default=6)
    settings = parser.parse_args()
    print(describe_machine())
    print(
        "\n| weights | n | p | loop, ms | ours, ms | times faster | largest difference of a"
        " weight |"
    )
    print("|---|---|---|---|---|---|---|")
    for n, p in ((64, 512), (128, 2048)):
        u = torch.tanh(torch.randn(n, p, generator=torch.Generator().manual_seed(0))).to(
            settings.device
        )
        for ours, loop in ((StableNet, stablenet_loop), (CNBB, cnbb_loop), (BatchDWR, dwr_loop)):
            torch.manual_seed(1)
            expected = loop(u)
            # StableNet without its memory, as the loop
            weighting = ours().to(settings.device).eval()
            slow = best_ms(lambda loop=loop, u=u: loop(u), settings)
            fast = best_ms(lambda weighting=weighting, u=u: weighting(u), settings)
            torch.manual_seed(1)
            # On a GPU by now from a CUDA graph
            difference = float((weighting(u) - expected).abs().max())
            print(
                f"| {ours.__name__} | {n} | {p} | {slow:.1f} | {fast:.1f} | {slow / fast:.1f} |"
                f" {difference:.0e} |"
            )


if __name__ == "__main__":
    main()
