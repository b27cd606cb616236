"""What a newcomer does first, with whatever versions this Python has: README's blocks of code, and
one small training from ``pfdl train`` to ``pfdl diagnose``.

    python .github/first_steps.py

Continuous integration runs it under the lowest versions that pyproject.toml allows, and under a
PyTorch of the year before.
"""

import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
from PIL import Image

README = Path(__file__).parents[1] / "README.md"
SHOWN = ("torch", "torchvision", "typer", "lightning", "onnx", "onnxscript", "numpy", "pandas")
COMMANDS = (
    "train photos --layout class/context --output run --objective pfdl --epochs 2 --image-size 32",
    "evaluate run photos",
    "predict run photos",
    "export run",
    "diagnose run photos",
)


def write_photos(folder: Path) -> None:
    """Write 48 noisy images of two classes, each in two contexts of different brightness."""
    random = np.random.default_rng(0)
    for label, red in {"cat": 60, "dog": 160}.items():
        for context, blue in {"grass": 60, "snow": 160}.items():
            (folder / label / context).mkdir(parents=True)
            for number in range(12):
                pixels = random.integers(0, 60, (32, 32, 3)) + np.array([red, 100, blue])
                image = Image.fromarray(pixels.astype("uint8"))
                image.save(folder / label / context / f"{number}.png")


def run_blocks() -> None:
    """Run README's blocks of Python one after another; the later use what the first imports."""
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
    assert blocks, "README has no block of Python"
    print(f"README's {len(blocks)} blocks of Python", flush=True)
    subprocess.run([sys.executable, "-c", "\n".join(blocks)], check=True)


def run_commands() -> None:
    """Run the commands one after another, in a folder of their own."""
    with tempfile.TemporaryDirectory() as scratch:
        write_photos(Path(scratch) / "photos")
        for command in COMMANDS:
            print(f"pfdl {command}", flush=True)
            pfdl = Path(sys.executable).with_name("pfdl")
            subprocess.run([pfdl, *command.split()], check=True, cwd=scratch)


if __name__ == "__main__":
    print(", ".join(f"{name} {version(name)}" for name in SHOWN), flush=True)
    run_blocks()
    run_commands()
