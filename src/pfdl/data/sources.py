"""What every source of images offers, and the source that is files on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from pfdl._internal.text import quoted
from pfdl._internal.threads import map_in_threads
from pfdl._internal.validation import check_choice
from pfdl.data.images import (
    BadImage,
    BadImageError,
    decoded,
    hash_bytes,
    hash_pixels,
    path_inside,
    read_bytes,
    to_tensor,
)

ON_BAD_IMAGE = ("error", "skip")

REMEDY = (
    "Repair or remove them, or leave them out with --set on_bad_image=skip (pfdl reproduce and"
    " study: --on-bad-image skip; in Python: on_bad_image='skip')."
)
"""What to do about unusable files, below the list of them."""

_MOST_LISTED = 20

_FILES_PER_TASK = 32
"""Files that a thread checks before it takes others."""


class Sample(NamedTuple):
    """One image.

    Attributes:
        path: Its name in the source, with ``/`` between the parts.
        class_name: What it shows; the label.
        context: Where it shows it; ``""`` if the source knows no contexts.
        sha256: Hash of its content; ``""`` as long as the file has not been read.
        pixels: Hash of what it shows, equal for two files that hold the same picture.
        split: The set that the data itself puts it in: ``"train"``, ``"validation"`` or ``"test"``;
            ``""`` if the data has no sets of its own.
        group: Images with the same entry (one patient, one background) must not be on both sides of
            a split; ``""`` if the image may be on either.
    """

    path: str
    class_name: str
    context: str
    sha256: str = ""
    pixels: str = ""
    split: str = ""
    group: str = ""


class ContextSource(Protocol):
    """Where images come from: what :func:`pfdl.data.open_images` returns, and all that splits and
    datasets know.
    """

    @property
    def samples(self) -> Sequence[Sample]:
        """Return every usable image, in the order of the paths."""

    @property
    def description(self) -> Mapping[str, Any]:
        """Return what these images are, for the manifest: entries that JSON can hold, the first of
        them ``kind``.
        """

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size); raises ValueError if its content has
        not this hash.
        """


def describe_bad_images(root: Path | str, bad_images: Sequence[BadImage], then: str) -> str:
    """Report all unusable files, and in the last line what follows; beyond the first twenty they
    are only counted.
    """
    lines = [f"{len(bad_images)} file(s) in {root} cannot be used:"]
    lines += [f"  {bad.path!r} {bad.reason}" for bad in bad_images[:_MOST_LISTED]]
    if len(bad_images) > _MOST_LISTED:
        lines.append(f"  … and {len(bad_images) - _MOST_LISTED} more")
    return "\n".join([*lines, then])


class Listing(NamedTuple):
    """What a folder or a table says of its files before any of them is read.

    Attributes:
        samples: The files in the order of their paths, without hashes.
        bad: What cannot be used.
        description: What these images are, for the manifest; the place on this machine is no part
            of it.
    """

    samples: Sequence[Sample]
    bad: Sequence[BadImage]
    description: Mapping[str, Any]


class ImageFiles:
    """Images that are files below one folder.

    Nothing is read before ``samples`` is asked for; then every file is decoded once, so that what
    is unusable is known, and named in one report, before training starts.

    Args:
        root: The folder.
        list_files: Lists the files of that folder, by the folders in it or by a table.
        on_bad_image: ``"error"`` to refuse data with unusable files, ``"skip"`` to leave them out.

    Attributes:
        root: The folder, as an absolute path.
    """

    def __init__(
        self,
        root: str | Path,
        list_files: Callable[[Path], Listing],
        *,
        on_bad_image: str = "error",
    ) -> None:
        check_choice("on_bad_image", on_bad_image, ON_BAD_IMAGE)
        self.root = Path(root).resolve()
        self._list_files = list_files
        self._on_bad_image = on_bad_image
        self._checked: Listing | None = None

    @classmethod
    def listed(
        cls, root: Path, samples: Sequence[Sample], description: Mapping[str, Any]
    ) -> ImageFiles:
        """Return files of which all is known already: each is read when it is loaded."""
        listing = Listing(samples, (), description)
        files = cls(root, lambda folder: listing)
        files._checked = listing
        return files

    @property
    def samples(self) -> Sequence[Sample]:
        """Return every usable image, in the order of the paths.

        Raises:
            ValueError: If there are unusable files and they are not to be skipped, the images are
                in no known layout, or a class has no usable image.
        """
        return self.check().samples

    @property
    def description(self) -> Mapping[str, Any]:
        """Return what these images are, for the manifest; raises as ``samples`` does."""
        checked = self.check()
        return {**checked.description, "left_out": [bad._asdict() for bad in checked.bad]}

    def load(self, path: str, size: int, sha256: str) -> Tensor:
        """Return one image as bytes of shape (3, size, size); ValueError unless it is in the folder
        with this hash.
        """
        try:
            content = read_bytes(path_inside(self.root, path))
            if hash_bytes(content) != sha256:
                raise BadImageError(
                    "has changed since the manifest was written; make a new manifest with pfdl"
                    " split"
                )
            with decoded(content) as image:
                return to_tensor(image, size)
        except BadImageError as error:
            raise ValueError(f"{path!r} in {self.root} {error}.") from error

    def check(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> Listing:
        """Decode every file, once however often this is called; return the images, with hashes, and
        what is unusable.

        Args:
            on_progress: Called with the number of files checked so far and the number of all files.

        Raises:
            ValueError: As ``samples`` does.
        """
        if self._checked is None:
            self._checked = self._decode_all(on_progress)
        return self._checked

    def _decode_all(self, on_progress: Callable[[int, int], None]) -> Listing:
        files, unlisted, description = self._list_files(self.root)
        samples: list[Sample] = []
        bad = list(unlisted)
        threads = min(8, os.cpu_count() or 1)
        examined = map_in_threads(self._examine, files, threads, per_task=_FILES_PER_TASK)
        for done, sample in enumerate(examined, start=1):
            if isinstance(sample, BadImage):
                bad.append(sample)
            else:
                samples.append(sample)
            on_progress(done, len(files))
        bad.sort()
        if bad and self._on_bad_image == "error":
            raise ValueError(describe_bad_images(self.root, bad, REMEDY))
        lost = sorted(
            {file.class_name for file in files} - {sample.class_name for sample in samples}
        )
        if lost:
            then = (
                f"No usable image is left in {quoted(lost)}; repair the images or remove the class."
            )
            raise ValueError(describe_bad_images(self.root, bad, then))
        return Listing(tuple(samples), tuple(bad), description)

    def _examine(self, file: Sample) -> Sample | BadImage:
        try:
            content = read_bytes(path_inside(self.root, file.path))
            with decoded(content) as image:
                return file._replace(sha256=hash_bytes(content), pixels=hash_pixels(image))
        except BadImageError as error:
            return BadImage(file.path, str(error))
