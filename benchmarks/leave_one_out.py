"""Time and peak memory of one PFDL step (both steps of one mini-batch) against the naive
implementation.

The rival, "naive", is what one writes first: gather the p leave-one-out inputs of every row into an
n×p×(p−1) tensor and put it through an ordinary MLP. Each measurement runs in a process of its own,
so that peak memory is that of the step alone: on a CPU the growth of the resident set, on a GPU the
allocator's peak. Where the two forms of g are compared, they take turns in one process, so that
other work on the machine disturbs both; *strict ÷ indexed* is the median over the turns.

    python benchmarks/leave_one_out.py                     # the table: ratio to naive, growth with
    n, p and h python benchmarks/leave_one_out.py --threads 2 --device cuda
    python benchmarks/leave_one_out.py --threads 1 --cpu-time   # processor time, on a machine with
    other work
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

import pfdl
from rivals import Naive

HEADLINE = (64, 1024, 64)
GROWTH = {
    "n": [(32, 512, 64), (64, 512, 64), (128, 512, 64), (256, 512, 64)],
    "p": [(64, 256, 64), (64, 512, 64), (64, 1024, 64), (64, 2048, 64)],
    "h": [(64, 512, 32), (64, 512, 64), (64, 512, 128), (64, 512, 256)],
}
METHODS = ("naive", "strict", "indexed")
FORMS = ("strict", "indexed")


def make_step(method: str, p: int, h: int, device: str):
    """Return a mini-batch of PFDL as a function: g is updated, then the gradient of L_decorr
    reaches the features.
    """
    if method == "naive":
        return Naive(p, h, device).step
    penalty = pfdl.PartialDecorrelation(p, hidden=h, sharing=method).to(device)

    def step(features: torch.Tensor) -> None:
        features.grad = None
        penalty(features).backward()

    return step


def measure(
    method: str, n: int, p: int, h: int, device: str, repeats: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Return seconds per step (the best of the repeats, which other work disturbs least) and peak
    bytes.
    """
    torch.manual_seed(0)
    step = make_step(method, p, h, device)
    features = torch.randn(n, p, device=device, requires_grad=True)
    # Load the libraries
    make_step("strict", 8, 4, device)(torch.randn(4, 8, device=device, requires_grad=True))
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = (
        torch.cuda.memory_allocated()
        if on_gpu
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    seconds = []
    for _ in range(repeats + 1):
        start = clock()
        step(features)
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(clock() - start)
    peak = (
        torch.cuda.max_memory_allocated()
        if on_gpu
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    return {"seconds": min(seconds[1:]), "bytes": peak - before}


def compare(
    n: int, p: int, h: int, device: str, repeats: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Return seconds per step of both forms of g, the best of their turns, and the median of their
    ratio.
    """
    torch.manual_seed(0)
    features = torch.randn(n, p, device=device, requires_grad=True)
    steps = {method: make_step(method, p, h, device) for method in FORMS}
    seconds: dict[str, list[float]] = {method: [] for method in FORMS}
    for _ in range(repeats + 1):
        for method, step in steps.items():
            start = clock()
            step(features)
            if device.startswith("cuda"):
                torch.cuda.synchronize()
            seconds[method].append(clock() - start)
    ratios = [
        strict / indexed
        for strict, indexed in zip(*(seconds[method][1:] for method in FORMS), strict=True)
    ]
    return {
        "ratio": statistics.median(ratios),
        **{method: min(found[1:]) for method, found in seconds.items()},
    }


def in_own_process(
    method: str, shape: tuple[int, int, int], options: argparse.Namespace
) -> dict[str, float]:
    """Measure in a fresh interpreter."""
    command = [
        sys.executable,
        __file__,
        "--device",
        options.device,
        "--threads",
        str(options.threads),
    ]
    command += ["--repeats", str(options.repeats), "--measure", method, *map(str, shape)]
    command += ["--cpu-time"] if options.cpu_time else []
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--cpu-time", action="store_true", help="processor time instead of wall-clock time"
    )
    parser.add_argument(
        "--measure", nargs=4, metavar=("METHOD", "N", "P", "H"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        method, *shape = options.measure
        clock = time.process_time if options.cpu_time else time.perf_counter
        n, p, h = map(int, shape)
        if method == "both":
            print(json.dumps(compare(n, p, h, options.device, options.repeats, clock)))
        else:
            print(json.dumps(measure(method, n, p, h, options.device, options.repeats, clock)))
        return

    machine = (
        torch.cuda.get_device_name() if options.device.startswith("cuda") else platform.processor()
    )
    console = Console()
    console.print(
        f"One PFDL step on {options.device} ({machine or platform.machine()}), {options.threads}"
        " threads, "
    )
    console.print(
        f"torch {torch.__version__}, Python {platform.python_version()}; best of"
        f" {options.repeats}.\n"
    )

    table = Table(title=f"against naive at n, p, h = {HEADLINE}")
    for column in ("g", "time", "naive ÷ it", "peak memory", "naive ÷ it"):
        table.add_column(column, justify="right")
    found = {method: in_own_process(method, HEADLINE, options) for method in METHODS}
    for method, result in found.items():
        table.add_row(
            method,
            f"{1e3 * result['seconds']:.1f} ms",
            f"{found['naive']['seconds'] / result['seconds']:.1f} ×",
            f"{result['bytes'] / 2**20:.0f} MB",
            f"{found['naive']['bytes'] / max(result['bytes'], 1):.1f} ×",
        )
    console.print(table)
    console.print(
        f"strict ÷ indexed there: {in_own_process('both', HEADLINE, options)['ratio']:.2f}\n"
    )

    for name, shapes in GROWTH.items():
        table = Table(
            title=f"growth with {name} (each row doubles it: a straight line doubles the time)"
        )
        for column in (
            "n",
            "p",
            "h",
            "strict",
            "× previous",
            "indexed",
            "× previous",
            "strict ÷ indexed",
        ):
            table.add_column(column, justify="right")
        previous: dict[str, float] = {}
        for shape in shapes:
            cells = []
            found = in_own_process("both", shape, options)
            for method in FORMS:
                ratio = f"{found[method] / previous[method]:.2f}" if method in previous else ""
                cells += [f"{1e3 * found[method]:.1f} ms", ratio]
            previous = found
            table.add_row(*map(str, shape), *cells, f"{found['ratio']:.2f}")
        console.print(table)


if __name__ == "__main__":
    main()
