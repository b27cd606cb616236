"""Build PetScapes from its two public sources: pets of Oxford-IIIT Pet on scenes of Tiny-ImageNet.

    python -m pfdl_lab.petscapes PETS SCENES meta.csv OUT

``meta.csv`` says for each image which photo and which background it is made of, whether the pet is
flipped, its box in the frame, and which edges of its photo cut it. Images come out as composed
there; their pixels may differ a little, for the matting of the first build is described in words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from PIL import Image
from rich.progress import track
from scipy.ndimage import distance_transform_edt, gaussian_filter

from pfdl.cli.common import exit_on_user_error

SIZE = 96
QUALITY = 90
PET = 1
BACKGROUND = 2
"""Labels of a trimap; the third is the border between them."""

FADE = 4
"""Pixels over which a pet that its photo cuts off at the top fades."""

COLUMNS = ("path", "background", "flip", "x", "y", "w", "h", "cut_edges")
FloatArray = NDArray[np.float64]


def cut_out(photo: Image.Image, trimap: NDArray[np.uint8]) -> tuple[FloatArray, FloatArray]:
    """Return the colours of a pet and how opaque it is, cut to its box: shapes (h, w, 3), (h, w).

    Args:
        photo: The photo.
        trimap: Its labels, shape (h, w).

    Raises:
        ValueError: If there is no pet in it.
    """
    pet = trimap == PET
    background = trimap == BACKGROUND
    if not pet.any():
        raise ValueError("its trimap has no pet.")
    opacity = np.ones(pet.shape)
    if background.any():  # opaque within, clear without, and a ramp across the border
        to_pet = distance_transform_edt(~pet)
        to_background = distance_transform_edt(~background)
        opacity = to_background / (to_background + to_pet)
    opacity = gaussian_filter(opacity, 0.5)
    opacity[background & (opacity < 0.01)] = 0.0
    rows, columns = np.nonzero(opacity > 0)
    down = slice(rows.min(), rows.max() + 1)
    across = slice(columns.min(), columns.max() + 1)
    box = (down, across)
    colours = np.asarray(photo.convert("RGB"), dtype=np.float64)
    return _colours_of_the_pet(colours, pet)[box], opacity[box]


def _colours_of_the_pet(colours: FloatArray, pet: NDArray[np.bool_]) -> FloatArray:
    """Give everything outside the pet the colour of the pet's nearest pixel, so that no old
    background shines through its border.
    """
    nearest = distance_transform_edt(~pet, return_distances=False, return_indices=True)
    found: FloatArray = colours[tuple(nearest)]
    return found


def compose(
    photo: Image.Image,
    trimap: NDArray[np.uint8],
    scene: Image.Image,
    *,
    flip: bool,
    box: tuple[int, int, int, int],
    cut_edges: str,
) -> Image.Image:
    """Paste a pet on a scene.

    Args:
        photo: The photo of the pet.
        trimap: Its labels, shape (h, w).
        scene: The background, of any size.
        flip: Whether the pet is mirrored.
        box: Where it stands in the frame: x, y, width and height in pixels.
        cut_edges: The edges of the photo that cut it, of ``btlr``.
    """
    x, y, width, height = box
    colours, opacity = cut_out(photo, trimap)
    channels = [*np.moveaxis(colours, 2, 0), 255 * opacity]
    layers = [Image.fromarray(np.uint8(np.clip(channel, 0, 255))) for channel in channels]
    pet = Image.merge("RGBA", layers).resize((width, height), Image.Resampling.LANCZOS)
    if flip:
        pet = pet.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if "t" in cut_edges:
        pet.putalpha(_faded(pet.getchannel("A")))
    frame = scene.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    frame.paste(pet, (x, y), pet)
    return frame


def _faded(alpha: Image.Image) -> Image.Image:
    kept = np.asarray(alpha, dtype=np.float64)
    ramp = np.minimum(1.0, (np.arange(len(kept)) + 1) / (FADE + 1))
    return Image.fromarray(np.uint8(kept * ramp[:, None]))


def scene_path(scenes: Path, name: str) -> Path:
    """Return where Tiny-ImageNet keeps an image of that name: among the training images of its
    class, or in the validation set.
    """
    if name.startswith("val_"):
        return scenes / "val" / "images" / name
    return scenes / "train" / name.partition("_")[0] / "images" / name


def build(pets: Path, scenes: Path, meta: Path, output: Path) -> int:
    """Build all images of a table, and return how many there are.

    Args:
        pets: Oxford-IIIT Pet: the folder with ``images`` and ``annotations/trimaps``.
        scenes: Tiny-ImageNet-200: the folder with ``train`` and ``val``.
        meta: The table of PetScapes.
        output: Where the folders class/context/image go.

    Raises:
        FileNotFoundError: If a photo, a trimap or a background is not there.
        ValueError: If the table lacks a column, or a photo has no pet.
    """
    table = pd.read_csv(meta, keep_default_na=False)
    if missing := [name for name in COLUMNS if name not in table.columns]:
        raise ValueError(f"{meta} has no column {', '.join(missing)}; give PetScapes' meta.csv.")
    for line in track(table.to_dict("records"), "composing"):
        target = output / line["path"]
        name = Path(line["path"]).stem
        trimap = np.asarray(Image.open(pets / "annotations" / "trimaps" / f"{name}.png"))
        image = compose(
            Image.open(pets / "images" / f"{name}.jpg"),
            trimap,
            Image.open(scene_path(scenes, line["background"])),
            flip=bool(line["flip"]),
            box=(line["x"], line["y"], line["w"], line["h"]),
            cut_edges=line["cut_edges"],
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        image.save(target, quality=QUALITY)
    return len(table)


def main(
    pets: Annotated[Path, typer.Argument(help="Oxford-IIIT Pet, with images and annotations.")],
    scenes: Annotated[Path, typer.Argument(help="Tiny-ImageNet-200, with train and val.")],
    meta: Annotated[Path, typer.Argument(help="PetScapes' meta.csv.")],
    output: Annotated[Path, typer.Argument(help="Where the images go.")],
) -> None:
    """Build PetScapes from its two public sources."""
    with exit_on_user_error():
        typer.echo(f"{build(pets, scenes, meta, output)} images in {output}")


if __name__ == "__main__":
    typer.run(main)
