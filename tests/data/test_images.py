import io
import os
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

from pfdl.data import images
from pfdl.data.images import (
    BadImageError,
    MemoryBudget,
    decoded,
    hash_bytes,
    hash_pixels,
    read_bytes,
    to_tensor,
)
from tests.data.image_files import encoded, image_bombs, noise, png, slow_files

ORIENTATION = 0x0112


def decode(content: bytes) -> Image.Image:
    with decoded(content) as image:
        return image


def pixels(content: bytes) -> np.ndarray:
    image = decode(content)
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_are_read_exactly(kind):
    assert np.array_equal(pixels(encoded(noise(0), kind)), np.asarray(noise(0)))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF"])
def test_lossy_formats_are_read_nearly(kind):
    smooth = Image.linear_gradient("L").resize((16, 16)).convert("RGB")
    assert np.abs(pixels(encoded(smooth, kind)).astype(int) - np.asarray(smooth)).max() < 12


@pytest.mark.parametrize("kind", slow_files())
def test_what_takes_longer_to_decode_than_its_size_says_is_refused(kind):
    with pytest.raises(BadImageError, match=r"slow to decode|JPEG of 20. scans"):
        decode(slow_files()[kind])


def test_small_files_of_kinds_that_are_slow_to_decode_are_read():
    assert (pixels(b"P6 2 1 7\n" + bytes([7, 7, 7, 0, 0, 0])) == [[[255] * 3, [0] * 3]]).all()
    progressive = encoded(Image.new("L", (64, 64), 77), "JPEG", progressive=True)
    assert (pixels(progressive) == 77).all()


def test_of_an_animation_the_first_frame_is_taken():
    red, blue = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")
    content = encoded(red, "GIF", save_all=True, append_images=[blue])
    assert Image.open(io.BytesIO(content)).n_frames == 2
    assert (pixels(content) == (255, 0, 0)).all()


@pytest.mark.parametrize(("mode", "value"), [("L", 77), ("1", 255)])
def test_grey_and_black_and_white_become_three_equal_channels(mode, value):
    assert (pixels(encoded(Image.new(mode, (3, 3), value))) == value).all()


def test_cmyk_is_turned_into_rgb():
    cyan = pixels(encoded(Image.new("CMYK", (8, 8), (255, 0, 0, 0)), "JPEG"))[4, 4]
    assert cyan[0] < 10
    assert min(cyan[1:]) > 245


def test_transparent_parts_of_a_palette_become_white_and_the_others_keep_their_colour():
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    assert pixels(encoded(image, transparency=0)).tolist() == [[[255, 255, 255], [0, 0, 255]]]


def test_half_transparent_pixels_are_mixed_with_white():
    assert pixels(encoded(Image.new("RGBA", (1, 1), (0, 0, 0, 128))))[0, 0].tolist() == [
        127,
        127,
        127,
    ]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_keep_their_upper_eight(kind):
    values = np.array([[0, 255, 256, 0x8000, 0xFFFF]], dtype=np.uint16)
    assert pixels(encoded(Image.fromarray(values), kind))[0, :, 0].tolist() == [0, 0, 1, 0x80, 0xFF]


def test_32_bit_integers_are_kept_within_a_byte_and_shifted_beyond():
    values = np.array([[0, 100, 255]], dtype=np.int32)
    assert pixels(encoded(Image.fromarray(values), "TIFF"))[0, :, 2].tolist() == [0, 100, 255]
    wide = np.arange(40 * 30, dtype=np.int32).reshape(30, 40) * 50
    assert np.array_equal(pixels(encoded(Image.fromarray(wide), "TIFF"))[..., 0], wide >> 8)


def test_floating_point_values_are_refused():
    with pytest.raises(BadImageError, match="floating-point"):
        decode(encoded(Image.fromarray(np.zeros((2, 2), dtype=np.float32)), "TIFF"))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_as_its_camera_says(orientation):
    corner = Image.new("RGB", (16, 8), "white")
    corner.paste("black", (0, 0, 4, 4))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    dark = pixels(encoded(corner, "JPEG", exif=exif, quality=95)).mean(2) < 128
    expected = {1: "top left", 2: "top right", 3: "bottom right", 4: "bottom left"}
    expected |= {5: "top left", 6: "top right", 7: "bottom right", 8: "bottom left"}
    row, column = np.argwhere(dark).mean(0)
    height, width = dark.shape
    assert (height > width) == (orientation >= 5)
    found = f"{'top' if row < height / 2 else 'bottom'} {'left' if column < width / 2 else 'right'}"
    assert found == expected[orientation]


def test_damaged_metadata_do_not_cost_the_picture():
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    content = encoded(noise(0, (16, 8)), "JPEG", exif=exif)
    damaged = content.replace(b"MM\x00*", b"XX\x00*").replace(b"II*\x00", b"XX*\x00")
    assert damaged != content
    assert pixels(damaged).shape == (8, 16, 3)


def test_a_photo_is_turned_though_its_other_metadata_cannot_be_written_again():
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    exif[0x011A] = 72.0  # a resolution
    content = encoded(noise(0, (16, 8)), "JPEG", exif=exif)
    place = content.index(b"Exif") + 6
    entry = content.index(struct.pack(">HHI", 0x011A, 5, 1), place)
    # Of an unknown type
    damaged = content[:entry] + struct.pack(">HHI", 0x011A, 200, 1) + content[entry + 8 :]
    assert pixels(damaged).shape == (16, 8, 3)


def test_metadata_that_older_versions_of_pillow_choke_on_do_not_cost_the_picture(monkeypatch):
    def choke(self):
        raise SyntaxError("not a TIFF file")

    content = encoded(noise(0))
    monkeypatch.setattr(Image.Image, "getexif", choke)
    assert np.array_equal(pixels(content), np.asarray(noise(0)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "BMP"])
def test_a_file_cut_off_is_refused(kind):
    content = encoded(noise(0, (64, 64)), kind)
    with pytest.raises(BadImageError, match=r"cannot be decoded|known format"):
        decode(content[: len(content) // 2])


@pytest.mark.parametrize(
    "content",
    [b"<html>404</html>", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"\0" * 99],
)
def test_what_is_no_image_is_refused(content):
    with pytest.raises(BadImageError, match="not an image of a known format"):
        decode(content)


def test_decompression_bombs_are_refused_before_they_are_decoded():
    for content in image_bombs().values():
        with pytest.raises(BadImageError, match=r"bomb|too large"):
            decode(content)
    with (
        pytest.warns(Image.DecompressionBombWarning),
        pytest.raises(BadImageError, match="12000×9000 pixels"),
    ):
        decode(png(12_000, 9_000))
    # Pixels beyond the picture are not unpacked
    assert decode(png(8, 8, pixels=bytes(1 << 24))).size == (
        8,
        8,
    )


def grey_png(side):
    """A 16-bit grey image, a thousandth as large on disk as in memory."""
    return encoded(Image.fromarray(np.full((side, side), 0x8000, dtype=np.uint16)))


def test_images_are_bounded_by_the_bytes_they_take_not_by_their_files(monkeypatch):
    monkeypatch.setattr(images, "MEMORY", MemoryBudget(100 * 100 * images.BYTES_PER_PIXEL))
    assert (pixels(grey_png(100)) == 0x80).all()
    with pytest.raises(
        BadImageError, match="would decode to 101×101 pixels; more than 10000 are not decoded"
    ):
        decode(grey_png(101))


def test_large_images_are_decoded_one_after_the_other_and_small_ones_side_by_side(monkeypatch):
    monkeypatch.setattr(images, "MEMORY", MemoryBudget(100 * 100 * images.BYTES_PER_PIXEL))
    lock = threading.Lock()
    now = []
    most = []
    together = threading.Barrier(4, timeout=20)

    def use(content):
        with decoded(content) as image:
            with lock:
                now.append(image.size[0] ** 2)
                most.append(sum(now))
            if image.size == (50, 50):
                together.wait()  # passes only if four of them are in use at a time
            with lock:
                now.remove(image.size[0] ** 2)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, [grey_png(50)] * 4 + [grey_png(100), grey_png(71)] * 8))
    assert max(most) <= 100 * 100


def test_an_error_in_the_use_of_an_image_is_not_taken_for_a_damaged_image(monkeypatch):
    monkeypatch.setattr(images, "MEMORY", MemoryBudget(100 * 100 * images.BYTES_PER_PIXEL))
    for _ in range(2):  # and gives the memory back
        with pytest.raises(ZeroDivisionError), decoded(grey_png(100)):
            1 / 0  # noqa: B018


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_the_whole_budget():
    budget = MemoryBudget(10)
    with budget.reserve(10):
        pid = os.fork()
        if pid == 0:
            with budget.reserve(10):
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("size", [(1, 2_000_000), (2_000_000, 1), (3, 400_000)])
def test_a_long_strip_is_not_scaled_whole(size):
    """Scaled whole it would have 8 billion pixels."""
    image = Image.new("RGB", size, "black")
    middle = size[0] // 2, size[1] // 2
    image.paste(
        "white", (max(0, middle[0] - 30), max(0, middle[1] - 30), middle[0] + 30, middle[1] + 30)
    )
    assert (to_tensor(image, 64) == 255).all()


def test_the_hash_of_pixels_sees_the_picture_not_the_file():
    image = noise(3)
    assert hash_pixels(decode(encoded(image, "PNG"))) == hash_pixels(decode(encoded(image, "BMP")))
    assert hash_pixels(image) == hash_bytes(b"8x6:" + image.tobytes()) != hash_pixels(noise(4))
    flat = Image.new("RGB", (2, 8))
    assert hash_pixels(flat) != hash_pixels(flat.resize((8, 2)))


def test_empty_missing_huge_and_special_files_are_refused_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(images, "MAX_BYTES", 4)
    for name, reason in {
        "empty": "0 bytes",
        "absent": "No such file",
        "pipe": "not a regular file",
        "large": "has 5 bytes",
        "x" * 300: "too long",
    }.items():
        with pytest.raises(BadImageError, match=reason):
            read_bytes(tmp_path / name)


def test_the_middle_square_is_cut_out():
    image = Image.new("RGB", (30, 10), "black")
    image.paste("white", (10, 0, 20, 10))
    assert (to_tensor(image, 10) == 255).all()
    assert (to_tensor(image.transpose(Image.Transpose.ROTATE_90), 10) == 255).all()


def test_an_image_of_the_right_size_is_untouched():
    assert torch.equal(
        to_tensor(noise(0, (9, 9)), 9),
        torch.from_numpy(np.array(noise(0, (9, 9)))).permute(2, 0, 1),
    )
