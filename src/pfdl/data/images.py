"""Image files as they come: read into 8-bit RGB, or refused with the reason."""

from __future__ import annotations

import hashlib
import io
import stat
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")
"""What is decoded. A closed list, because some other decoders of Pillow start programs (EPS starts Ghostscript)."""

MAX_PIXELS = 89_478_485
"""Larger images are taken for decompression bombs; it is the size above which Pillow warns."""

MAX_BYTES = 1 << 28
"""Larger files are not opened at all."""

_ORIENTATION_TAG = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


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
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadImageError("is not a regular file")
        if status.st_size > MAX_BYTES:
            raise BadImageError(f"has {status.st_size} bytes; more than {MAX_BYTES} are not opened")
        content = path.read_bytes()
    except OSError as error:
        raise BadImageError(f"cannot be read ({error.strerror or error})") from error
    if not content:
        raise BadImageError("is empty (0 bytes)")
    return content


def decode(content: bytes) -> Image.Image:
    """Decode the content of an image file into 8-bit RGB, upright.

    Of an animation the first frame is taken. Transparent parts become white. 16-bit grey keeps its upper 8 bits.

    Args:
        content: The bytes of the file.

    Returns:
        An image of mode RGB.

    Raises:
        BadImageError: If this is not an image of one of the ``FORMATS``, is damaged, cut off or too large.
    """
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise BadImageError(f"would decode to {width}×{height} pixels; more than {MAX_PIXELS} are not decoded")
            image.load()
            return _upright(image, _to_rgb(image))
    except BadImageError:
        raise
    except UnidentifiedImageError as error:
        raise BadImageError("is not an image of a known format") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImageError(f"looks like a decompression bomb ({error})") from error
    except Exception as error:  # a decoder fed with damaged bytes raises whatever its parser stumbles over
        raise BadImageError(f"cannot be decoded ({type(error).__name__}: {error})") from error


def to_tensor(image: Image.Image, size: int) -> Tensor:
    """Scale the shorter side to ``size``, cut the middle square out.

    Args:
        image: An RGB image.
        size: Height and width of the result.

    Returns:
        Bytes, shape (3, size, size).
    """
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    pixels = np.array(image.crop((left, top, left + size, top + size)))
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def hash_bytes(content: bytes) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def hash_pixels(image: Image.Image) -> str:
    """SHA-256 of what an RGB image shows, the same for every lossless way of storing it."""
    return hash_bytes(f"{image.size[0]}x{image.size[1]}:".encode() + image.tobytes())


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        if image.mode != "I" or values.max() > 255:  # Pillow's own conversion would clip everything above 255 to white
            values = values >> 8
        return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise BadImageError("holds floating-point values, whose range is unknown; store it with 8 or 16 bits")
    if image.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _upright(original: Image.Image, image: Image.Image) -> Image.Image:
    """Apply the camera's rotation; metadata that cannot be parsed is no reason to lose the picture."""
    try:
        orientation = original.getexif().get(_ORIENTATION_TAG)
    except Exception:  # as for decoders: a parser of damaged bytes may raise anything
        return image
    return image.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else image
