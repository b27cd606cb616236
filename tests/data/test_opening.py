from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from torch.utils.data import Dataset, TensorDataset

from pfdl.data import ContextImages, Shapes, make_split, open_images
from pfdl.data.manifest import Manifest
from tests.data.image_files import encoded, grid, make_folder, noise


class Items(Dataset):
    """So many pictures with labels, in turns of both classes."""

    def __init__(self, count=20, first=0, convert=lambda image: image):
        self.count, self.first, self.convert = count, first, convert

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        return self.convert(noise(self.first + index)), index % 2


class Pictures(Items):
    """What torchvision gives: with the names of the classes."""

    classes = ("cat", "dog")


class HuggingFace(Items):
    """What Hugging Face's datasets give: dictionaries, with names of labels beside."""

    features = {"label": SimpleNamespace(names=("cat", "dog"))}  # noqa: RUF012, as there

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return {"image": image, "label": label, "weather": ("sun", "rain")[index // 2 % 2]}


def test_a_dataset_of_torchvision_can_be_split_and_read():
    data = Pictures()
    source = open_images(data)
    assert [sample.class_name for sample in source.samples] == ["cat", "dog"] * 10
    manifest = make_split(source)
    images = ContextImages(source, manifest, "test", size=6)
    image, label, _ = images[0]
    number = int(images.paths[0].rpartition("/")[2])
    assert label == number % 2
    expected = np.asarray(noise(number).crop((1, 0, 7, 6)))
    np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), expected)


def test_sets_of_a_dataset_dictionary_are_its_own():
    source = open_images(
        {"train": HuggingFace(12), "test": HuggingFace(6, first=100)},
        columns={"context": "weather"},
    )
    found = {(sample.split, sample.class_name, sample.context) for sample in source.samples}
    assert found == set(product(("train", "test"), ("cat", "dog"), ("sun", "rain")))
    grouped = open_images(HuggingFace(), columns={"group": "weather"}).samples
    assert [(sample.context, sample.group) for sample in grouped[:3]] == [
        ("", "sun"),
        ("", "sun"),
        ("", "rain"),
    ]
    manifest = make_split(source)
    assert len(manifest.rows_of("test")) == 6
    assert manifest.parameters["protocol"] == "own"
    assert manifest.describe().splitlines() == [
        "Images: 18, of 2 classes (cat, dog), in 2 contexts (rain, sun).",
        "Sets, as the data has them: train 8, validation 4, test 6.",
    ]


@pytest.mark.parametrize(
    "convert",
    [
        lambda image: np.asarray(image),
        lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1),
        lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255,
        lambda image: torch.from_numpy(np.array(image)).long(),
    ],
)
def test_arrays_and_tensors_are_the_same_pictures(convert):
    plain, other = open_images(Pictures()), open_images(Pictures(convert=convert))
    assert plain.samples == other.samples


def test_grey_tensors_are_read():
    data = TensorDataset(
        torch.arange(4 * 36, dtype=torch.uint8).view(4, 1, 6, 6), torch.arange(4) % 2
    )
    source = open_images(data)
    assert [sample.class_name for sample in source.samples] == ["0", "1", "0", "1"]
    loaded = source.load("all/00000001", 6, source.samples[1].sha256)
    assert torch.equal(loaded, data[1][0].expand(3, -1, -1))
    truth, shares = (
        open_images([(picture, 0)]).samples for picture in (torch.eye(4) > 0, torch.eye(4))
    )
    assert truth == shares


def test_a_picture_of_a_dataset_is_what_its_file_is_in_a_folder(tmp_path):
    turned = noise(0)
    turned.getexif()[ExifTags.Base.Orientation] = 6
    grey = Image.fromarray(np.arange(0, 48000, 1000, dtype=np.uint16).reshape(6, 8))
    make_folder(tmp_path, {"cat": 3, "dog": 1})
    for number, image in enumerate((turned, grey, Image.new("RGBA", (8, 6), (9, 9, 9, 40)))):
        (tmp_path / "cat" / f"{number}.png").write_bytes(encoded(image, exif=image.getexif()))
    files = open_images(tmp_path).samples
    data = open_images([(Image.open(tmp_path / one.path), 0) for one in files])
    assert [one.pixels for one in files] == [one.pixels for one in data.samples]
    # It is not turned again
    assert data.load("all/00000000", 6, files[0].pixels).shape == (
        3,
        6,
        6,
    )


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            (torch.randn(3, 4, 4), 0),
            "outside 0 to 1; give images as they are before they are normalised",
        ),
        ((torch.full((3, 4, 4), 300), 0), "outside 0 to 255"),
        ((torch.zeros(5, 4, 4, dtype=torch.uint8), 0), "has the shape"),
        (("picture.png", 0), "is a str; give a PIL image"),
        ({"image": Image.new("RGB", (2, 2))}, "say which of them is the label"),
        (3, "is a int; give \\(image, label\\)"),
    ],
)
def test_items_that_are_no_images_are_refused(item, message):
    with pytest.raises(ValueError, match=message):
        _ = open_images([item, item]).samples


def test_a_dataset_that_draws_at_random_is_noticed():
    torch.manual_seed(0)
    source = open_images(Pictures(convert=lambda image: torch.rand(3, 4, 4)))
    sample = source.samples[0]
    with pytest.raises(ValueError, match="without transforms that draw at random"):
        source.load(sample.path, 4, sample.sha256)
    with pytest.raises(ValueError, match="has no image"):
        source.load("all/99999999", 4, sample.sha256)


def test_what_is_no_data_is_refused(tmp_path):
    with pytest.raises(TypeError, match="no map-style dataset"):
        open_images(iter([1]))
    with pytest.raises(ValueError, match="is empty"):
        open_images([])
    with pytest.raises(ValueError, match="call the sets train, validation and test"):
        open_images({"one": Pictures()})
    with pytest.raises(ValueError, match="is 'split'; choose one of"):
        open_images(Pictures(), columns={"split": "part"})
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        open_images(tmp_path / "none")


def test_the_word_shapes_and_a_source_are_opened():
    source = open_images("shapes")
    assert len({sample.class_name for sample in source.samples}) == 8
    assert open_images(source) is source
    small = make_split(Shapes(per_cell=14))
    assert open_images("shapes", like=small).per_cell == 14
    with pytest.raises(ValueError, match="does not describe"):
        open_images(
            "shapes",
            like=Manifest((), {**small.parameters, "source": {"per_cell": 3, "seed": "x"}}),
        )


def test_what_was_understood_is_told_in_two_lines(tmp_path):
    make_folder(tmp_path, grid([f"class{number}\x1b[31m" for number in range(10)], "ab"))
    source = open_images(tmp_path, layout="class/context")
    first, second = make_split(source, validation_fraction=0).describe().splitlines()
    assert first.startswith("Images: 20, of 10 classes (class0\\x1b[31m, ")
    assert first.endswith(
        "class7\\x1b[31m, …), in 2 contexts (a, b); folders read as class/context/image."
    )
    assert second == "Sets: train 20."


def test_a_table_in_the_folder_is_not_passed_over_silently(tmp_path):
    make_folder(tmp_path, {"cat": 5, "dog": 5})
    assert make_split(open_images(tmp_path)).notes == []
    (tmp_path / "metadata.csv").write_text("path,y\n")
    assert "metadata.csv in the folder was not read" in make_split(open_images(tmp_path)).notes[0]
    make_folder(tmp_path / "celeba", {"img_align_celeba": 3})
    (tmp_path / "celeba" / "list_attr_celeba.txt").touch()
    with pytest.raises(
        ValueError, match=r"There is a table in the folder; try .*list_attr_celeba\.txt"
    ):
        _ = open_images(tmp_path / "celeba").samples
