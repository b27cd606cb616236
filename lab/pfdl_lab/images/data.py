"""The data sets of the experiment: what a network is trained on, and tests by name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from pfdl._internal.files import read_frame
from pfdl.contexts.statistics import image_statistics
from pfdl.data import Shapes, make_split, open_images
from pfdl.data.context_images import PIXELS, StoredImages
from pfdl.data.layout import CONTEXT_FIRST
from pfdl.data.manifest import Manifest
from pfdl.data.sources import ContextSource
from pfdl.data.spuco_mnist import COLORS, MAGNITUDES, SpuCoMNIST
from pfdl.data.tables import TABLES
from pfdl.vision.config import DataOptions
from pfdl_lab.colored_mnist.environments import ColoredMNIST
from pfdl_lab.digits import find_digits
from pfdl_lab.images.networks import BATCH, FEATURES, FROZEN, LENET, PERCEPTRON, PRETRAINED, embed
from pfdl_lab.images.rows import RATIOS
from pfdl_lab.training import Samples

COLORED_MNIST = "colored-mnist"
SPUCO_MNIST = "spuco-mnist"
SHAPES = "shapes"
COLORED_DIGITS = 10_000
TRAINING_RATIO = "5:1"
SHIFTED = "shifted"
SAME = "same"
"""The tests of Colored-MNIST: the colours reversed, and as in training."""

SKIPPING = DataOptions(on_bad_image="skip")
WHOLE = "whole"
"""The test on the whole test side."""


class Split(NamedTuple):
    """All that one training needs.

    Attributes:
        train: Training samples.
        validation: Samples of the same mixture that are held out to choose an epoch; none unless
            asked for.
        test: The test side.
        tests: For each test, by its name, the rows of the test side; the hardest is the first.
        classes: Number of classes.
        has_contexts: Whether contexts are known, so that an oracle may see those of the training
            samples.
        context_features: Computes what the contexts of training and validation samples are inferred
            from, shape (n, features), the validation samples last; it takes a while.
    """

    train: Samples
    validation: Samples
    test: Samples
    tests: Mapping[str, Tensor]
    classes: int
    has_contexts: bool
    context_features: Callable[[], Tensor]


@dataclass(frozen=True)
class ImageData:
    """A data set.

    Args:
        data: ``"shapes"``, ``"shapes-0.5"`` (backgrounds of that strength), ``"colored-mnist"``,
            ``"spuco-mnist"``, ``"spuco-mnist-small-0.995"`` (size and strength of its colour; by
            default large and 0.95), or images in any form that :func:`pfdl.data.open_images` takes.
            Images in contexts are trained on at 5:1 and tested at seven dominant ratios and on the
            whole test side; others, and those with a test set of their own, on that.
        options: How to read images that are not generated.
        group_by: See :func:`read_groups`; for folders.
        mnist: Folder of the MNIST files; without it scikit-learn's digits are coloured.
    """

    data: str
    options: DataOptions = SKIPPING
    group_by: str | None = None
    mnist: str | None = None

    @property
    def is_generated(self) -> bool:
        """Whether there is no folder behind it."""
        return (
            self.own_network is not None
            or re.fullmatch(rf"{SHAPES}(-[0-9.]+)?", self.data) is not None
        )

    @property
    def own_network(self) -> str | None:
        """The network that all rows train on coloured digits, which each training makes for itself;
        else None.
        """
        if self.data == COLORED_MNIST:
            return PERCEPTRON
        return None if self._spuco is None else LENET

    @property
    def _spuco(self) -> tuple[str, float] | None:
        """The magnitude and the strength of the colour, if this is SpuCoMNIST."""
        found = re.fullmatch(
            rf"{SPUCO_MNIST}(?:-({'|'.join(MAGNITUDES)}))?(?:-([0-9.]+))?", self.data
        )
        return None if found is None else (found[1] or "large", float(found[2] or 0.95))

    @property
    def name(self) -> str:
        """What it is called in results."""
        path = Path(self.data)
        return path.stem if path.suffix.lower() in TABLES else path.name

    def open(self) -> ContextSource | None:
        """Open the images; None for digits, which each training makes for itself."""
        if self.own_network is not None:
            return None
        if self.is_generated:
            strength = self.data.removeprefix(SHAPES).removeprefix("-")
            return Shapes(100, strength=float(strength or 1.0))
        reading = {**asdict(self.options), "columns": self.options.named_columns()}
        if reading.pop("features"):
            raise ValueError(
                "a study reads pixels; its backbone efficientnet-lite0-features takes features."
            )
        return open_images(self.data, **reading)

    def make_manifest(self, source: ContextSource, seed: int, validation: float) -> Manifest:
        """Split the images for a seed.

        Args:
            source: The images.
            seed: The seed.
            validation: Share of the training images to hold out.
        """
        if self.group_by is not None:
            source = _Grouped(source, read_groups(self.group_by))
        return make_split(source, ratio=TRAINING_RATIO, seed=seed, validation_fraction=validation)

    def split(
        self, seed: int, *, network: str, validation: float = 0.0, images: Path | None = None
    ) -> Split:
        """Return the split of a seed.

        Args:
            seed: The seed.
            network: What is trained, which decides whether it sees pixels or features.
            validation: Share of the training samples to hold out.
            images: Where :func:`pfdl.data.context_images.store_images` has put the images; for all
                but digits.
        """
        if images is None:
            return _digits(self, seed, validation)
        source = StoredImages(images, FEATURES if network == FROZEN else PIXELS)
        manifest = self.make_manifest(source, seed, validation)

        def part(name: str) -> Samples:
            labels, contexts = map(torch.tensor, manifest.numbers_of(name))
            return Samples(
                source.take([row.path for row in manifest.rows_of(name)]), labels, contexts
            )

        train = part("train")
        test = part("test")
        held_out = part("validation") if validation else Samples(*(one[:0] for one in train))
        if network == FROZEN:
            train, held_out, test = _standardised(train, held_out, test)
        return Split(
            train,
            held_out,
            test,
            _tests(manifest),
            len(manifest.classes),
            manifest.has_contexts,
            partial(_context_features, network, train, held_out),
        )


def _standardised(train: Samples, *others: Samples) -> list[Samples]:
    """Return samples scaled by the mean and the deviation of the first."""
    mean = train.inputs.float().mean(0)
    deviation = train.inputs.float().std(0).clamp(min=1e-6)
    return [
        part._replace(inputs=(part.inputs.float() - mean) / deviation) for part in (train, *others)
    ]


def _tests(manifest: Manifest) -> dict[str, Tensor]:
    """Return the rows of the test side that each test takes."""
    rows = {row.path: number for number, row in enumerate(manifest.rows_of("test"))}
    tests = {}
    for ratio in RATIOS:
        if f"test-{ratio}" in manifest.set_names:
            numbers = [rows[row.path] for row in manifest.rows_of(f"test-{ratio}")]
            tests[ratio] = torch.tensor(numbers)
    return {**tests, WHOLE: torch.arange(len(rows))}


def _context_features(network: str, train: Samples, held_out: Samples) -> Tensor:
    """Return what contexts are inferred from: features of the pretrained network, or colours and
    textures.
    """
    known = torch.cat([train.inputs, held_out.inputs])
    if network == FROZEN:
        return known
    if network == PRETRAINED:
        return embed(torch.split(known, BATCH), "cuda" if torch.cuda.is_available() else "cpu")
    return image_statistics(known)


class _Grouped:
    """A source whose images are in the groups that a table names."""

    def __init__(self, source: ContextSource, groups: Mapping[str, str]) -> None:
        self.samples = [
            sample._replace(group=groups.get(sample.path, "")) for sample in source.samples
        ]
        self.description = source.description
        self.load = source.load


def read_groups(source: str) -> dict[str, str]:
    """Read which path belongs to which group, which must not be on both sides of a split.

    Args:
        source: ``"table.csv:column"``: a CSV file with a column ``path`` and the column that names
            the groups.
    """
    name, _, column = source.rpartition(":")
    if not name or not column:
        raise ValueError(
            f"the groups are {source!r}; give a CSV file and one of its columns, as"
            " meta.csv:background."
        )
    if not Path(name).is_file():
        raise FileNotFoundError(f"there is no file {name}; give a CSV file of groups.")
    table = read_frame(Path(name), dtype=str, keep_default_na=False)
    for wanted in ("path", column):
        if wanted not in table.columns:
            raise ValueError(
                f"{name} has no column {wanted!r}; it has {', '.join(map(repr, table.columns))}."
            )
    return {
        path: group
        for path, group in zip(table["path"], table[column], strict=True)
        if path and group
    }


def fingerprint(source: ContextSource | None) -> str | None:
    """Return what tells results on these images from results on others: a hash of their names and
    contents.
    """
    if source is None:
        return None
    lines = [f"{sample.path} {sample.sha256}" for sample in source.samples]
    layout = str(source.description.get("layout"))
    if layout.startswith(
        CONTEXT_FIRST
    ):  # the same names with classes and contexts exchanged are other images
        lines.append(layout)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class _Digits(NamedTuple):
    """Coloured digits before a part is held out: all that may be trained on, their images, the test
    side and its tests, and the number of classes.
    """

    whole: Samples
    images: Tensor
    test: Samples
    tests: dict[str, Tensor]
    classes: int


def _digits(place: ImageData, seed: int, validation: float) -> Split:
    """Make coloured digits, flat, so that training neither mirrors nor shifts them: digits are not
    symmetric.
    """
    made = _colored_mnist(place, seed) if place._spuco is None else _spuco_mnist(place, seed)
    labels = made.whole.labels
    kept = torch.arange(len(labels))
    held_out = torch.arange(0)
    if validation:
        halves = train_test_split(
            kept.numpy(), test_size=validation, stratify=labels.numpy(), random_state=seed
        )
        kept, held_out = (torch.from_numpy(half).sort().values for half in halves)
    order = torch.cat([kept, held_out])
    return Split(
        _rows(made.whole, kept),
        _rows(made.whole, held_out),
        made.test,
        made.tests,
        made.classes,
        True,
        lambda: image_statistics(made.images[order]),
    )


def _rows(samples: Samples, rows: Tensor) -> Samples:
    return Samples(samples.inputs[rows], samples.labels[rows], samples.contexts[rows])


def _spuco_mnist(place: ImageData, seed: int) -> _Digits:
    assert place._spuco is not None
    magnitude, strength = place._spuco
    digits = find_digits(place.mnist).uncut
    spuco = SpuCoMNIST(
        digits, magnitude=magnitude, strength=strength, seed=seed, max_train=COLORED_DIGITS
    )
    whole, test = (
        Samples(part.images.flatten(1).float() / 255, part.labels, part.contexts)
        for part in (spuco.train, spuco.test)
    )
    tests = {WHOLE: torch.arange(len(test.labels))}
    return _Digits(whole, spuco.train.images, test, tests, len(COLORS))


def _colored_mnist(place: ImageData, seed: int) -> _Digits:
    data = ColoredMNIST(place.mnist, seed=seed, max_train=COLORED_DIGITS)
    whole = _joined(data.train)
    shifted = _joined([data.test])
    same = _joined(data.held_out)
    test = Samples(*map(torch.cat, zip(shifted, same, strict=True)))
    border = len(shifted.labels)
    tests = {SHIFTED: torch.arange(border), SAME: torch.arange(border, len(test.labels))}
    images = whole.inputs.view(-1, *data.train[0].images.shape[1:])
    return _Digits(whole, images, test, tests, 2)


def _joined(environments: Any) -> Samples:
    """Return environments of Colored-MNIST as one, the environment unknown; the context is the
    colour.
    """
    images = torch.cat([environment.images for environment in environments])
    labels = torch.cat([environment.labels for environment in environments])
    return Samples(images.flatten(1), labels.long(), (images[:, 1].flatten(1).sum(1) > 0).long())
