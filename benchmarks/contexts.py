"""What finds contexts: pfdl.infer_contexts against the true contexts, from several descriptions of the images.

No test set is looked at. ``agreement`` is the normalised mutual information with the true contexts (1 is all of it),
``found`` the number of contexts, 1 where none were confirmed.

    python benchmarks/contexts.py shapes shapes-0.5 colored-mnist
    python benchmarks/contexts.py pacs petscapes --features pacs.safetensors petscapes.safetensors
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor
from torch.nn.functional import cross_entropy

from pfdl.cli.study import make_study_data
from pfdl.contexts import find_contexts
from pfdl.experiments.study.data import Split
from pfdl.vision.backbones import make_backbone
from pfdl.vision.features import attach
from pfdl.vision.pixels import mirror_and_shift, normalise


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


def measure(features: Tensor, split: Split, seed: int) -> tuple[float, float]:
    """Return the number of contexts and their agreement with the truth."""
    found = find_contexts(features, split.train.labels, seed=seed)
    print(f"<!-- seed {seed}: {found.sentence} -->", flush=True)
    return found.number, float(normalized_mutual_info_score(split.train.contexts, found.contexts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="as for pfdl study")
    parser.add_argument("--features", nargs="*", default=[], type=Path, help="files by pfdl study-features")
    parser.add_argument("--group-by", nargs="*", default=[], help="as for pfdl study")
    parser.add_argument("--mnist", type=Path, help="folder of the MNIST files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=100)
    arguments = parser.parse_args()
    print("| data | described by | found | agreement |\n|---|---|---|---|")
    as_pixels = make_study_data(arguments.data, [], arguments.group_by, arguments.mnist, "resnet18")
    as_features = make_study_data(arguments.data, arguments.features, arguments.group_by, arguments.mnist, "resnet18")
    for dataset, embedded in zip(as_pixels, as_features, strict=True):
        lines: dict[str, list[tuple[float, float]]] = {}
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            split = dataset.split(seed)
            lines.setdefault("random filters", []).append(measure(split.context_features(), split, seed))
            if split.train.inputs.dim() == 4:
                lines.setdefault("ResNet-18 after an epoch", []).append(
                    measure(after_an_epoch(split, seed), split, seed)
                )
            if embedded.features is not None:
                stored = embedded.split(seed)
                lines.setdefault("EfficientNet-lite0", []).append(measure(stored.context_features(), stored, seed))
        for name, values in lines.items():
            number, agreement = np.mean(values, axis=0)
            print(f"| {dataset.name.split(',')[0]} | {name} | {number:.1f} | {agreement:.2f} |")


if __name__ == "__main__":
    main()
