"""What every source of images offers, and the sources that are files on disk."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from pfdl._internal.validation import check_choice
from pfdl.data.images import BadImageError, decoded, hash_bytes, hash_pixels, read_bytes, to_tensor
from pfdl.data.layout import AmbiguousLayoutError, FoundFile, find_files
from pfdl.data.paths import BadImage, path_inside

ON_BAD_IMAGE = ("error", "skip")
_MOST_LISTED = 20

_TABLES = ("metadata.csv", "metadata.parquet", "list_attr_celeba.csv", "list_attr_celeba.txt")
"""Tables that lie beside the images of published data sets."""

_FILES_PER_TASK = 32
"""Files that a thread checks before it takes others."""


class Sample(NamedTuple):
    """One usable image.

    Attributes:
        path: Its name in the source, with ``/`` between the parts.
        class_name: What it shows; the label.
        context: Where it shows it; ``""`` if the source knows no contexts.
        sha256: Hash of its content.
        pixels: Hash of what it shows, equal for two files that hold the same picture.
        split: The set that the data itself puts it in: ``"train"``, ``"validation"`` or ``"test"``; ``""`` if the data
            has no sets of its own.
        group: Images with the same entry (one patient, one background) must not be on both sides of a split; ``""`` if
            the image may be on either.
    """

    path: str
    class_name: str
    context: str
    sha256: str
    pixels: str
    split: str = ""
    group: str = ""


class ContextSource(Protocol):
    """Where images come from: what :func:`pfdl.data.open_images` returns, and all that splits and datasets know."""

    @property
    def samples(self) -> Sequence[Sample]:
        """Return every usable image, in the order of the paths."""

    @property
    def description(self) -> Mapping[str, Any]:
        """Return what these images are, for the manifest: entries that JSON can hold, the first of them ``kind``."""

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size); raises ValueError if its content has not this hash."""


class BadImagesError(ValueError):
    """Images that cannot be used, all of them in one message.

    Attributes:
        bad_images: The files and what is wrong with each.
    """

    def __init__(self, root: Path, bad_images: Sequence[BadImage]) -> None:
        super().__init__(
            f"{describe_bad_images(root, bad_images)}\nRepair or remove them, or leave them out "
            "with --set on_bad_image=skip (in Python: on_bad_image='skip')."
        )
        self.bad_images = tuple(bad_images)


def describe_bad_images(root: Path, bad_images: Sequence[BadImage]) -> str:
    """Report all unusable files; beyond the first twenty they are only counted."""
    lines = [f"{len(bad_images)} file(s) in {root} cannot be used:"]
    lines += [f"  {bad.path!r} {bad.reason}" for bad in bad_images[:_MOST_LISTED]]
    if len(bad_images) > _MOST_LISTED:
        lines.append(f"  … and {len(bad_images) - _MOST_LISTED} more")
    return "\n".join(lines)


class FileSource(ABC):
    """Images that are files below one folder; what is listed there is decoded once and checked on first use.

    Args:
        root: The folder.
        on_bad_image: ``"error"`` to refuse data with unusable files, ``"skip"`` to leave them out.
        on_progress: Called with the number of files checked so far and the number of all files.

    Attributes:
        root: The folder, as an absolute path.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        on_bad_image: str = "error",
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        check_choice("on_bad_image", on_bad_image, ON_BAD_IMAGE)
        self.root = Path(root).resolve()
        self._on_bad_image = on_bad_image
        self._on_progress = on_progress

    def __getstate__(self) -> dict[str, Any]:
        """Return all but who is told of progress, for processes that load images; most of them cannot be told."""
        return {**vars(self), "_on_progress": None}

    @abstractmethod
    def list_files(self) -> tuple[list[FoundFile], list[BadImage]]:
        """List the files with their classes, in the order of the paths, and what cannot be used."""

    @property
    @abstractmethod
    def description(self) -> Mapping[str, Any]:
        """Return what these images are, for the manifest; the place on this machine is no part of it."""

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Return every usable image, in the order of the paths.

        Raises:
            BadImagesError: If there are unusable files and they are not to be skipped.
            ValueError: If the images are in no known layout, or a class has no usable image.
        """
        return self._scanned[0]

    @property
    def bad_images(self) -> tuple[BadImage, ...]:
        """Return the files that were left out, and why; raises as ``samples`` does."""
        return self._scanned[1]

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size); ValueError unless it is in the folder with this hash."""
        try:
            content = read_bytes(path_inside(self.root, path))
            if hash_bytes(content) != sha256:
                raise BadImageError("has changed since the manifest was written; make a new manifest with pfdl split")
            with decoded(content) as image:
                return to_tensor(image, size)
        except BadImageError as error:
            raise ValueError(f"{path!r} in {self.root} {error}.") from error

    def left_out(self) -> list[dict[str, str]]:
        """List the files that were left out, as what JSON can hold."""
        return [{"path": bad.path, "reason": bad.reason} for bad in self.bad_images]

    @cached_property
    def _scanned(self) -> tuple[tuple[Sample, ...], tuple[BadImage, ...]]:
        """Decode every file once; return the images and what cannot be used."""
        found, bad = self.list_files()
        samples: list[Sample] = []
        # Decoders work outside the interpreter lock. Tasks of many files, because one for each costs more than it.
        batches = [found[start : start + _FILES_PER_TASK] for start in range(0, len(found), _FILES_PER_TASK)]
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            results = pool.map(lambda files: [self._examine(file) for file in files], batches)
            for done, examined in enumerate(results, start=1):
                bad += [one for one in examined if isinstance(one, BadImage)]
                samples += [one for one in examined if isinstance(one, Sample)]
                if self._on_progress is not None:
                    self._on_progress(min(done * _FILES_PER_TASK, len(found)), len(found))
        bad.sort()
        if bad and self._on_bad_image == "error":
            raise BadImagesError(self.root, bad)
        lost = sorted({file.class_name for file in found} - {sample.class_name for sample in samples})
        if lost:
            raise ValueError(
                f"no usable image is left in {', '.join(map(repr, lost))}; repair the images or remove the class.\n"
                f"{describe_bad_images(self.root, bad)}"
            )
        return tuple(samples), tuple(bad)

    def _examine(self, file: FoundFile) -> Sample | BadImage:
        try:
            content = read_bytes(path_inside(self.root, file.path))
            with decoded(content) as image:
                pixels = hash_pixels(image)
        except BadImageError as error:
            return BadImage(file.path, str(error))
        return Sample(file.path, file.class_name, file.context, hash_bytes(content), pixels, file.split, file.group)


class ContextFolder(FileSource):
    """A folder of images, as people have it.

    Known are ``class/image``, ``class/context/image`` and ``context/class/image`` (DomainBed), each of them also in
    folders ``train``, ``val`` and ``test``, and ``superclass/class/context/image`` (NICO). Classes and contexts are the
    folder names found on disk, in Unicode's composed form (NFC). Nothing is read before ``samples`` is asked for; then
    every file is decoded once, so that what is unusable is known, and named in one report, before training starts.

    Args:
        root: The folder.
        superclass: Which folder of the top level to use, where there is such a level.
        layout: ``"class/context"`` or ``"context/class"``. By default the folders decide, and where they do not,
            ``samples`` raises :class:`pfdl.data.layout.AmbiguousLayoutError`.
        known_classes: Names of classes, of a model or a manifest, that help the folders to decide.
        on_bad_image: ``"error"`` to refuse a folder with unusable files, ``"skip"`` to leave them out.
        on_progress: Called with the number of files checked so far and the number of all files.

    Raises:
        FileNotFoundError: If there is no such folder.

    Attributes:
        root: The folder, as an absolute path.
        superclass: As given.
        layout: The layout as found, such as ``context/class/image``; as given before ``samples`` is asked for.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        superclass: str | None = None,
        layout: str | None = None,
        known_classes: Collection[str] = (),
        on_bad_image: str = "error",
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        super().__init__(root, on_bad_image=on_bad_image, on_progress=on_progress)
        if not Path(root).is_dir():
            raise FileNotFoundError(f"there is no folder {root}; name the folder that holds the class folders.")
        self.superclass, self.layout = superclass, layout
        self._decided_by = layout, known_classes

    def list_files(self) -> tuple[list[FoundFile], list[BadImage]]:
        """List the files by the names of their folders."""
        try:
            found, bad, self.layout = find_files(self.root, self.superclass, *self._decided_by)
        except AmbiguousLayoutError:
            raise
        except ValueError as error:
            if tables := self._tables():
                raise ValueError(f"{error} There is a table in the folder; try {self.root / tables[0]}.") from None
            raise
        return found, bad

    def _tables(self) -> list[str]:
        """Return the names of files in the folder that published data sets have for their tables."""
        return sorted(path.name for path in self.root.iterdir() if path.name in _TABLES)

    @property
    def description(self) -> Mapping[str, Any]:
        """Return what these images are, for the manifest."""
        left_out = self.left_out()  # lists the files, and so finds the layout
        notes = [
            f"{name} in the folder was not read: classes are the folders. Give the table itself to use it."
            for name in self._tables()
        ]
        return {
            "kind": "folder",
            "layout": self.layout,
            "superclass": self.superclass,
            "left_out": left_out,
            "notes": notes,
        }
