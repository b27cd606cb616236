"""SpuCoMNIST: contexts that pfdl infers, beside those of the peer's own package, and what training with them reaches.

    python benchmarks/spuco_mnist.py groups --mnist DIR --spuco DIR --out groups.csv
    python benchmarks/spuco_mnist.py train --mnist DIR --spuco DIR --device cuda --jobs 6 --out trainings.csv

``--spuco`` names a folder made by ``pip install --no-deps --target DIR spuco``; without it the peer's rows are left
out. A line is written for every finished inference or training, and what is in the file already is not run again. All
rows train the same LeNet from the same start; ``last`` is after the last epoch, ``chosen`` after the epoch with the
best worst group of the validation images (which have known groups, as the peer's benchmark has them).
"""

from __future__ import annotations

import argparse
import csv
import importlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl import context_sampler, context_weights, image_statistics
from pfdl.contexts import find_contexts, group_accuracy, group_report
from pfdl.data.spuco_mnist import SpuCoMNIST
from pfdl_lab.images.networks import lenet

OURS = ("auto", "pooled", "within", "early", "errors")
PEERS = ("spare", "jtt", "eiil")
ROWS = (
    "erm",
    *(f"{name} sampler" for name in ("auto", *PEERS, "true")),
    "auto weights",
    *(f"{name} sampler" for name in OURS[1:]),
)
NOT_INSTALLED = (
    "wilds",
    "umap",
    "wandb",
    "requests",
    "transformers",
    "torchvision",
    "clip",
    "grad_cam",
    "pytorch_grad_cam",
)
PARTS = (".datasets", ".datasets.wilds_dataset", ".transforms", ".models", ".utils", ".utils.image")
Job = tuple[argparse.Namespace, str, float, int, list[str]]  # settings, magnitude, strength, seed, rows
KEYS = ("magnitude", "strength", "seed", "row")
SCORES = ("ari", "accuracy", "worst_group_accuracy", "minority_precision", "minority_recall")
QUALITY = ("contexts", *SCORES)
RESULTS = ("last_worst", "last_average", "chosen_worst", "chosen_average", "chosen_epoch")


def outputs(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(batch.flatten(1).float() / 255) for batch in images.split(4096)])


def train(
    data: SpuCoMNIST, settings: argparse.Namespace, seed: int, *, epochs: int, groups: Tensor | None, how: str
) -> Iterator[nn.Module]:
    """Train a LeNet and yield it after every epoch; ``how`` is plain, sampler or weights."""
    torch.manual_seed(seed)
    model = lenet(data.train.images.shape[1:]).to(settings.device)
    images, labels = data.train.images.to(settings.device), data.train.labels.to(settings.device)
    optimizer = torch.optim.SGD(model.parameters(), settings.lr, momentum=0.9, weight_decay=5e-4)
    sampler = context_sampler(data.train.labels, groups, seed=seed) if how == "sampler" else None
    weights = context_weights(data.train.labels, groups).to(settings.device) if how == "weights" else None

    def step(rows: Tensor) -> None:
        loss = F.cross_entropy(model(images[rows].flatten(1).float() / 255), labels[rows], reduction="none")
        loss = (loss if weights is None else loss * weights[rows]).mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()

    if images.is_cuda:
        step = recorded(step, model, optimizer, torch.arange(settings.batch, device=images.device))
    whole = len(labels) // settings.batch * settings.batch
    for epoch in range(epochs):
        shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1000 * seed + epoch))
        order = shuffled if sampler is None else torch.tensor(list(sampler))
        for rows in order[:whole].to(settings.device).split(settings.batch):
            step(rows)
        yield model


def recorded(
    step: Callable[[Tensor], None], model: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor
) -> Callable[[Tensor], None]:
    """Record a step as a CUDA graph, since launching it takes longer than running it; the network stays as it was."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    torch.cuda.synchronize()  # the other stream must find its inputs complete
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            step(rows)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(rows)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), before, strict=True):
            parameter.copy_(value)
            optimizer.state[parameter]["momentum_buffer"].zero_()

    def replay(new_rows: Tensor) -> None:
        rows.copy_(new_rows)
        graph.replay()

    return replay


def peer(folder: Path) -> object:
    """Import the peer's group inference; modules that it imports and does not need here are stood in for."""
    sys.path.insert(0, str(folder))
    for name in NOT_INSTALLED:
        if name not in sys.modules and find_spec(name) is None:
            stand_in = MagicMock(name=name, __path__=[], __spec__=None)
            for part in ("", *PARTS):
                sys.modules[name + part] = stand_in
    return importlib.import_module("spuco.group_inference")


def peer_groups(name: str, data: SpuCoMNIST, settings: argparse.Namespace, seed: int) -> np.ndarray:
    """Groups by the peer's own code from a LeNet after ``--infer-epochs`` epochs, as its quick starts do."""
    package = peer(settings.spuco)
    *_, model = train(data, settings, seed, epochs=settings.infer_epochs, groups=None, how="plain")
    logits, labels = outputs(model, data.train.images.to(settings.device)).cpu(), data.train.labels.tolist()
    if name == "spare":  # told the true number of colours, which its silhouettes would otherwise have to find
        inference = package.SpareInference(logits=F.softmax(logits, 1), class_labels=labels, num_clusters=5)
    elif name == "jtt":
        inference = package.JTTInference(predictions=logits.argmax(1).tolist(), class_labels=labels)
    else:
        inference = package.EIIL(
            logits=logits, class_labels=labels, num_steps=20000, lr=0.01, device=torch.device(settings.device)
        )
    contexts = np.zeros(len(labels), dtype=np.intp)
    for (_, context), rows in inference.infer_groups().items():
        contexts[rows] = context
    return contexts


def make_groups(name: str, data: SpuCoMNIST, features: Tensor, settings: argparse.Namespace, seed: int) -> np.ndarray:
    if name == "true":
        return data.train.contexts.numpy()
    if name in PEERS:
        return peer_groups(name, data, settings, seed)
    found = find_contexts(features, data.train.labels, method=name, seed=seed)
    print(f"  {data.magnitude} {data.strength} seed {seed} {name}: {found.sentence}", flush=True)
    return found.contexts


def quality_of(contexts: np.ndarray, data: SpuCoMNIST) -> dict[str, object]:
    scores = group_report(data.train.labels, contexts, data.train.contexts)
    return {"contexts": len(np.unique(contexts)), **{name: round(getattr(scores, name), 4) for name in SCORES}}


def quality(job: Job) -> Iterator[dict[str, object]]:
    settings, magnitude, strength, seed, rows = job
    data = SpuCoMNIST(
        settings.mnist, magnitude=magnitude, strength=strength, seed=seed, max_train=settings.train_images
    )
    features = image_statistics(data.train.images.to(settings.device)).cpu()
    for row in rows:
        start = time.perf_counter()
        contexts = make_groups(row, data, features, settings, seed)
        seconds = round(time.perf_counter() - start, 1)
        yield {
            **dict(zip(KEYS, (magnitude, strength, seed, row), strict=True)),
            **quality_of(contexts, data),
            "seconds": seconds,
        }


def trainings(job: Job) -> Iterator[dict[str, object]]:
    settings, magnitude, strength, seed, rows = job
    data = SpuCoMNIST(
        settings.mnist, magnitude=magnitude, strength=strength, seed=seed, max_train=settings.train_images
    )
    features = image_statistics(data.train.images.to(settings.device)).cpu()
    sides = [(part, part.images.to(settings.device)) for part in (data.validation, data.test)]
    known: dict[str, np.ndarray] = {}
    for row in rows:
        name, _, how = row.partition(" ")
        if how and name not in known:
            known[name] = make_groups(name, data, features, settings, seed)
        groups = torch.from_numpy(known[name]) if how else None
        scores = []
        for model in train(data, settings, seed, epochs=settings.epochs, groups=groups, how=how or "plain"):
            predicted = [outputs(model, images).argmax(1).cpu() for _, images in sides]
            scores.append(
                [group_accuracy(p, part.labels, part.contexts) for p, (part, _) in zip(predicted, sides, strict=True)]
            )
        chosen = max(range(len(scores)), key=lambda epoch: scores[epoch][0].worst_group.accuracy)
        last, best = scores[-1][1], scores[chosen][1]
        values = [last.worst_group.accuracy, last.average_over_groups, best.worst_group.accuracy]
        values.append(best.average_over_groups)
        yield {
            **dict(zip(KEYS, (magnitude, strength, seed, row), strict=True)),
            **dict(zip(RESULTS, [*(round(100 * value, 2) for value in values), chosen + 1], strict=True)),
            **(quality_of(known[name], data) if how else dict.fromkeys(QUALITY, "")),
        }


def work(make: Callable[[Job], Iterator[dict[str, object]]], job: Job) -> None:
    torch.set_num_threads(job[0].threads)
    for line in make(job):
        with job[0].out.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, line, lineterminator="\n").writerow(line)
        print(", ".join(f"{key} {value}" for key, value in line.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["groups", "train"])
    parser.add_argument("--mnist", type=Path, help="folder of the MNIST files; else scikit-learn's digits")
    parser.add_argument("--spuco", type=Path, help="folder of the peer's package")
    parser.add_argument("--magnitudes", nargs="+", default=["large", "medium", "small"])
    parser.add_argument("--strengths", nargs="+", type=float, default=[0.8, 0.95, 0.995])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="0 was used to choose constants")
    parser.add_argument("--rows", nargs="+", help=f"of groups: {OURS + PEERS}; of train: {ROWS}")
    parser.add_argument("--train-images", type=int)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--infer-epochs", type=int, default=1, help="of the peer's first training")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    settings = parser.parse_args()
    every = settings.rows or [
        row
        for row in ((*OURS, *PEERS) if settings.what == "groups" else ROWS)
        if settings.spuco is not None or not row.startswith(PEERS)
    ]
    done = set()
    if settings.out.exists():
        with settings.out.open(encoding="utf-8") as file:
            done = {tuple(line[key] for key in KEYS) for line in csv.DictReader(file)}
    else:
        columns = (*KEYS, *QUALITY, "seconds") if settings.what == "groups" else (*KEYS, *RESULTS, *QUALITY)
        settings.out.write_text(",".join(columns) + "\n", encoding="utf-8")
    jobs = []
    for seed, strength, magnitude in itertools.product(settings.seeds, settings.strengths, settings.magnitudes):
        rows = [row for row in every if (magnitude, str(strength), str(seed), row) not in done]
        jobs += [(settings, magnitude, strength, seed, rows)] if rows else []
    make = quality if settings.what == "groups" else trainings
    if settings.jobs == 1:
        for job in jobs:
            work(make, job)
        return
    with ProcessPoolExecutor(settings.jobs, mp_context=get_context("spawn")) as pool:
        list(pool.map(work, [make] * len(jobs), jobs))


if __name__ == "__main__":
    main()
