"""Time and memory until ``pfdl train`` has read a large folder: scan, split, and the manifest
written and read again.

    python benchmarks/scan.py                     100,000 PNG files of 16×16 pixels in 10 classes
    and 4 contexts

The files are made in a temporary folder first. Each way runs in a process of its own, on a warm
file cache; ``MB`` is what the process has at its peak beyond what it has before. Beside ours stand
torchvision's ``ImageFolder``, which lists the names and opens no file, and the least that a check
of every image takes: a plain loop that reads, hashes and decodes each file once. ``CPU s`` counts
the processor time of all threads, for a machine that others use too.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from torchvision.datasets import ImageFolder

from machine import describe_machine
from pfdl.data import make_split, open_images, read_manifest

CLASSES, CONTEXTS, SIZE = 10, 4, 16
LISTING, LOOP, SCAN, SPLIT = "ImageFolder", "loop", "open_images", "split"
WORDS = {
    LISTING: "torchvision's `ImageFolder`: names only",
    LOOP: "plain loop: names, SHA-256 and pixels of each file",
    SCAN: "`open_images`: the same, all checks",
    SPLIT: "`open_images`, `make_split`, manifest written and read",
}


def write_images(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(count):
        place = folder / f"class-{number % CLASSES}" / f"context-{number // CLASSES % CONTEXTS}"
        if number < CLASSES * CONTEXTS:
            place.mkdir(parents=True)
        pixels = rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number:06d}.png", compress_level=0)


def run(way: str, folder: Path) -> None:
    if way == LISTING:
        ImageFolder(folder)
    elif way == LOOP:
        for path, _ in ImageFolder(folder).samples:
            content = Path(path).read_bytes()
            hashlib.sha256(content).hexdigest()
            hashlib.sha256(Image.open(io.BytesIO(content)).convert("RGB").tobytes()).hexdigest()
    elif way == SCAN:
        _ = open_images(folder).samples
    else:
        with tempfile.TemporaryDirectory() as place:
            table, _ = make_split(open_images(folder), ratio="5:1").save(
                Path(place) / "manifest.csv"
            )
            read_manifest(table)


def measure(way: str, folder: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, processor = time.perf_counter(), time.process_time()
    run(way, folder)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(seconds, processor, megabytes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument(
        "--alone", nargs=2, metavar=("WAY", "FOLDER"), help="measure in this process"
    )
    arguments = parser.parse_args()
    if arguments.alone:
        measure(arguments.alone[0], Path(arguments.alone[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), arguments.images)
        command = [sys.executable, __file__, "--alone"]
        found = {}
        for way in WORDS:
            answer = subprocess.run(
                [*command, way, folder], check=True, capture_output=True, text=True
            ).stdout
            found[way] = [float(number) for number in answer.split()]
    print(
        f"{describe_machine()}\n\n| {arguments.images:,} files | s | CPU s | CPU of the loop | MB |"
    )
    print("|---|---|---|---|---|")
    for way, (seconds, processor, megabytes) in found.items():
        ratio = processor / found[LOOP][1]
        print(f"| {WORDS[way]} | {seconds:.1f} | {processor:.1f} | {ratio:.2f} | {megabytes:.0f} |")


if __name__ == "__main__":
    main()
