"""Images per second of a training: a bare PyTorch loop, on a GPU one whose step is a CUDA graph,
``pfdl train``, and ``pfdl.vision.fit`` on images in memory.

    python benchmarks/train_throughput.py --device cuda            ResNet-18 on 20,000 images of
    64×64, bfloat16 python benchmarks/train_throughput.py --device cpu --images 512 --cpu-time

The images are noise, and are made in memory once. The three take turns, one run of some epochs
each, and a ratio is the median over the turns of the ratio inside a turn. Each run's line is
written as it ends; Ctrl-C or SIGTERM after a whole turn still prints the table.

Equal in all three: the network and its first weights, the objective, the augmentation, the
optimiser and its settings, the precision, the layout in memory, the size of a batch, the order and
the number of steps. Equal in the bare loop and ``pfdl train``: the loader, of pictures in memory,
as ``pfdl train`` keeps sets of up to 2 GB once they are decoded. The latter two draw from a seed
for each step and report loss, accuracy and what the objective measures. Only ``pfdl train`` listens
for Ctrl-C, logs to TensorBoard and a table, and saves a state to resume from; all of that is
counted.

*Images per second* is the steady state: from the end of the first epoch's steps to the end of the
last one's, with all that happens between epochs. *Start and end* is the rest of a run beyond that
pace, in seconds: making network and trainer, what the first steps compile and choose, and the last
save. Decoding is not in it.

``--cpu-time`` counts the processor time of this process instead of the clock's, for a machine that
others use too.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from machine import describe_machine
from pfdl import make_objective
from pfdl.data import Manifest, make_split
from pfdl.data.images import hash_bytes
from pfdl.data.sources import ContextSource, Sample
from pfdl.vision import Classifier, TrainingConfig, TrainingStoppedError, fit, train
from pfdl.vision.backbones import make_backbone
from pfdl.vision.features import attach
from pfdl.vision.loop import Loop
from pfdl.vision.pixels import mirror_and_shift, normalise
from pfdl.vision.training_data import TrainingData

CLASSES = 8
Results = dict[str, list[float]]
BARE, CAPTURED = "bare loop", "bare loop, captured by hand"
FOLDER, MEMORY = "`pfdl train`", "`fit` in memory"


@dataclass
class Clock:
    """Note the time at the end of each epoch."""

    device: str
    read: Callable[[], float]

    def __post_init__(self) -> None:
        self.times: list[float] = []
        self.began = self.read()

    def tick(self) -> None:
        """Read the clock once the device has done its work."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        self.times.append(self.read())

    def seconds_per_epoch(self) -> float:
        """Return the mean after the first epoch."""
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1)

    def other_seconds(self) -> float:
        """Return what a run that ends now took beyond its epochs."""
        return self.read() - self.began - len(self.times) * self.seconds_per_epoch()


class Noise:
    """Images of noise in memory, decoded as it were: a source for all runs."""

    description: ClassVar[dict[str, str]] = {"kind": "noise"}

    def __init__(self, count: int, size: int) -> None:
        self.samples = tuple(self._sample(number, "train") for number in range(count))
        self.samples += tuple(self._sample(number, "test") for number in range(CLASSES))
        generator = torch.Generator().manual_seed(0)
        images = torch.randint(
            256, (len(self.samples), 3, size, size), dtype=torch.uint8, generator=generator
        )
        self._images = dict(zip((sample.path for sample in self.samples), images, strict=True))

    def _sample(self, number: int, split: str) -> Sample:
        path = f"{split}/{number:06d}"
        name = hash_bytes(path.encode())  # of the name: nothing reads the file that it stands for
        return Sample(path, f"class-{number % CLASSES}", "", name, name, split)

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image."""
        return self._images[path]


def make_config(settings: argparse.Namespace) -> TrainingConfig:
    return TrainingConfig(
        settings.backbone,
        settings.objective,
        image_size=settings.size,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        precision=settings.precision,
    )


def make_data(
    settings: argparse.Namespace, source: ContextSource, manifest: Manifest
) -> TrainingData:
    return TrainingData(make_config(settings), source, manifest, num_workers=settings.workers)


def bare_loop(
    settings: argparse.Namespace, source: ContextSource, manifest: Manifest, clock: Clock
) -> None:
    """Train as a user would who has a loader and an objective, and no framework."""
    device, bf16 = settings.device, settings.precision == "bf16"
    data = make_data(settings, source, manifest)
    torch.manual_seed(0)
    model = make_backbone(settings.backbone, CLASSES, image_size=settings.size)
    model.to(device).to(
        memory_format=torch.channels_last if device == "cuda" else torch.contiguous_format
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    loader = data.train_loader()
    with attach(model) as tap:
        objective = make_objective(settings.objective, tap.num_features, num_classes=CLASSES).to(
            device
        )
        for epoch in range(settings.epochs):
            for batch in loader.read(epoch):
                images, labels = (part.to(device, non_blocking=True) for part in batch[:2])
                pixels = normalise(mirror_and_shift(images))
                if device == "cuda":
                    pixels = pixels.contiguous(memory_format=torch.channels_last)
                with torch.autocast(device, torch.bfloat16, enabled=bf16):
                    logits = model(pixels)
                loss = objective(logits.float(), labels, features=tap.features.float())
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            clock.tick()


def captured_loop(settings: argparse.Namespace, data: TrainingData, clock: Clock) -> None:
    """Train as somebody would who records one step as a CUDA graph by hand, for speed alone.

    The images lie on the GPU, which draws the order and the augmentation as well; nothing is
    logged, seeded by step or saved.
    """
    torch.manual_seed(0)
    model = make_backbone(settings.backbone, CLASSES, image_size=settings.size).cuda()
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4, fused=True
    )
    images, labels = data.train_set.images.cuda(), data.train_set.labels.cuda()
    rows = torch.zeros(settings.batch_size, dtype=torch.long, device="cuda")
    reach = settings.size // 8

    def step() -> None:
        shifts = torch.randint(-reach, reach + 1, (len(rows), 3), device="cuda")
        pixels = normalise(mirror_and_shift(images[rows], shifts))
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16, enabled=settings.precision == "bf16"):
            logits = model(pixels)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=beside):
        step()
    steps = len(images) // settings.batch_size
    for _ in range(settings.epochs):
        order = torch.randperm(len(images), device="cuda")
        for chosen in order[: steps * settings.batch_size].split(settings.batch_size):
            rows.copy_(chosen)
            graph.replay()
        clock.tick()


def run_folder(
    settings: argparse.Namespace, source: ContextSource, manifest: Manifest, clock: Clock
) -> None:
    # From the first to the last end of an epoch's steps lies all that happens between epochs, too.
    original = Loop.end_epoch

    def end_epoch(self: Loop) -> dict[str, float]:
        clock.tick()
        return original(self)

    Loop.end_epoch = end_epoch  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "run"
            train(
                make_config(settings),
                source,
                manifest,
                place,
                device=settings.device,
                num_workers=settings.workers,
            )
    finally:
        Loop.end_epoch = original  # type: ignore[method-assign]


def memory(settings: argparse.Namespace, data: TrainingData, clock: Clock) -> None:
    images = data.train_set
    torch.manual_seed(0)
    model = Classifier(make_config(settings), CLASSES)
    fit(
        model,
        images.images,
        images.labels,
        device=settings.device,
        after_epoch=lambda *_: clock.tick(),
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--objective", default="erm", help="one that needs no contexts")
    parser.add_argument("--images", type=int, help="training images (512 on a CPU, 20000 on a GPU)")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=0, help="processes that load images")
    parser.add_argument("--precision", choices=("32", "bf16"), help="bf16 by default on a GPU")
    parser.add_argument(
        "--epochs", type=int, default=4, help="of a run; the first one is not counted"
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true")
    settings = parser.parse_args()
    settings.images = settings.images or (20_000 if settings.device == "cuda" else 512)
    settings.precision = settings.precision or ("bf16" if settings.device == "cuda" else "32")
    return settings


def measure(settings: argparse.Namespace, speeds: Results, others: Results) -> None:
    """Let the three take turns, and note images per second and other seconds of each run as it
    ends.
    """
    source = Noise(settings.images, settings.size)
    manifest = make_split(source, ratio="5:1", validation_fraction=0.0)
    data = make_data(settings, source, manifest)
    images = len(data.train_set) // settings.batch_size * settings.batch_size
    runs: dict[str, Callable[[Clock], None]] = {
        BARE: lambda clock: bare_loop(settings, source, manifest, clock),
        CAPTURED: lambda clock: captured_loop(settings, data, clock),
        FOLDER: lambda clock: run_folder(settings, source, manifest, clock),
        MEMORY: lambda clock: memory(settings, data, clock),
    }
    for _ in range(settings.turns):
        for name in speeds:
            run = runs[name]
            clock = Clock(
                settings.device, time.process_time if settings.cpu_time else time.perf_counter
            )
            run(clock)
            others[name].append(clock.other_seconds())
            speeds[name].append(images / clock.seconds_per_epoch())
            print(f"{name}: {speeds[name][-1]:.1f} images per second", file=sys.stderr, flush=True)


def print_table(settings: argparse.Namespace, speeds: Results, others: Results, turns: int) -> None:
    print(describe_machine(), "\n")
    shown = (
        f"{settings.backbone}, {settings.objective}, {settings.images} images of {settings.size}², "
    )
    shown += f"batch {settings.batch_size}, {settings.precision}, {settings.workers} workers, "
    shown += f"{turns} turns of {settings.epochs} epochs"
    second = "second of processor time" if settings.cpu_time else "second"
    print(f"| {shown} | images per {second} | of the bare loop | in each turn | start and end, s |")
    print("|---|---|---|---|---|")
    for name in speeds:
        found, bare = speeds[name][:turns], speeds[BARE][:turns]
        ratios = [mine / theirs for mine, theirs in zip(found, bare, strict=True)]
        in_turns = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        other = statistics.median(others[name][:turns])
        print(
            f"| {name} | {statistics.median(found):.0f} | {statistics.median(ratios):.3f} |"
            f" {in_turns} | {other:.1f} |"
        )


def main() -> None:
    settings = parse()
    torch.backends.cudnn.benchmark = True
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names = [BARE, FOLDER, MEMORY]
    if settings.device == "cuda" and settings.objective == "erm":
        names.insert(1, CAPTURED)
    speeds: Results = {name: [] for name in names}
    others: Results = {name: [] for name in speeds}
    try:
        measure(settings, speeds, others)
    except (KeyboardInterrupt, TrainingStoppedError):
        print("interrupted; the table has the whole turns", file=sys.stderr)
    if turns := min(map(len, speeds.values())):
        print_table(settings, speeds, others, turns)


if __name__ == "__main__":
    main()
