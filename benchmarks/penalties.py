"""Time and peak memory of PFDL's penalty beside what else decorrelates features: the covariance
term of VICReg, DeCov and a loss of the kind of Barlow Twins.

    python benchmarks/penalties.py                         # on a CPU, one thread
    python benchmarks/penalties.py --device cuda

A step is all that a training does with given features: the value of the penalty and its gradient
with respect to the features; PFDL fits g before, with its own Adam. On a GPU *replayed* is the time
of a step in a CUDA graph, as `pfdl train` runs it. Memory is what a step needs above the features
and what the contestant keeps; on a CPU each has a process of its own for that.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

import pfdl
from machine import describe_machine
from pfdl._internal.cuda_graphs import without_looking

SHAPES = ((64, 512), (64, 2048), (256, 512), (256, 2048))
Step = Callable[[], None]


def vicreg(u: Tensor) -> Tensor:
    """Return the covariance term of VICReg (Bardes et al., 2022)."""
    centred = u - u.mean(0)
    covariance = centred.T @ centred / (len(u) - 1)
    off_diagonal = covariance.square().sum() - covariance.diagonal().square().sum()
    return off_diagonal / u.shape[1]


def decov(u: Tensor) -> Tensor:
    """Return the loss of DeCov (Cogswell et al., 2016)."""
    centred = u - u.mean(0)
    covariance = centred.T @ centred / len(u)
    return 0.5 * (covariance.square().sum() - covariance.diagonal().square().sum())


def barlow(u: Tensor) -> Tensor:
    """Return the redundancy term of Barlow Twins (Zbontar et al., 2021), of one view."""
    scaled = (u - u.mean(0)) / (u.std(0) + 1e-5)
    correlation = scaled.T @ scaled / len(u)
    return correlation.square().sum() - correlation.diagonal().square().sum()


CONTESTANTS: dict[str, Callable[[int], Callable[[Tensor], Tensor]]] = {
    "VICReg's covariance term": lambda p: vicreg,
    "DeCov": lambda p: decov,
    "Barlow-type": lambda p: barlow,
    "PFDL (hidden=256)": lambda p: pfdl.PartialDecorrelation(p),
    "PFDL, hidden=128": lambda p: pfdl.PartialDecorrelation(p, hidden=128),
    "PFDL, hidden=64": lambda p: pfdl.PartialDecorrelation(p, hidden=64),
    "PFDL, indexed": lambda p: pfdl.PartialDecorrelation(p, sharing="indexed"),
}


def make_step(name: str, n: int, p: int, device: str) -> Step:
    penalty = CONTESTANTS[name](p)
    if isinstance(penalty, torch.nn.Module):
        penalty.to(device)
    features = torch.randn(n, p, device=device).relu().requires_grad_()

    def step() -> None:
        features.grad = None
        penalty(features).backward()

    return step


def median_ms(step: Step, device: str, cpu_time: bool) -> float:
    read = time.process_time if cpu_time else time.perf_counter
    seconds = []
    for _ in range(25):
        start = read()
        for _ in range(10 if device == "cuda" else 1):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append((read() - start) / (10 if device == "cuda" else 1))
    return 1e3 * statistics.median(seconds)


def replayed_ms(step: Step) -> float:
    """Return the time of a step in a CUDA graph, which holds ten."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), without_looking():
        for _ in range(4):
            step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(10):
                step()
        return median_ms(graph.replay, "cuda", cpu_time=False) / 10


def measure(name: str, n: int, p: int, device: str, cpu_time: bool) -> dict[str, float]:
    torch.manual_seed(0)
    step = make_step(name, n, p, device)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device == "cuda":
        step()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    for _ in range(3):
        step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    found = {"ms": median_ms(step, device, cpu_time), "bytes": peak - before}
    if device == "cuda":
        found["replayed"] = replayed_ms(step)
    return found


def in_own_process(name: str, n: int, p: int, cpu_time: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--device", "cpu"]
    command += ["--cpu-time"] if cpu_time else []
    command += ["--measure", name, str(n), str(p)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(answer.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--cpu-time", action="store_true", help="processor time")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure:
        name, n, p = options.measure
        print(json.dumps(measure(name, int(n), int(p), options.device, options.cpu_time)))
        return
    print(describe_machine(), "\n")
    print("| n × p | penalty | ms | of VICReg's | replayed, ms | of VICReg's | MiB |")
    print("|---|---|---|---|---|---|---|")
    for n, p in SHAPES:
        first: dict[str, float] = {}
        for name in CONTESTANTS:
            if options.device == "cuda":
                found = measure(name, n, p, "cuda", options.cpu_time)
            else:
                found = in_own_process(name, n, p, options.cpu_time)
            first = first or found
            replayed = "– | –"
            if "replayed" in found:
                ratio = found["replayed"] / first["replayed"]
                replayed = f"{found['replayed']:.3f} | {ratio:.1f}"
            print(
                f"| {n} × {p} | {name} | {found['ms']:.2f} | {found['ms'] / first['ms']:.1f} |"
                f" {replayed} | {found['bytes'] / 2**20:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
