"""Image files as they come: found below a folder, read into 8-bit RGB, or refused with the
reason.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError
from torch import Tensor

from pfdl._internal.files import read_bytes_file

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")
"""What is decoded. A closed list, because some other decoders of Pillow start programs (EPS starts
Ghostscript).
"""

MAX_BYTES = 1 << 28
"""Larger files are not opened at all."""

BYTES_PER_PIXEL = 24
"""What decoding and converting take at a time where they take most: RGBA in JPEG 2000 and WebP. PNG
takes 5 to 16.
"""

MAX_SCANS = 100
"""Passes over a JPEG. Progressive files of cameras and web pages have about ten; a kilobyte can ask
for fifty, each of which takes as long as all pixels do."""

MAX_BYTES_IN_PYTHON = 1 << 22
"""Bytes of a file whose pixels Pillow unpacks one by one, in Python, as in run-length BMP."""

_FILE_MANAGERS = {"thumbs.db", "desktop.ini", "__macosx"}


class MemoryBudget:
    """Bound the bytes that the threads of a process use at a time for one purpose.

    A number of threads alone is no bound: eight threads are right for photographs, and too many for
    eight files that were made to fill the memory.

    Args:
        total: Bytes.

    Attributes:
        total: As given.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._reset()
        # In a child the other threads, which would give bytes back, are gone
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._free = self.total
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, amount: int) -> Iterator[None]:
        """Wait until so many bytes, at most ``total``, are free, and hold them in the block; it may
        reserve no more.
        """
        changed = self._changed
        with changed:
            changed.wait_for(lambda: amount <= self._free)
            self._free -= amount
        try:
            yield
        finally:
            with changed:
                self._free += amount
                changed.notify_all()


MEMORY = MemoryBudget(1 << 31)
"""Bytes for all images that are decoded at a time. One alone may take them all, which makes
89,478,485 pixels: the size above which Pillow warns of decompression bombs too."""


class BadImageError(ValueError):
    """A file that cannot be used as an image; its message is the reason, without the file's
    name.
    """


class BadImage(NamedTuple):
    """A file that cannot be used, and the rest of the sentence that starts with its name."""

    path: str
    reason: str


def path_inside(root: Path, path: str) -> Path:
    """Return the file that a path names in a resolved folder; BadImageError if it leads out, by a
    link or otherwise.
    """
    check_relative(path)
    folder = str(root)
    target = os.path.realpath(f"{folder}/{path}")  # a loop of links stays one, and cannot be read
    if target != folder and not target.startswith(folder.rstrip(os.sep) + os.sep):
        raise BadImageError(
            "is a symbolic link to a place outside the data folder, which is not followed"
        )
    return Path(target)


def check_relative(path: str) -> None:
    """Raise BadImageError unless ``path`` can only name something below the data folder, on any
    system.
    """
    # Windows takes either, and a drive where the second sign is a colon
    parts = path.replace("\\", "/").split("/")
    if not path or "\0" in path or not parts[0] or path[1:2] == ":" or ".." in parts:
        raise BadImageError(
            "is not a path inside the data folder (it is empty, absolute, or has '..' in it)"
        )


def list_paths_below(root: Path, bad: list[BadImage]) -> Iterator[str]:
    """Yield the files below a folder, relative to it; hidden ones and file managers' own are left
    out.

    What cannot be listed (a link to a folder, a name that is not valid Unicode, a locked folder)
    goes to ``bad``. A file may be a link: open it by :func:`path_inside`.
    """

    def unreadable(error: OSError) -> None:
        folder = Path(error.filename).relative_to(root).as_posix()
        bad.append(BadImage(folder, f"cannot be listed ({error.strerror})"))

    for folder, subfolders, files in os.walk(root, onerror=unreadable):
        here = Path(folder).relative_to(root).as_posix()
        prefix = "" if here == "." else f"{here}/"
        subfolders[:], shown = (sorted(filter(_is_shown, names)) for names in (subfolders, files))
        for name in [*subfolders, *shown]:
            if not _is_unicode(name):
                bad.append(
                    BadImage(
                        ascii(prefix + name), "has a name that is not valid Unicode; rename it"
                    )
                )
            elif name in subfolders and Path(folder, name).is_symlink():
                bad.append(
                    BadImage(prefix + name, "is a symbolic link to a folder, which is not followed")
                )
        subfolders[:] = filter(_is_unicode, subfolders)
        yield from (prefix + name for name in shown if _is_unicode(name))


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name.lower() not in _FILE_MANAGERS


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_bytes(path: Path) -> bytes:
    """Read a file; BadImageError unless it is a regular one, neither empty nor larger than
    ``MAX_BYTES``.
    """
    try:
        content = read_bytes_file(path, MAX_BYTES)
    except ValueError as error:
        raise BadImageError(str(error).removeprefix(f"{path} ").removesuffix(".")) from None
    except OSError as error:
        raise BadImageError(f"cannot be read ({error.strerror or error})") from error
    if not content:
        raise BadImageError("is empty (0 bytes)")
    return content


@contextmanager
def decoded(content: bytes) -> Iterator[Image.Image]:
    """Decode an image file to what :func:`as_rgb` returns, for use in the block; of an animation
    the first frame.

    Threads share the budget ``MEMORY``: a large image waits until others are done with.

    Raises:
        BadImageError: If this is not an image of one of the ``FORMATS``, is damaged, cut off or too
            large, or would take far longer to decode than its size says.
    """
    with _naming_damage():
        original = Image.open(io.BytesIO(content), formats=FORMATS)
    with original:
        _refuse_slow(original, content)
        width, height = original.size
        if width * height * BYTES_PER_PIXEL > MEMORY.total:
            most = MEMORY.total // BYTES_PER_PIXEL
            raise BadImageError(
                f"would decode to {width}×{height} pixels; more than {most} are not decoded"
            )
        with MEMORY.reserve(width * height * BYTES_PER_PIXEL):
            with _naming_damage():
                original.load()
                image = as_rgb(original)
            yield image


def _refuse_slow(image: ImageFile.ImageFile, content: bytes) -> None:
    """Raise BadImageError for what takes longer to decode than its bytes and its pixels say."""
    if image.format == "JPEG" and (scans := content.count(b"\xff\xda")) > MAX_SCANS:
        raise BadImageError(f"is a JPEG of {scans} scans; more than {MAX_SCANS} are not decoded")
    if not image.tile or image.tile[0][0] not in Image.DECODERS:
        return  # C does it
    # Pillow's decoder of numbers in words takes time with the square of the bytes
    most = 0 if image.tile[0][0] == "ppm_plain" else MAX_BYTES_IN_PYTHON
    if len(content) > most:
        raise BadImageError(f"is a {image.format} of a kind that is slow to decode; save it as PNG")


@contextmanager
def _naming_damage() -> Iterator[None]:
    try:
        yield
    except BadImageError:
        raise
    except UnidentifiedImageError as error:
        raise BadImageError("is not an image of a known format") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImageError(f"looks like a decompression bomb ({error})") from error
    # A decoder fed with damaged bytes raises whatever its parser stumbles over
    except Exception as error:
        raise BadImageError(f"cannot be decoded ({type(error).__name__}: {error})") from error


def to_tensor(image: Image.Image, size: int) -> Tensor:
    """Scale the middle square of an RGB image to bytes of shape (3, size, size)."""
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    scaled = image.resize(
        (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side)
    )
    return torch.from_numpy(np.array(scaled)).permute(2, 0, 1).contiguous()


def hash_bytes(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def hash_pixels(image: Image.Image) -> str:
    """Return the SHA-256 of what an RGB image shows, the same for every lossless way of storing
    it.
    """
    width, height = image.size
    return hash_bytes(f"{width}x{height}:".encode() + image.tobytes())


def as_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to 8-bit RGB, upright. Transparent parts become white; 16-bit grey keeps its
    upper 8 bits.

    Raises:
        BadImageError: If it holds floating-point values.
    """
    return _upright(image, _to_rgb(image))


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return _grey_to_rgb(image)
    if image.mode == "F":
        raise BadImageError(
            "holds floating-point values, whose range is unknown; store it with 8 or 16 bits"
        )
    if image.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _grey_to_rgb(image: Image.Image) -> Image.Image:
    """Convert 16 or 32 bits; Pillow's own conversion would clip everything above 255 to white."""
    highest = image.getextrema()[1]
    fits_a_byte = image.mode == "I" and isinstance(highest, (int, float)) and highest <= 255
    values = np.asarray(image) >> (0 if fits_a_byte else 8)
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).convert("RGB")


def _upright(original: Image.Image, image: Image.Image) -> Image.Image:
    """Turn an image as the camera says; metadata that cannot be parsed are no reason to lose the
    picture.
    """
    try:
        orientation = original.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # as for decoders: a parser of damaged bytes may raise anything
        return image
    if orientation not in range(2, 9):
        return image
    image.info.clear()  # other metadata, which exif_transpose rewrites, and can fail on
    image.getexif()[ExifTags.Base.Orientation] = orientation
    return ImageOps.exif_transpose(image)
