"""Pictures of camels and zebras whose ground gives the class away in training, not in the test.

Camels stand on sand and zebras on grass in nineteen of twenty training images, and in half of the
test images. So a model can be right in training by looking at the ground alone: a shortcut, made to
be seen.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

GROUNDS = {"sand": (206, 172, 112), "grass": (88, 140, 66)}
SKY = (168, 200, 226)
# Where it usually stands, and where else
ANIMALS = {
    "camel": ("sand", "grass"),
    "zebra": ("grass", "sand"),
}
# Images of each animal, and how many of them in the usual place
SETS = {
    "train": (400, 0.95),
    "test": (100, 0.5),
}
SIZE = 64
DRAWN = 128
HORIZON = 45
STRIPES = 40
NOISE = 14
OUTLINED = 256

# Outlines on a square of 256 pixels, as "x,y x,y ..."
BACKS = {
    "camel": "66,128 76,104 88,92 100,106 110,116 122,104 134,92 146,104 156,124",
    "zebra": "66,122 84,116 110,118 136,116 158,112",
}
BELLY = "160,152 120,158 78,154 64,142"
NECKS = {
    "camel": "156,124 172,128 184,112 188,84 196,76 214,80 216,90 200,94 196,118 182,146 160,152",
    "zebra": "150,114 168,96 178,74 186,72 192,82 212,102 206,110 190,104 182,120 170,146 156,148",
}
LEGS = (74, 88, 142, 156)


def points(outline: str) -> list[tuple[int, int]]:
    """Return the corners of an outline."""
    corners = [corner.split(",") for corner in outline.split()]
    return [(int(x), int(y)) for x, y in corners]


def shape_of(animal: str) -> Image.Image:
    """Return the silhouette of an animal, drawn large, as a mask."""
    mask = Image.new("L", (OUTLINED, OUTLINED))
    pen = ImageDraw.Draw(mask)
    pen.polygon(points(f"{BACKS[animal]} {BELLY}"), fill=255)
    pen.polygon(points(NECKS[animal]), fill=255)
    for x in LEGS:
        pen.polygon([(x - 5, 146), (x + 6, 146), (x + 4, 206), (x - 3, 206)], fill=255)
    pen.line([(66, 126), (54, 160)], fill=255, width=5)
    return mask


def coat_of(animal: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the colours of a coat: brown with a little shade, or pale with dark stripes."""
    shade = rng.uniform(100, 170)
    coat = np.full((DRAWN, DRAWN, 3), shade) * (1.0, 0.86, 0.7)
    if animal == "zebra":
        rows, columns = np.ogrid[:DRAWN, :DRAWN]
        phase = (columns + 0.3 * rows) * 2 * np.pi / 11 + rng.uniform(0, 6)
        coat += STRIPES * np.sign(np.sin(phase))[..., None]
    return coat


def ground_of(kind: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return sky above a ground of waves of sand, or of blades of grass."""
    scene = np.empty((DRAWN, DRAWN, 3))
    scene[:] = np.array(GROUNDS[kind]) * rng.uniform(0.85, 1.15)
    if kind == "sand":
        rows, columns = np.ogrid[:DRAWN, :DRAWN]
        bends = 4 * np.sin(columns / 20 + rng.uniform(0, 6))
        relief = 10 * np.sin((rows + bends) / 3)
    else:
        relief = rng.normal(0, 26, (DRAWN // 4, DRAWN)).repeat(4, 0)
    scene += relief[..., None]
    scene[: HORIZON + int(rng.integers(-10, 10))] = SKY
    return scene


def draw(animal: str, ground: str, rng: np.random.Generator) -> Image.Image:
    """Return one picture: an animal of random size and place, facing left or right, on a ground."""
    side = int(DRAWN * rng.uniform(0.7, 1.0))
    left = int(rng.integers(0, DRAWN - side + 1))
    top = DRAWN - side - int(rng.integers(0, 10))
    mask = Image.new("L", (DRAWN, DRAWN))
    mask.paste(shape_of(animal).resize((side, side)), (left, top))
    soft = mask.filter(ImageFilter.GaussianBlur(0.5))
    weight = np.asarray(soft, float)[..., None] / 255
    pixels = weight * coat_of(animal, rng) + (1 - weight) * ground_of(ground, rng)
    if rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    small = as_image(pixels).resize((SIZE, SIZE))
    noise = rng.normal(0, NOISE, (SIZE, SIZE, 3))
    return as_image(np.asarray(small) + noise)


def as_image(pixels: NDArray[np.float64]) -> Image.Image:
    """Return pixels as an image; what is beyond black and white is cut off."""
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_photos(folder: str | Path = "photos", seed: int = 0) -> dict[str, int]:
    """Write the pictures as ``train/camel/000.png`` and so on.

    Args:
        folder: Where to; made if missing.
        seed: Of everything that is drawn at random.

    Returns:
        How many pictures each of ``train`` and ``test`` has.
    """
    rng = np.random.default_rng(seed)
    counts = {}
    for part, (count, share) in SETS.items():
        counts[part] = count * len(ANIMALS)
        for animal, (usual, other) in ANIMALS.items():
            place = Path(folder) / part / animal
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                ground = usual if number < share * count else other
                draw(animal, ground, rng).save(place / f"{number:03d}.png")
    return counts
