"""One PFDL step on a GPU: time, launches and memory, against naive and compiled steps, StableNet,
CNBB and DWR.

    python benchmarks/gpu_step.py [--quick | --shape 128 2048]

A step is all the work of one mini-batch on given features: fit g (forward, backward, optimiser),
then the penalty's value and the gradient of the features. Times are wall-clock medians per step
over runs of steps with one wait at the end of each run, so that Python and launches count. Launches
are kernels, copies and fills, those inside a CUDA graph included. Memory is the peak of the first
six steps above what the constructed contestant holds, and what the allocator (CUDA graphs included)
has reserved for it in the end.
"""

import argparse
import gc
import statistics
import time
from functools import partial

import torch

import pfdl
from machine import describe_machine
from pfdl.objectives.weightings import CNBB, BatchDWR, StableNet
from rivals import Naive

PEAK_FP32 = 67e12  # vendor's datasheet for the H200, operations per second outside the matrix units
BANDWIDTH = 4.3e12  # bytes per second of a device-to-device copy, counting reads and writes


def median_ms(step, seconds=0.6, warmup=3):
    for _ in range(warmup):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    count = max(1, min(50, int(0.1 / (time.perf_counter() - begin))))
    runs, finish = [], time.perf_counter() + seconds
    while time.perf_counter() < finish or len(runs) < 3:
        begin = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        runs.append((time.perf_counter() - begin) / count)
    return 1e3 * statistics.median(runs)


def device_events(step, steps=5):
    """Return what ran on the GPU in some steps: kernels, copies and fills."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    return [event for event in profile.key_averages() if event.self_device_time_total > 0]


def device_use(step, steps=5):
    """Return the time that the GPU is busy in a step, in ms, and the number of launches."""
    events = device_events(step, steps)
    busy = sum(event.self_device_time_total for event in events)
    return busy / (1e3 * steps), sum(event.count for event in events) / steps


def breakdown(n, p, hidden, sharing, most=26):
    """Say where the GPU's time goes in a step of ours, kernel by kernel."""
    u = torch.relu(torch.randn(n, p, device="cuda")).requires_grad_()
    step = partial(penalty_step(p, hidden, sharing=sharing), u)
    for _ in range(10):
        step()
    events = sorted(device_events(step), key=lambda event: -event.self_device_time_total)
    print(f"\n### Kernels of one step, {sharing}, n {n}, p {p}, h {hidden}\n")
    print("| kernel | launches | µs in all |")
    print("|---|---|---|")
    for event in events[:most]:
        print(
            f"| {event.key[:60]} | {event.count / 5:g} | {event.self_device_time_total / 5:.1f} |"
        )
    if events[most:]:
        rest = sum(event.self_device_time_total for event in events[most:]) / 5
        print(
            f"| {len(events) - most} others | {sum(event.count for event in events[most:]) / 5:g} |"
            f" {rest:.1f} |"
        )


def peak_mb(make):
    """Return the peak memory of the first steps above what the contestant holds, and what stays
    reserved after.
    """
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    step = make()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(6):
        step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - allocated
    del step
    torch.cuda.empty_cache()
    return peak / 1e6, (torch.cuda.max_memory_reserved() - reserved) / 1e6


def roofline_ms(n, p, h):
    """Return the least time that the arithmetic and the memory traffic of a step can take.

    For each (row, feature, hidden unit) the ReLU network needs, counting a fused multiply-add as
    one instruction: 1 for the base, 4 for Ũ, 5 for Δ, 9 for the sums of the parameters' gradients
    in step 1; 1, 4, 5 and 7 in step 2. The vendor's rate counts a fused multiply-add as two
    operations. Bytes: Adam reads four and writes three arrays of g's 2·p·h numbers, g is read once
    more in each step, and some twelve (n, p) arrays are read or written.
    """
    instructions = (1 + 4 + 5 + 9 + 1 + 4 + 5 + 7) * n * p * h
    moved = 4 * (7 * 2 * p * h + 2 * 2 * p * h + 12 * n * p)
    return 1e3 * instructions / (PEAK_FP32 / 2), 1e3 * moved / BANDWIDTH


def penalty_step(p, hidden, **options):
    torch.manual_seed(0)
    decorrelate = pfdl.PartialDecorrelation(p, hidden=hidden, **options).cuda()

    def step(u):
        u.grad = None
        decorrelate(u).backward()

    return step


def compiled_step(p, hidden):
    """Return a step of the masked network and both losses as plain PyTorch, compiled as a whole."""
    torch.manual_seed(0)
    g = pfdl.FeatureDecomposition(p, hidden, sharing="indexed").cuda()
    optimizer = torch.optim.Adam(g.parameters(), lr=1e-3, fused=True)

    def predict(u):
        weight = g.first_weight.T
        pre = (u @ weight)[:, None] - u[:, :, None] * weight + g.first_bias
        return g.layers[0](torch.relu(pre)).squeeze(-1)

    @torch.compile
    def decomposition_loss(u):
        return (u - predict(u)).square().mean()

    @torch.compile
    def decorrelation_loss(u):
        others = (u.sum(1, keepdim=True) - u) / (p - 1)
        return (predict(u) * others).mean(0).square().mean()

    def step(u):
        optimizer.zero_grad()
        g.requires_grad_(True)
        decomposition_loss(u.detach()).backward()
        optimizer.step()
        g.requires_grad_(False)
        u.grad = None
        decorrelation_loss(u).backward()

    return step


def contestants(p, hidden):
    """Return functions that construct each contestant's step, so that one alone holds memory at a
    time.
    """
    return {
        "pfdl, indexed": lambda: penalty_step(p, hidden, sharing="indexed"),
        "pfdl, strict": lambda: penalty_step(p, hidden, sharing="strict"),
        "plain PyTorch, indexed": lambda: penalty_step(
            p, hidden, sharing="indexed", kernel="plain"
        ),
        "torch.compile, masked": lambda: compiled_step(p, hidden),
        "naive": lambda: Naive(p, hidden, "cuda").step,
        "StableNet reweighting": lambda: StableNet().cuda(),
        "CNBB reweighting": lambda: CNBB().cuda(),
        "DWR reweighting": lambda: BatchDWR().cuda(),
    }


def compare_adam(p, hidden):
    """Time the step of g's Adam with the check before it: ours, and PyTorch's fused step with its
    flag.
    """
    from pfdl.decorrelation.kernels.triton_adam import take_step

    decorrelate = pfdl.PartialDecorrelation(p, hidden=hidden).cuda()
    decorrelate.fit_step(torch.randn(128, p, device="cuda"))
    optimizer, parameters = decorrelate.optimizer, list(decorrelate.decomposition.parameters())
    gradients = [torch.randn_like(parameter) for parameter in parameters]
    unexplained, flags = torch.ones(p, device="cuda"), torch.zeros(2, device="cuda")

    def of_pytorch():
        total = unexplained.sum() + sum(gradient.square().sum() for gradient in gradients)
        optimizer.found_inf = torch.isfinite(total).logical_not().float()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    steps = {
        "ours": lambda: take_step(optimizer, parameters, gradients, unexplained, flags),
        "PyTorch's, with found_inf": of_pytorch,
    }
    print(
        f"\n### The step of Adam and its check, p {p}, h {hidden}\n\n| step | launches | GPU busy,"
        " ms |\n|---|---|---|"
    )
    for name, step in steps.items():
        step()
        busy, launches = device_use(step)
        print(f"| {name} | {launches:.0f} | {busy:.4f} |", flush=True)


def compare(n, p, hidden, only_ours):
    compute, memory = roofline_ms(n, p, hidden)
    print(
        f"\n### n {n}, p {p}, h {hidden}: floor {compute:.3f} ms of arithmetic, {memory:.3f} ms of"
        " memory traffic\n"
    )
    print(
        "| step | ms | ratio to the first | launches | GPU busy, ms | over the floor | peak, MB |"
        " reserved, MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    u = torch.relu(torch.randn(n, p, device="cuda")).requires_grad_()
    first = None
    for name, make in contestants(p, hidden).items():
        if (only_ours and "pfdl" not in name) or (name == "naive" and p > 4096):
            continue
        peak, reserved = peak_mb(lambda make=make: partial(make(), u))
        step = partial(make(), u)
        took = median_ms(step)
        first = first or took
        busy, launches = device_use(step)
        print(
            f"| {name} | {took:.3f} | {took / first:.1f} | {launches:.0f} | {busy:.3f} "
            f"| {busy / max(compute, memory):.1f} | {peak:.1f} | {reserved:.1f} |",
            flush=True,
        )
        del step
        gc.collect()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--quick", action="store_true", help="PFDL alone, at p 2048 and 4096")
    chosen.add_argument(
        "--shape", nargs=2, type=int, metavar=("N", "P"), help="one batch size and width only"
    )
    settings = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    print(describe_machine())
    shapes = [(128, 512), (128, 2048), (256, 2048), (128, 4096), (128, 8192)]
    shapes = [settings.shape] if settings.shape else shapes[1:4:2] if settings.quick else shapes
    for n, p in shapes:
        compare(n, p, 256, only_ours=settings.quick)
    n, p = settings.shape or (128, 2048)
    for sharing in ("strict", "indexed"):
        breakdown(n, p, 256, sharing)
    compare_adam(p, 256)


if __name__ == "__main__":
    main()
