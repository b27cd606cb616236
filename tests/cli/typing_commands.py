"""Commands as a user types them, and photos to type them for."""

from __future__ import annotations

import shlex
from pathlib import Path

import torch
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

from pfdl.cli.main import app

FAST = "--backbone mlp --image-size 8 --epochs 1 --batch-size 8 --device cpu --no-export"


def typed(line: str, *, fails: bool = False, **how: str) -> Result:
    """Run a command; it must end well, or with the exit status of a user's mistake and no
    traceback.
    """
    result = CliRunner().invoke(app, shlex.split(line), **how)
    assert result.exit_code == (2 if fails else 0), f"pfdl {line}\n{result.output}"
    assert "Traceback" not in result.output
    return result


def draw(
    folder: Path, count: int, seed: int, brightness: int = 0, channel: int | None = None
) -> None:
    """Draw noise into a folder: all brighter by so much, and one channel by 60."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    for number in range(count):
        pixels = torch.randint(0, 90, (8, 8, 3), generator=generator) + brightness
        if channel is not None:
            pixels[..., channel] += 60
        Image.fromarray(pixels.to(torch.uint8).numpy()).save(folder / f"{number}.png")


def draw_all(
    root,
    contexts=("",),
    count=12,
    *,
    classes=("cat", "dog"),
    seed=0,
    brightness=120,
    coloured=False,
):
    """Draw photos of two classes, the second brighter by so much, in contexts that may differ in
    colour.
    """
    for label, name in enumerate(classes):
        for place, context in enumerate(contexts):
            where, number = root / name / context, 100 * seed + 10 * place + label
            draw(where, count, number, brightness * label, place if coloured else None)
    return root
