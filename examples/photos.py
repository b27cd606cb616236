"""Write a folder of small pictures whose background goes along with the class in training, and not
in the test set.

Camels stand on sand and zebras on grass in nine of ten training images, and in half of the test
images.

Run: python examples/photos.py
"""

from pathlib import Path

import numpy as np
from PIL import Image

GROUNDS = {"sand": (205, 175, 115), "grass": (90, 150, 80)}
# Where it usually stands, and where else
ANIMALS = {
    "camel": ("sand", "grass"),
    "zebra": ("grass", "sand"),
}
# Images of each animal, and how many of them in the usual place
SETS = {
    "train": (200, 0.9),
    "test": (100, 0.5),
}
SIZE, BODY = 32, 15


def draw(animal: str, ground: str, rng: np.random.Generator) -> Image.Image:
    pixels = rng.normal(GROUNDS[ground], 30, (SIZE, SIZE, 3))
    body = np.full((BODY, BODY, 1), rng.uniform(60, 200))
    if animal == "zebra":
        body = body + 15 * np.sign(
            np.sin(np.arange(BODY)[:, None, None] * np.pi / 2 + rng.uniform(0, 3))
        )
    top, left = rng.integers(2, SIZE - BODY - 2, 2)
    pixels[top : top + BODY, left : left + BODY] = body + rng.normal(0, 20, (BODY, BODY, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def main(root: Path = Path("photos")) -> None:
    rng = np.random.default_rng(0)
    for part, (number, share) in SETS.items():
        for animal, (usual, other) in ANIMALS.items():
            folder = root / part / animal
            folder.mkdir(parents=True, exist_ok=True)
            for image in range(number):
                ground = usual if image < share * number else other
                draw(animal, ground, rng).save(folder / f"{image:03d}.png")
    print(
        f"{root}:"
        f" {', '.join(f'{2 * number} images to {part}' for part, (number, _) in SETS.items())}"
    )


if __name__ == "__main__":
    main()
