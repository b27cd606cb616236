"""Every line of docs/how-to/benchmarks.md on a tiny fake of the data set, in the layout in which it is published."""

import pandas as pd
import pytest

from pfdl.data import make_split, open_images
from tests.data.image_files import make_folder

DOMAINBED = {
    "PACS": (("art_painting", "cartoon", "photo", "sketch"), ("dog", "guitar")),
    "VLCS": (("Caltech101", "LabelMe", "SUN09", "VOC2007"), ("bird", "car")),
    "OfficeHome": (("Art", "Clipart", "Product", "Real World"), ("Bed", "Bike")),
    "TerraIncognita": (("location_100", "location_38"), ("bird", "empty")),
    "DomainNet": (("clipart", "infograph", "painting", "quickdraw", "real", "sketch"), ("bee", "cup")),
    "NICO++": (("autumn", "dim", "grass", "outdoor", "rock", "water"), ("bear", "seal")),
}


def understood(source):
    """The names of classes and of contexts, and the number of images in each set."""
    classes, contexts = ({getattr(sample, name) for sample in source.samples} for name in ("class_name", "context"))
    return classes, contexts, make_split(source, validation_fraction=0).parameters["images"]


@pytest.mark.parametrize("name", DOMAINBED)
def test_domain_class_image(tmp_path, name):
    domains, classes = DOMAINBED[name]
    make_folder(tmp_path, {f"{domain}/{one}": 5 for domain in domains for one in classes})
    cells = len(domains) * len(classes)
    assert understood(open_images(tmp_path)) == (
        set(classes),
        set(domains),
        {"train": 3 * cells, "test": 2 * cells},
    )


def test_nico(tmp_path):
    cells = {"Animal/dog/on grass": 5, "Animal/dog/in water": 5, "Animal/cat/on grass": 5, "Vehicle/car/on road": 5}
    source = open_images(make_folder(tmp_path, cells), superclass="Animal")
    assert understood(source) == ({"dog", "cat"}, {"on grass", "in water"}, {"train": 9, "test": 6})


def test_metashift(tmp_path):
    cells = {
        "train/cat/cat(indoor)": 4,
        "train/dog/dog(outdoor)": 4,
        "test/cat/cat(outdoor)": 2,
        "test/dog/dog(indoor)": 2,
    }
    source = open_images(make_folder(tmp_path, cells))
    assert understood(source) == ({"cat", "dog"}, {"indoor", "outdoor"}, {"train": 8, "test": 4})


def test_imagenet(tmp_path):
    cells = {f"{part}/{wnid}": 3 for part in ("train", "val") for wnid in ("n01440764", "n01443537")}
    source = open_images(make_folder(tmp_path, cells))
    assert understood(source) == ({"n01440764", "n01443537"}, {""}, {"train": 6, "test": 6})


def test_waterbirds(tmp_path):
    make_folder(tmp_path, {"001.Albatross": 6, "002.Sparrow": 6})
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png"))
    table = pd.DataFrame({"img_id": range(12), "img_filename": names})
    table["y"], table["split"], table["place"] = [1] * 6 + [0] * 6, [0, 0, 0, 1, 2, 2] * 2, [0, 1] * 6
    table.to_csv(tmp_path / "metadata.csv", index=False)
    source = open_images(tmp_path / "metadata.csv")
    assert understood(source) == ({"0", "1"}, {"0", "1"}, {"train": 6, "validation": 2, "test": 4})


def celeba(root, kind):
    """Six faces with two of the forty attributes, in the authors' text files or in the CSV files of the mirror."""
    inner = "img_align_celeba" if kind == "txt" else "img_align_celeba/img_align_celeba"
    make_folder(root, {inner: 6})
    names = [f"{number:03d}.png" for number in range(6)]
    hair, male, sets = [-1, 1, -1, 1, -1, 1], [1, 1, -1, -1, 1, -1], [0, 0, 0, 1, 2, 2]
    if kind == "txt":
        lines = [f"{n}  {a:2d} {b:2d}" for n, a, b in zip(names, hair, male, strict=True)]
        (root / "list_attr_celeba.txt").write_text("\n".join(["6", "Blond_Hair Male ", *lines]) + "\n")
        (root / "list_eval_partition.txt").write_text("".join(f"{n} {s}\n" for n, s in zip(names, sets, strict=True)))
    else:
        pd.DataFrame({"image_id": names, "Blond_Hair": hair, "Male": male}).to_csv(
            root / "list_attr_celeba.csv", index=False
        )
        pd.DataFrame({"image_id": names, "partition": sets}).to_csv(root / "list_eval_partition.csv", index=False)
    return root / f"list_attr_celeba.{kind}", inner


@pytest.mark.parametrize("kind", ["txt", "csv"])
def test_celeba_as_it_comes(tmp_path, kind):
    table, inner = celeba(tmp_path, kind)
    source = open_images(table, label_column="Blond_Hair", context_column="Male")
    assert understood(source) == (
        {"Blond_Hair", "not Blond_Hair"},
        {"Male", "not Male"},
        {"train": 3, "validation": 1, "test": 2},
    )
    first = source.samples[0]
    assert first[:3] == (f"{inner}/000.png", "not Blond_Hair", "Male")
    assert source.load(first.path, 6, first.sha256).shape == (3, 6, 6)
    assert f"were found in '{inner}/'" in " ".join(make_split(source).notes)
    with pytest.raises(ValueError, match="--columns label=NAME"):
        _ = open_images(table).samples


@pytest.mark.parametrize("kind", ["txt", "csv"])
def test_celeba_with_its_images_elsewhere(tmp_path, kind):
    (tmp_path / "tables").mkdir()
    table, inner = celeba(tmp_path, kind)
    for path in tmp_path.glob("list_*"):
        path.rename(tmp_path / "tables" / path.name)
    table = tmp_path / "tables" / table.name
    options = {"label_column": "Blond_Hair", "context_column": "Male"}
    source = open_images(table, image_root=tmp_path / inner, **options)
    assert source.samples[0].path == "000.png"
    manifest = make_split(source)
    assert open_images(table, image_root=tmp_path / inner, like=manifest).samples == source.samples
    with pytest.raises(ValueError, match="cannot be read"):
        _ = open_images(table, **options).samples
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        open_images(table, image_root=tmp_path / "none")


def test_text_files_that_are_not_celebas_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("some words\nand some more of them\n")
    with pytest.raises(ValueError, match="is not a table of CelebA"):
        _ = open_images(tmp_path / "notes.txt").samples


def test_iwildcam_of_wilds(tmp_path):
    make_folder(tmp_path, {"train": 10})
    sets = ["train"] * 4 + ["val", "test", "test", "id_val", "id_test", "train"]
    table = pd.DataFrame({"split": sets, "location_remapped": [3, 7] * 5, "y": [0, 24] * 5})
    table["filename"] = [f"{number:03d}.png" for number in range(10)]
    table.to_csv(tmp_path / "metadata.csv", index=False)
    source = open_images(tmp_path / "metadata.csv", context_column="location_remapped")
    assert understood(source) == ({"0", "24"}, {"3", "7"}, {"train": 5, "validation": 1, "test": 2})
    assert source.samples[0].path == "train/000.png"


def test_a_flat_folder_is_told_of_tables(tmp_path):
    make_folder(tmp_path, {"train": 2, "test": 2})
    with pytest.raises(ValueError, match="CSV file with the columns path and label"):
        _ = open_images(tmp_path).samples


def test_no_folder_that_is_a_link_is_searched_for_a_tables_images(tmp_path):
    make_folder(tmp_path / "elsewhere", {"faces": 2})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere" / "faces")
    (tmp_path / "data" / "table.csv").write_text("path,label\n000.png,a\n001.png,b\n")
    with pytest.raises(ValueError, match="cannot be read"):
        _ = open_images(tmp_path / "data" / "table.csv").samples
