"""Time and memory of pfdl.infer_contexts against the number of samples; features are made as they
are read.

    python benchmarks/contexts_scale.py --samples 10000 100000 1000000
    python benchmarks/contexts_scale.py --mnist DIR

Each size runs in a process of its own. ``CPU`` is the time of the process on all cores, which other
work on the machine changes less. ``MB`` is what the process has at its peak beyond what it has
before the call, so without the interpreter and PyTorch; the features alone of 1,000,000 samples
would take 1,536 MB.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from machine import describe_machine
from pfdl.contexts import find_contexts, group_report
from pfdl.data import SpuCoMNIST
from pfdl_lab.digits import find_digits

FEATURES, CLASSES = 384, 5


class Made(Dataset[tuple[Tensor, Tensor]]):
    """Features of objects in contexts: 95 % of each class in its own, 192 features move with the
    context.
    """

    def __init__(self, samples: int) -> None:
        rng = np.random.default_rng(0)
        self.labels = torch.from_numpy(rng.integers(CLASSES, size=samples))
        others = torch.from_numpy(rng.integers(CLASSES, size=samples))
        self.contexts = torch.where(
            torch.from_numpy(rng.random(samples) < 0.95), self.labels, others
        )
        self.of_context = torch.from_numpy(rng.normal(size=(CLASSES, FEATURES))).float()
        self.of_class = torch.from_numpy(rng.normal(size=(CLASSES, FEATURES))).float()
        self.of_context[:, FEATURES // 2 :] = 0
        self.of_class[:, : FEATURES // 2] = 0
        self.noise = torch.from_numpy(rng.normal(size=(8192, FEATURES))).float()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.__getitems__([row])[0], self.labels[row]

    def __getitems__(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        """Make a batch at once."""
        index = torch.tensor(rows)
        features = self.of_context[self.contexts[index]] + 0.3 * self.of_class[self.labels[index]]
        return features + self.noise[(index * 2654435761) % len(self.noise)], self.labels[index]


def measure(samples: int) -> None:
    data = Made(samples)
    loader = DataLoader(data, 4096, collate_fn=lambda batch: batch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, busy = time.perf_counter(), time.process_time()
    found = find_contexts(loader)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ari = group_report(data.labels, found.contexts, data.contexts).ari
    print(
        f"| {samples:,} × {FEATURES} | {seconds:.1f} | {busy:.1f} | {(peak - before) / 1024:.0f} |"
        f" {peak / 1024:.0f} | {ari:.3f} |"
    )


def measure_images(mnist: Path, images: int, seed: int) -> None:
    """Print the time for SpuCoMNIST, image statistics included, where the colour is a square of 4×4
    pixels.
    """
    data = SpuCoMNIST(
        find_digits(mnist).uncut, magnitude="medium", strength=0.9, seed=seed, max_train=images
    )
    start, busy = time.perf_counter(), time.process_time()
    found = find_contexts(data.train, seed=seed)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    ari = group_report(data.train.labels, found.contexts, data.train.contexts).ari
    print(
        f"| {images:,} images of 28×28, seed {seed} | {seconds:.1f} | {busy:.1f} | | | {ari:.3f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument(
        "--mnist", type=Path, help="folder of the MNIST files: time 5,000 images instead"
    )
    parser.add_argument("--alone", action="store_true", help="measure in this process")
    arguments = parser.parse_args()
    if arguments.mnist is not None:
        for seed in (5, 6, 7):
            measure_images(arguments.mnist, 5_000, seed)
        return
    if arguments.alone:
        measure(arguments.samples[0])
        return
    print(
        f"{describe_machine()}\n\n| samples | seconds | CPU | MB | MB in all | ARI within classes |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    for samples in arguments.samples:
        subprocess.run([sys.executable, __file__, "--alone", "--samples", str(samples)], check=True)


if __name__ == "__main__":
    main()
