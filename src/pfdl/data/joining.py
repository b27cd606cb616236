"""Images to train on and images to test on from different places, as one source."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from torch import Tensor

from pfdl.data.sources import ContextSource, Sample


class JoinedSource:
    """Two sources, of which one is trained on and the other is the test set.

    Paths begin with ``train/`` or ``test/``. A test set that the first source has of its own is left out; of the second
    source its own test set is taken where it has one, else all images.

    Args:
        train: Images to train on.
        test: Images to test on.
    """

    def __init__(self, train: ContextSource, test: ContextSource) -> None:
        self._parts = {"train": train, "test": test}

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Return every image, in the order of the paths.

        Raises:
            ValueError: If the test images have classes that the training images do not have.
        """
        train = [s for s in self._parts["train"].samples if s.split != "test"]
        test = list(self._parts["test"].samples)
        if any(sample.split == "test" for sample in test):
            test = [sample for sample in test if sample.split == "test"]
        unknown = sorted({sample.class_name for sample in test} - {sample.class_name for sample in train})
        if unknown:
            raise ValueError(
                f"the test images are also of {', '.join(map(repr, unknown))}, which the training images do not show; "
                "both must have the same classes."
            )
        return tuple(
            sorted(
                [s._replace(path=f"train/{s.path}", split=s.split or "train") for s in train]
                + [s._replace(path=f"test/{s.path}", split="test") for s in test]
            )
        )

    @property
    def description(self) -> Mapping[str, Any]:
        """Return what these images are, for the manifest."""
        parts = {name: dict(part.description) for name, part in self._parts.items()}
        notes = [note for part in parts.values() for note in part.get("notes", ())]
        left = sum(sample.split == "test" for sample in self._parts["train"].samples)
        if left:
            notes.append(f"Left out: the {left} images of the training data's own test set, because another is given.")
        return {"kind": "joined", **parts, "notes": notes}

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size); ValueError if its content has not this hash."""
        name, _, rest = path.partition("/")
        if name not in self._parts:
            raise ValueError(f"{path!r} is neither among the training images nor among the test images.")
        return self._parts[name].load(rest, size, sha256)
