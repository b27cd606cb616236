"""Every line of docs/how-to/benchmarks.md on a tiny fake of the data set: from the files as
published to a test.
"""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.typing_commands import FAST, typed
from tests.data.image_files import celeba, grid, make_folder

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "benchmarks.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line) for line in re.findall(r"`pfdl train ([^`]+)`", PAGE)]
"""Data and options of each command on the page."""


def domains(domains, classes, per_cell=5):
    """A maker of ``domain/class/image``."""
    return lambda root: make_folder(root, grid(domains, classes, count=per_cell))


def nico(root):
    cells = (
        "Animal/dog/on grass",
        "Animal/dog/in water",
        "Animal/cat/on grass",
        "Vehicle/car/on road",
    )
    make_folder(root, dict.fromkeys(cells, 5))
    (root / "Animal/dog/on grass/cut off.jpg").write_bytes(b"\xff\xd8")


def metashift(root):
    cells = {"train/cat/cat(indoor)": 4, "train/dog/dog(outdoor)": 4, "test/cat/cat(outdoor)": 2}
    make_folder(root, {**cells, "test/dog/dog(indoor)": 2})


def imagenet(root):
    make_folder(root, grid(("train", "val"), ("n01440764", "n01443537"), count=3))


def waterbirds(root):
    make_folder(root, {"001.Albatross": 6, "002.Sparrow": 6})
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.png"))
    labels = {"y": [1] * 6 + [0] * 6, "split": [0, 0, 0, 1, 2, 2] * 2, "place": [0, 1] * 6}
    pd.DataFrame({"img_id": range(12), "img_filename": names, **labels}).to_csv(
        root / "metadata.csv", index=False
    )


def iwildcam(root):
    make_folder(root, {"train": 12})
    sets = ["train"] * 4 + ["val", *["test"] * 4, "id_val", "id_test", "train"]
    table = pd.DataFrame({"split": sets, "location_remapped": [3, 7] * 6, "y": [0, 24] * 6})
    table["filename"] = [f"{number:03d}.png" for number in range(12)]
    table.to_csv(root / "metadata.csv", index=False)


PACS = ("art_painting", "cartoon", "photo", "sketch")
WEATHER = ("autumn", "dim", "grass", "outdoor", "rock", "water")
FACES = "2 classes (Blond_Hair, not Blond_Hair), in 2 contexts (Male, not Male)"
PUBLISHED = {
    "PACS/": (
        domains(PACS, ("dog", "guitar")),
        (
            f"2 classes (dog, guitar), in 4 contexts ({', '.join(PACS)}); folders read as"
            " context/class"
        ),
        (16, 8, 16),
    ),
    "NICO_DG/": (
        domains(WEATHER, ("bear", "seal")),
        (
            f"2 classes (bear, seal), in 6 contexts ({', '.join(WEATHER)}); folders read as"
            " context/class"
        ),
        (24, 12, 24),
    ),
    "NICO/Animal": (
        nico,
        "2 classes (cat, dog), in 2 contexts (in water, on grass); folders read as class/context",
        (6, 3, 6),
    ),
    "MetaShift/": (
        metashift,
        "2 classes (cat, dog), in 2 contexts (indoor, outdoor); folders read as class/context",
        (6, 2, 4),
    ),
    "waterbirds/metadata.csv": (waterbirds, "2 classes (0, 1), in 2 contexts (0, 1)", (6, 2, 4)),
    "celeba/list_attr_celeba.txt": (celeba, FACES, (6, 2, 4)),
    "celeba/list_attr_celeba.csv": (celeba, FACES, (6, 2, 4)),
    "iwildcam/metadata.csv": (iwildcam, "2 classes (0, 24), in 2 contexts (3, 7)", (5, 1, 4)),
    "imagenet/": (
        imagenet,
        "2 classes (n01440764, n01443537), without contexts; folders read as class",
        (4, 2, 6),
    ),
}
"""How its files are made, what is understood of them, and how many images are in the three sets."""


def test_every_command_of_the_page_is_walked():
    assert {data for data, *_ in COMMANDS} == set(PUBLISHED)


@pytest.mark.parametrize(
    ("data", "options"), [(data, shlex.join(options)) for data, *options in COMMANDS]
)
def test_the_files_as_published_are_trained_and_tested_on(data, options, tmp_path, monkeypatch):
    make, understood, (train, validation, test) = PUBLISHED[data]
    root = tmp_path / data.partition("/")[0]
    make(root)
    monkeypatch.chdir(tmp_path)
    trained = typed(f"train {data} {options} {FAST} -o run")
    assert f"Images: {train + validation + test}, of {understood}" in trained.output
    assert f": train {train}, validation {validation}, test {test}." in trained.output
    # What a model is tested on is always read so
    how = options.replace("--set on_bad_image=skip", "")
    evaluated = typed(f"evaluate run {data} {how} --device cpu")
    assert evaluated.output.splitlines()[-1] == "run/evaluations/test.json"
    assert "Accuracy (%) by class" in evaluated.output
