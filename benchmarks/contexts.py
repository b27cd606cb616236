"""What finds scenes: groups by pfdl.infer_contexts against the true contexts, from several descriptions of the images.

No test set is looked at. ``agreement`` is the normalised mutual information with the true contexts (1 is all of it),
``confirmed`` the largest adjusted Rand index between halves of the features, which decides without any truth.

    python benchmarks/scenes.py shapes shapes-0.5 colored-mnist
    python benchmarks/scenes.py pacs petscapes --features pacs.safetensors petscapes.safetensors
"""

from __future__ import annotations

import argparse
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor
from torch.nn.functional import cross_entropy

from pfdl import infer_contexts
from pfdl.cli.study import make_study_data
from pfdl.contexts import inference as scenes
from pfdl.decorrelation.linear import group_means
from pfdl.experiments.study.data import Split
from pfdl.vision.backbones import make_backbone
from pfdl.vision.features import attach
from pfdl.vision.pixels import mirror_and_shift, normalise


def standardised(u: scenes.FloatArray, y: scenes.IndexArray) -> scenes.FloatArray:
    """In place of g's predictions: the features themselves, scaled by their deviation within classes."""
    within = (u - group_means(u, y)[y]).std(axis=0)
    return scenes._principal((u - u.mean(axis=0)) / np.where(within > 0, within, 1.0))


def after_an_epoch(split: Split, seed: int) -> Tensor:
    """The features of a ResNet-18 that was trained on the labels for one epoch."""
    torch.manual_seed(seed)
    images, labels = split.train.inputs, split.train.labels
    network = make_backbone("resnet18", int(labels.max()) + 1, image_size=images.shape[-1])
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    for rows in torch.randperm(len(labels))[: len(labels) // 64 * 64].split(64):
        optimizer.zero_grad()
        cross_entropy(network(normalise(mirror_and_shift(images[rows]))), labels[rows]).backward()
        optimizer.step()
    network.eval()
    with attach(network) as tap, torch.no_grad():
        return torch.cat([(network(normalise(part)), tap.features)[1] for part in images.split(256)])


def measure(features: Tensor, split: Split, seed: int) -> tuple[float, float, float]:
    """Largest agreement of halves, number of groups, agreement with the truth."""
    seen: list[float] = []
    agreement = scenes._agreement

    def watched(*arguments: object) -> float:
        seen.append(agreement(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    with mock.patch.object(scenes, "_agreement", watched):
        found = infer_contexts(features, split.train.labels, seed=seed)
    truth = normalized_mutual_info_score(split.train.contexts, found)
    return max(seen), len(set(found.tolist())), float(truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="as for pfdl study")
    parser.add_argument("--features", nargs="*", default=[], type=Path, help="files by pfdl study-features")
    parser.add_argument("--group-by", nargs="*", default=[], help="as for pfdl study")
    parser.add_argument("--mnist", type=Path, help="folder of the MNIST files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=100)
    arguments = parser.parse_args()
    print("| data | described by | confirmed | groups | agreement |\n|---|---|---|---|---|")
    as_pixels = make_study_data(arguments.data, [], arguments.group_by, arguments.mnist, "resnet18")
    as_features = make_study_data(arguments.data, arguments.features, arguments.group_by, arguments.mnist, "resnet18")
    for dataset, embedded in zip(as_pixels, as_features, strict=True):
        lines: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            split = dataset.split(seed)
            lines.setdefault("random filters", []).append(measure(split.context_features(), split, seed))
            with mock.patch.object(scenes, "_scene_part", standardised):
                lines.setdefault("random filters, without g", []).append(measure(split.context_features(), split, seed))
            if split.train.inputs.dim() == 4:
                lines.setdefault("ResNet-18 after an epoch", []).append(
                    measure(after_an_epoch(split, seed), split, seed)
                )
            if embedded.features is not None:
                stored = embedded.split(seed)
                lines.setdefault("EfficientNet-lite0", []).append(measure(stored.context_features(), stored, seed))
        for name, values in lines.items():
            confirmed, groups, agreement = np.mean(values, axis=0)
            print(f"| {dataset.name.split(',')[0]} | {name} | {confirmed:.2f} | {groups:.1f} | {agreement:.2f} |")


if __name__ == "__main__":
    main()
