"""Image files as they come: read into 8-bit RGB, or refused with the reason."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from pfdl._internal.files import read_bytes_file
from pfdl._internal.memory import MemoryBudget

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")
"""What is decoded. A closed list, because some other decoders of Pillow start programs (EPS starts Ghostscript)."""

MAX_BYTES = 1 << 28
"""Larger files are not opened at all."""

BYTES_PER_PIXEL = 24
"""What decoding and converting take at a time where they take most: RGBA in JPEG 2000 and WebP. PNG takes 5 to 16."""

MEMORY = MemoryBudget(1 << 31)
"""Bytes for all images that are decoded at a time. One alone may take them all, which makes 89,478,485 pixels: the
size above which Pillow warns of decompression bombs too."""

MAX_ASPECT = 16
"""Of longer strips only the middle is scaled: scaled whole, one of 1 × 10,000,000 pixels would fill any memory."""

_STRIP = 1 << 20
"""Pixels that are converted or hashed at a time."""


class BadImageError(ValueError):
    """A file that cannot be used as an image; its message is the reason, without the file's name."""


def read_bytes(path: Path) -> bytes:
    """Read a regular file of sensible size.

    Args:
        path: The file.

    Returns:
        Its content, never empty.

    Raises:
        BadImageError: If it is no regular file, cannot be read, is empty or is larger than ``MAX_BYTES``.
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
    """Decode the content of an image file into 8-bit RGB, upright, for use in the block.

    Of an animation the first frame is taken. Transparent parts become white. 16-bit grey keeps its upper 8 bits.
    Threads share the budget ``MEMORY``: a large image waits until others are done with.

    Args:
        content: The bytes of the file.

    Yields:
        An image of mode RGB.

    Raises:
        BadImageError: If this is not an image of one of the ``FORMATS``, is damaged, cut off or too large.
    """
    with _naming_damage():
        original = Image.open(io.BytesIO(content), formats=FORMATS)
    with original:
        width, height = original.size
        if width * height * BYTES_PER_PIXEL > MEMORY.total:
            most = MEMORY.total // BYTES_PER_PIXEL
            raise BadImageError(f"would decode to {width}×{height} pixels; more than {most} are not decoded")
        with MEMORY.reserve(width * height * BYTES_PER_PIXEL):
            with _naming_damage():
                original.load()
                image = _upright(original, _to_rgb(original))
            yield image


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
    except Exception as error:  # a decoder fed with damaged bytes raises whatever its parser stumbles over
        raise BadImageError(f"cannot be decoded ({type(error).__name__}: {error})") from error


def to_tensor(image: Image.Image, size: int) -> Tensor:
    """Scale the shorter side to ``size`` and cut out the middle square.

    Args:
        image: An RGB image.
        size: Height and width of the result.

    Returns:
        Bytes, shape (3, size, size).
    """
    image = _without_ends(image)
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    pixels = np.array(image.crop((left, top, left + size, top + size)))
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def hash_bytes(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def hash_pixels(image: Image.Image) -> str:
    """Return the SHA-256 of what an RGB image shows, the same for every lossless way of storing it."""
    width, height = image.size
    digest = hashlib.sha256(f"{width}x{height}:".encode())
    if width * height <= _STRIP:
        digest.update(image.tobytes())
    else:
        for box in _strips(image):
            digest.update(image.crop(box).tobytes())
    return digest.hexdigest()


def _strips(image: Image.Image) -> Iterator[tuple[int, int, int, int]]:
    """Yield whole rows, so few at a time that copies of them do not count."""
    width, height = image.size
    rows = max(1, _STRIP // width)
    for top in range(0, height, rows):
        yield 0, top, width, min(top + rows, height)


def _without_ends(image: Image.Image) -> Image.Image:
    width, height = image.size
    longest = MAX_ASPECT * min(width, height)
    if max(width, height) <= longest:
        return image
    left, top = max(0, (width - longest) // 2), max(0, (height - longest) // 2)
    return image.crop((left, top, left + min(width, longest), top + min(height, longest)))


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return _grey_to_rgb(image)
    if image.mode == "F":
        raise BadImageError("holds floating-point values, whose range is unknown; store it with 8 or 16 bits")
    if image.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _grey_to_rgb(image: Image.Image) -> Image.Image:
    """Convert 16 or 32 bits; Pillow's own conversion would clip everything above 255 to white."""
    highest = image.getextrema()[1]
    fits_a_byte = image.mode == "I" and isinstance(highest, (int, float)) and highest <= 255
    grey = Image.new("L", image.size)
    for box in _strips(image):
        values = np.asarray(image.crop(box)) >> (0 if fits_a_byte else 8)
        grey.paste(Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)), box)
    return grey.convert("RGB")


def _upright(original: Image.Image, image: Image.Image) -> Image.Image:
    """Turn an image as the camera says; metadata that cannot be parsed are no reason to lose the picture."""
    try:
        orientation = original.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # as for decoders: a parser of damaged bytes may raise anything
        return image
    if orientation not in range(2, 9):
        return image
    image.info.clear()  # other metadata, which exif_transpose rewrites, and can fail on
    image.getexif()[ExifTags.Base.Orientation] = orientation
    return ImageOps.exif_transpose(image)
