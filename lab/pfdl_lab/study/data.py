"""The data sets of the study: what a network is trained on, and tests by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from pfdl._internal.files import read_text_file
from pfdl.contexts.statistics import image_statistics
from pfdl.data import ColoredMNIST, Shapes, SpuCoMNIST, make_split, open_images
from pfdl.data.manifest import Manifest, read_groups
from pfdl.data.sources import ContextSource
from pfdl.data.spuco_mnist import COLORS, MAGNITUDES
from pfdl.data.tables import TABLES
from pfdl.vision.backbones import make_backbone
from pfdl_lab.images import StoredImages
from pfdl_lab.study.pretrained import BATCH, embed, fine_tuned, load_network
from pfdl_lab.study.pretrained import NETWORK as PRETRAINED
from pfdl_lab.training import Samples

COLORED_MNIST, SPUCO_MNIST, SHAPES = "colored-mnist", "spuco-mnist", "shapes"
RESNET = "resnet18"
NUM_CLASSES = len(COLORS)
IMAGE_SIZE, LARGE, HIDDEN_WIDTH, COLORED_DIGITS = 64, 96, 256, 10_000
TESTS = ("1:5", "1:1", "5:1")
SHIFTED, SAME = "shifted", "same"
"""The tests of Colored-MNIST: the colours reversed, and as in training."""

WHOLE = "test"
"""The only test of data without contexts, and of data with a test set of its own."""


class Split(NamedTuple):
    """All that one training needs.

    Attributes:
        train: Training samples.
        has_contexts: Whether their contexts are known, so that an oracle may see them.
        tests: Test sets by name; the hardest is the first.
        make_model: Makes an untrained network, given the width of its embedding or None.
        context_features: Computes what contexts are inferred from, shape (n, features); it takes a while.
    """

    train: Samples
    has_contexts: bool
    tests: Mapping[str, Samples]
    make_model: Callable[[int | None], nn.Module]
    context_features: Callable[[], Tensor]


@dataclass(frozen=True)
class StudyData:
    """A data set and how its images are seen.

    Args:
        data: ``"shapes"``, ``"shapes-0.5"`` (backgrounds of that strength), ``"colored-mnist"``, ``"spuco-mnist"``,
            ``"spuco-mnist-small-0.995"`` (size and strength of its colour; by default large and 0.95), or images in any
            form that :func:`pfdl.data.open_images` takes. Images in contexts are tested at three dominant ratios,
            others and those with a test set of their own on the whole test set.
        features: A file by ``pfdl study-features``, whose features are trained on instead of pixels.
        group_by: See :func:`pfdl.data.manifest.read_groups`; for folders.
        mnist: Folder of the MNIST files; without it scikit-learn's digits are coloured.
        network: What is trained on pixels: a name for :func:`pfdl.vision.backbones.make_backbone`, from scratch; or
            ``"efficientnet-lite0"``, which is pretrained and fine-tuned.
        columns: For a table of images, the columns that :func:`pfdl.data.open_images` is told, as pairs.
    """

    data: str
    features: str | None = None
    group_by: str | None = None
    mnist: str | None = None
    network: str = RESNET
    columns: tuple[tuple[str, str], ...] = ()

    @property
    def is_generated(self) -> bool:
        """Whether there is no folder behind it."""
        return self.is_digits or re.fullmatch(rf"{SHAPES}(-[0-9.]+)?", self.data) is not None

    @property
    def is_digits(self) -> bool:
        """Whether it is coloured digits, which each training makes for itself."""
        return self.data == COLORED_MNIST or self._spuco is not None

    @property
    def _spuco(self) -> tuple[str, float] | None:
        """The magnitude and the strength of the colour, if this is SpuCoMNIST."""
        found = re.fullmatch(rf"{SPUCO_MNIST}(?:-({'|'.join(MAGNITUDES)}))?(?:-([0-9.]+))?", self.data)
        return None if found is None else (found[1] or "large", float(found[2] or 0.95))

    @property
    def name(self) -> str:
        """What it is called in tables."""
        if self.is_digits:
            return self.data
        kind = "pretrained features" if self.features else f"{self.network}{', fine-tuned' * self.is_fine_tuned}"
        name = Path(self.data).stem if Path(self.data).suffix.lower() in TABLES else Path(self.data).name
        return f"{self.data if self.is_generated else name}, {kind}"

    @property
    def is_fine_tuned(self) -> bool:
        """Whether a pretrained network is trained on."""
        return self.features is None and self.network == PRETRAINED

    @property
    def image_size(self) -> int | None:
        """Height and width of the images that are trained on; None if it is not on images."""
        if self.features is not None or self.is_digits:
            return None
        return LARGE if self.is_fine_tuned else IMAGE_SIZE

    @property
    def task(self) -> dict[str, Any]:
        """What tells its results from those of other data sets, of what JSON can hold."""
        return {name: value for name, value in asdict(self).items() if name != "columns" or value}

    def open(self, on_progress: Callable[[int, int], None] | None = None) -> ContextSource | None:
        """Open the images; None for digits, which each training makes for itself. Unusable files are left out."""
        if self.is_digits:
            return None
        if self.is_generated:
            strength = self.data.removeprefix(SHAPES).removeprefix("-")
            return Shapes(100, strength=float(strength or 1.0))
        columns: dict[str, Any] = dict(self.columns)
        return open_images(self.data, **columns, layout="class/context", on_bad_image="skip", on_progress=on_progress)

    def make_manifest(self, source: ContextSource, seed: int) -> Manifest:
        """Split the images for a seed."""
        groups = None if self.group_by is None else read_groups(self.group_by)
        return make_split(source, ratio="5:1", seed=seed, groups=groups, validation_fraction=0.0)

    def split(self, seed: int, images: Path | None = None) -> Split:
        """Return the split of a seed.

        Args:
            seed: Of the split.
            images: Where :func:`pfdl_lab.images.store_images` has put the images, in ``image_size``; for all
                but digits.
        """
        if self._spuco is not None:
            return _spuco_digits(self.mnist, *self._spuco, seed)
        if images is None:
            return _colored_digits(self.mnist, seed)
        source = StoredImages(images)
        manifest = self.make_manifest(source, seed)
        part = partial(_features_of, self.features, manifest) if self.features else partial(source.part, manifest)
        train = Samples(*part("train"))
        ratios = {ratio: f"test-{ratio}" for ratio in TESTS if f"test-{ratio}" in manifest.set_names}
        tests = {name: Samples(*part(set_name)) for name, set_name in (ratios or {WHOLE: "test"}).items()}
        classes, has_contexts = len(manifest.classes), manifest.has_contexts
        if self.features is None:
            return Split(
                train,
                has_contexts,
                tests,
                lambda width: _with_width(self._network(classes), classes, width),
                lambda: _embedded(train.inputs) if self.is_fine_tuned else image_statistics(train.inputs),
            )
        mean, deviation = train.inputs.mean(0), train.inputs.std(0).clamp(min=1e-6)
        train, *tested = (part._replace(inputs=(part.inputs - mean) / deviation) for part in (train, *tests.values()))
        return Split(
            train,
            has_contexts,
            dict(zip(tests, tested, strict=True)),
            lambda width: _perceptron(train.inputs.shape[1], classes, width, layers=1),
            lambda: train.inputs,
        )

    def _network(self, classes: int) -> nn.Module:
        return (
            fine_tuned(classes) if self.is_fine_tuned else make_backbone(self.network, classes, image_size=IMAGE_SIZE)
        )


@lru_cache(maxsize=8)
def _stored(features: str) -> tuple[Tensor, dict[str, int]]:
    paths = read_text_file(Path(features).with_suffix(".txt")).splitlines()
    return load_file(features)["features"].float(), {path: row for row, path in enumerate(paths)}


def _features_of(features: str, manifest: Manifest, set_name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the stored features, labels and contexts of a set."""
    labels, contexts = (torch.tensor(numbers) for numbers in manifest.numbers_of(set_name))
    inputs, place = _stored(features)
    return inputs[[place[row.path] for row in manifest.rows_of(set_name)]], labels, contexts


def _colored_digits(mnist: str | None, seed: int) -> Split:
    """Join both training environments, the environment unknown; the context is the colour."""
    data = ColoredMNIST(mnist, seed=seed, max_train=COLORED_DIGITS)

    def samples(*environments: object) -> Samples:
        images = torch.cat([environment.images for environment in environments])  # type: ignore[attr-defined]
        labels = torch.cat([environment.labels for environment in environments])  # type: ignore[attr-defined]
        return Samples(images.flatten(1), labels.long(), (images[:, 1].flatten(1).sum(1) > 0).long())

    train = samples(*data.train)
    tests = {SHIFTED: samples(data.test), SAME: samples(*data.held_out)}
    shape = data.train[0].images.shape[1:]
    return Split(
        train,
        True,
        tests,
        lambda width: _perceptron(train.inputs.shape[1], 2, width, layers=2),
        lambda: image_statistics(train.inputs.view(-1, *shape)),
    )


def _spuco_digits(mnist: str | None, magnitude: str, strength: float, seed: int) -> Split:
    """Make digits whose colour goes with the class in training; in the test all groups are equally frequent."""
    data = SpuCoMNIST(mnist, magnitude=magnitude, strength=strength, seed=seed, max_train=COLORED_DIGITS)
    shape = data.train.images.shape[1:]
    # Flat, so that training neither mirrors nor shifts them: digits are not symmetric.
    train, test = (
        Samples(part.images.flatten(1).float() / 255, part.labels, part.contexts) for part in (data.train, data.test)
    )
    return Split(
        train,
        True,
        {WHOLE: test},
        lambda width: _with_width(lenet(shape), NUM_CLASSES, width),
        lambda: image_statistics(data.train.images),
    )


def lenet(shape: torch.Size) -> nn.Module:
    """Make the network of SpuCo's benchmark, for flat images; how wide its maps end depends on their size."""
    maps = nn.Sequential(
        nn.Unflatten(1, shape),
        nn.Conv2d(3, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, padding=0 if shape[1] >= 16 else 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    with torch.no_grad():
        width = maps(torch.zeros(1, shape.numel())).shape[1]
    return nn.Sequential(
        maps, nn.Linear(width, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, NUM_CLASSES)
    )


def _perceptron(inputs: int, classes: int, width: int | None, *, layers: int) -> nn.Module:
    widths = [inputs, *[HIDDEN_WIDTH] * (layers - 1), width or HIDDEN_WIDTH]
    hidden = [part for before, after in pairwise(widths) for part in (nn.Linear(before, after), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], classes))


def _with_width(model: nn.Module, classes: int, width: int | None) -> nn.Module:
    """Put a hidden layer of that width in front of the classifier, or leave the model as it is."""
    if width is not None:
        path, last = [(path, part) for path, part in model.named_modules() if isinstance(part, nn.Linear)][-1]
        parent, _, name = path.rpartition(".")
        head = nn.Sequential(nn.Linear(last.in_features, width), nn.ReLU(), nn.Linear(width, classes))
        setattr(model.get_submodule(parent), name, head)
    return model


def _embedded(images: Tensor) -> Tensor:
    """Return the pretrained network's features, before it is trained on."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = load_network().to(device)
    return torch.cat([embed(network, batch.to(device)).cpu() for batch in torch.split(images, BATCH)])
