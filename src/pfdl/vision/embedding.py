"""Features of pretrained networks: computed once for each image, and kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pfdl.data.context_images import load_in_threads
from pfdl.data.features import (
    FeatureImages,
    FeatureTable,
    pictures_of,
    read_features,
    write_features,
)
from pfdl.data.images import hash_bytes
from pfdl.data.sources import ContextSource, Sample
from pfdl.vision.backbones import LITE0, OURS, make_backbone
from pfdl.vision.checkpoint import ModelConfig, TrainedModel
from pfdl.vision.features import attach, run_model

SIZE = 224

BATCH, BATCH_ON_GPU = 8, 128
"""Images at a time. On a CPU few: the maps of many are larger than what memory is reused for, and
fetching pages then takes more time than the network.
"""

TORCHVISION = "torchvision/"
CACHE = "PFDL_CACHE"
"""The environment variable that names the folder of what is kept between commands."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Extractor:
    """A network without its last layer.

    Attributes:
        network: Its name, such as ``"lite0"`` or ``"timm/resnet50"``.
        fingerprint: The hash of its name, weights and size of images.
        model: From normalised images to features, in ``eval()`` mode.
        size: Height and width of its images.
    """

    network: str
    fingerprint: str
    model: nn.Module
    size: int = SIZE

    def table(self, samples: Sequence[Sample], matrix: NDArray[np.float32]) -> FeatureTable:
        """Return features that it computed, a row for each image."""
        paths = tuple(sample.path for sample in samples)
        hashes = tuple(sample.sha256 for sample in samples)
        return FeatureTable(paths, matrix, hashes, self.network, self.fingerprint)


def load_extractor(
    network: str = LITE0, *, weights: str | Path | None = None, size: int = SIZE
) -> Extractor:
    """Load a pretrained network that describes images.

    Args:
        network: ``"lite0"``, which comes with ``pfdl[pretrained]``; ``"torchvision/NAME"`` or
            ``"timm/NAME"``, whose weights these libraries download; or a network of your own by
            :func:`pfdl.register_backbone`, which brings its weights itself.
        weights: A local file of weights instead.
        size: Height and width of the images.

    Raises:
        ValueError: If there is no such network.
        ImportError: If it is not installed.
        OSError: If its weights cannot be downloaded or read.
    """
    name = network.removeprefix(TORCHVISION)
    brings_weights = name in OURS and name != LITE0
    state = torch.get_rng_state()
    try:
        torch.manual_seed(0)  # for layers that are not in the weights, so that the hash is the same
        model = make_backbone(
            name,
            2,
            image_size=size,
            pretrained=weights is None and not brings_weights,
            weights=weights,
        )
    finally:
        torch.set_rng_state(state)
    with attach(model) as tap:
        parent, _, child = tap.layer_name.rpartition(".")
    model.get_submodule(parent).add_module(child, nn.Identity())
    digest = hashlib.sha256(f"{name} {size}".encode())
    for key, value in sorted(model.state_dict().items()):
        digest.update(key.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return Extractor(network, digest.hexdigest(), model.eval(), size)


def embed_images(
    source: ContextSource,
    extractor: Extractor,
    *,
    device: str = "cpu",
    on_progress: Progress = lambda done, total: None,
) -> FeatureTable:
    """Return the features of all images of a source; each image is computed once, and kept in
    :func:`cache_folder` by the hashes of the image and of the network.

    Args:
        source: The images.
        extractor: The network.
        device: Where to compute.
        on_progress: Called with the number of images that are done, and of all of them.
    """
    samples = source.samples
    folder = _folder(extractor.fingerprint)
    known = _read_kept(folder, {sample.sha256 for sample in samples})
    by_content = {sample.sha256: sample for sample in samples}
    new = [sample for content, sample in by_content.items() if content not in known]
    if new:
        before = len(samples) - len(new)
        kept = extractor.table(
            new,
            _compute(
                source,
                new,
                extractor,
                device,
                lambda done: on_progress(before + done, len(samples)),
            ),
        )
        name = hash_bytes("\n".join(sorted(kept.sha256)).encode())
        folder.mkdir(parents=True, exist_ok=True)
        write_features(folder / f"{name}.npz", kept)
        known |= dict(zip(kept.sha256, kept.matrix, strict=True))
    return extractor.table(samples, np.stack([known[sample.sha256] for sample in samples]))


def _compute(
    source: ContextSource,
    samples: Sequence[Sample],
    extractor: Extractor,
    device: str,
    on_progress: Callable[[int], None],
) -> NDArray[np.float32]:
    """Return the features of images, a batch at a time."""
    count = BATCH if device == "cpu" else BATCH_ON_GPU
    images = load_in_threads(source, samples, extractor.size)
    features: list[Tensor] = []
    while batch := list(islice(images, count)):
        described, _ = run_model(extractor.model, torch.stack(batch), device=device)
        features += described
        on_progress(len(features))
    return torch.stack(features).numpy()


def kept_features(fingerprint: str, hashes: Sequence[str]) -> NDArray[np.float32] | None:
    """Return features that earlier commands computed of images, by the hashes of their files; None
    unless all are there.
    """
    known = _read_kept(_folder(fingerprint), set(hashes)) if fingerprint else {}
    if not all(hashed in known for hashed in hashes):
        return None
    return np.stack([known[hashed] for hashed in hashes])


def cache_folder() -> Path:
    """Return where features are kept between commands: ``$PFDL_CACHE``, or ``pfdl`` in the user's
    cache.
    """
    if CACHE in os.environ:
        return Path(os.environ[CACHE])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pfdl"


def _folder(fingerprint: str) -> Path:
    """Return where the features of a network are kept."""
    return cache_folder() / "features" / fingerprint[:32]


def describe_source(
    source: ContextSource,
    what: str,
    *,
    device: str = "cpu",
    on_progress: Progress = lambda done, total: None,
) -> FeatureImages:
    """Give a source's images features in place of pixels.

    Args:
        source: The images.
        what: A file of features, or a network, as :func:`load_extractor` has them.
        device: Where to compute.
        on_progress: Called with the number of images that are done, and of all of them.
    """
    if is_feature_file(what):
        return FeatureImages(source, read_features(what))
    extractor = load_extractor(what)
    table = embed_images(source, extractor, device=device, on_progress=on_progress)
    return FeatureImages(source, table)


def on_images(trained: TrainedModel) -> TrainedModel:
    """Return a model on features joined to the network that computes them: it takes images.

    Raises:
        ValueError: If it is not known what computed its features, or that network has other
            weights now.
    """
    config = trained.config
    if not config.num_features:
        return trained
    if not config.network:
        raise ValueError(
            "the model takes features of a network that is not known, not images; give the features"
            " of these: --features FILE."
        )
    extractor = load_extractor(config.network)
    if extractor.fingerprint != config.fingerprint:
        raise ValueError(
            f"the network {config.network!r} has other weights than those whose features the model"
            " was trained on."
        )
    joined = replace(config, image_size=extractor.size, num_features=0, network="", fingerprint="")
    return trained._replace(
        model=nn.Sequential(extractor.model, trained.model).eval(), config=joined
    )


def inputs_of(config: ModelConfig, source: ContextSource) -> ContextSource:
    """Return what a model takes of a source: its features, or else its pictures."""
    return source if config.num_features else pictures_of(source)


def check_features(config: ModelConfig, source: ContextSource | FeatureTable) -> None:
    """Raise ValueError unless a source gives the features that a model was trained on, if it was
    trained on features.
    """
    if not config.num_features:
        return
    width, network = getattr(source, "num_features", 0), getattr(source, "network", "")
    if not width:
        raise ValueError(
            "the model was trained on features that a file brought; name the file that has those of"
            " these images: --features FILE."
        )
    fingerprint = getattr(source, "fingerprint", "")
    is_other = bool(fingerprint and config.fingerprint) and fingerprint != config.fingerprint
    if width != config.num_features or is_other:
        raise ValueError(
            f"the model was trained on {config.num_features} features of"
            f" {config.network or 'an unnamed network'}, and these are {width} of"
            f" {network or 'an unnamed network'} (or of other weights); give those that it was"
            " trained on."
        )


def is_feature_file(what: str) -> bool:
    """Return whether a word names a file of features, and no network."""
    return Path(what).suffix.lower() in (".npz", ".csv", ".tsv", ".parquet")


def _read_kept(folder: Path, wanted: set[str]) -> dict[str, NDArray[np.float32]]:
    """Return the features that earlier commands computed; a damaged file counts as none."""
    known: dict[str, NDArray[np.float32]] = {}
    for path in sorted(folder.glob("*.npz")):
        try:
            table = read_features(path)
        except (OSError, ValueError):
            continue
        for hashed, row in zip(table.sha256, table.matrix, strict=True):
            if hashed in wanted:
                known[hashed] = row
    return known
