"""One PFDL step on a GPU, time and memory, against a naive step, plain PyTorch, torch.compile, StableNet and CNBB.

    python benchmarks/gpu_step.py [--quick]

A step is all the work of one mini-batch on given features: fit g (forward, backward, optimiser), then the penalty's
value and the gradient of the features. Times are wall-clock medians per step over runs of steps with one wait at the
end of each run, so that Python and launches count. Memory is the peak of the first six steps above what the
constructed contestant holds, and what the allocator (CUDA graphs included) has reserved for it in the end.
"""

import argparse
import gc
import statistics
import time
from functools import partial

import torch

import pfdl
from machine import describe_machine
from pfdl.objectives.weightings import CNBB, StableNet
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


def device_ms(step):
    """The time that the GPU's kernels run in a step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profile.key_averages()) / 5e3


def breakdown(n, p, hidden, most=14):
    """Where the GPU's time goes in a step of ours, kernel by kernel."""
    u = torch.relu(torch.randn(n, p, device="cuda")).requires_grad_()
    step = partial(penalty_step(p, hidden), u)
    for _ in range(10):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
    print(f"\n### Kernels of one step with the shared g, n {n}, p {p}, h {hidden}\n")
    print("| kernel | launches | µs in all |")
    print("|---|---|---|")
    for event in events[:most]:
        print(f"| {event.key[:60]} | {event.count / 5:g} | {event.self_device_time_total / 5:.1f} |")
    rest = sum(event.self_device_time_total for event in events[most:]) / 5
    print(f"| {len(events) - most} others | {sum(event.count for event in events[most:]) / 5:g} | {rest:.1f} |")


def peak_mb(make):
    """Peak memory of the first steps, above what the constructed contestant holds, and what stays reserved after."""
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
    """The least time that the arithmetic and the memory traffic of a step can take.

    For each (row, feature, hidden unit) the ReLU network needs, counting a fused multiply-add as one instruction: 1 for
    the base, 4 for Ũ, 5 for Δ, 9 for the sums of the parameters' gradients in step 1; 1, 4, 5 and 7 in step 2. The
    vendor's rate counts a fused multiply-add as two operations. Bytes: Adam reads four and writes three arrays of g's
    2·p·h numbers, g is read once more in each step, and some twelve (n, p) arrays are read or written.
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
    """The masked network and both losses as plain PyTorch, each step compiled as a whole."""
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
    """Functions that construct each contestant's step, so that only one of them holds memory at a time."""
    return {
        "pfdl, indexed": lambda: penalty_step(p, hidden, sharing="indexed"),
        "pfdl, strict": lambda: penalty_step(p, hidden, sharing="strict"),
        "plain PyTorch, indexed": lambda: penalty_step(p, hidden, sharing="indexed", kernel="plain"),
        "torch.compile, masked": lambda: compiled_step(p, hidden),
        "naive": lambda: Naive(p, hidden, "cuda").step,
        "StableNet reweighting": lambda: StableNet().cuda(),
        "CNBB reweighting": lambda: CNBB().cuda(),
    }


def compare(n, p, hidden, only_ours):
    compute, memory = roofline_ms(n, p, hidden)
    print(f"\n### n {n}, p {p}, h {hidden}: floor {compute:.3f} ms of arithmetic, {memory:.3f} ms of memory traffic\n")
    print("| step | ms | ratio to the first | GPU busy, ms | over the floor | peak, MB | reserved, MB |")
    print("|---|---|---|---|---|---|---|")
    u = torch.relu(torch.randn(n, p, device="cuda")).requires_grad_()
    first = None
    for name, make in contestants(p, hidden).items():
        if (only_ours and "pfdl" not in name) or (name == "naive" and p > 4096):
            continue
        peak, reserved = peak_mb(lambda make=make: partial(make(), u))
        step = partial(make(), u)
        took = median_ms(step)
        first = first or took
        busy = device_ms(step)
        print(
            f"| {name} | {took:.3f} | {took / first:.1f} | {busy:.3f} | {busy / max(compute, memory):.1f} "
            f"| {peak:.1f} | {reserved:.1f} |",
            flush=True,
        )
        del step
        gc.collect()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="PFDL alone, at p 2048 and 4096")
    quick = parser.parse_args().quick
    torch.backends.cuda.matmul.allow_tf32 = True
    print(describe_machine())
    shapes = [(128, 512), (128, 2048), (256, 2048), (128, 4096), (128, 8192)]
    for n, p in shapes[1:4:2] if quick else shapes:
        compare(n, p, 256, only_ours=quick)
    breakdown(128, 2048, 256)


if __name__ == "__main__":
    main()
