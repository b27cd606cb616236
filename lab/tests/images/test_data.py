"""The data sets of the experiment: names, splits, held-out samples."""

import pytest
import torch
from tests.data.image_files import grid, make_folder
from tests.vision.tiny_images import TinySource

from pfdl.contexts import image_statistics
from pfdl.data.context_images import store_images
from pfdl.vision.config import DataOptions
from pfdl_lab.cli.study import make_datasets
from pfdl_lab.images.data import SAME, SHIFTED, WHOLE, ImageData, fingerprint, read_groups
from pfdl_lab.images.networks import make_network
from pfdl_lab.images.rows import RATIOS


def test_the_name_says_strength_and_size():
    assert ImageData("shapes-0.5").open().strength == 0.5
    assert [ImageData(name).is_generated for name in ("shapes", "colored-mnist", "shapes/x")] == [
        True,
        True,
        False,
    ]
    assert ImageData("spuco-mnist").is_generated
    assert not ImageData("spuco-mnist-huge").is_generated
    assert (ImageData("data/pacs").name, ImageData("photos/images.csv").name) == ("pacs", "images")
    split = ImageData("spuco-mnist-small-0.5").split(0, network="lenet")
    share = float((split.train.labels == split.train.contexts).float().mean())
    assert share == pytest.approx(0.5, abs=0.02)
    assert make_network("lenet", split.train.inputs, split.classes)(
        split.train.inputs[:3]
    ).shape == (3, 5)
    assert len(split.context_features()) == len(split.train.labels)


def test_images_are_tested_at_every_ratio_and_on_the_whole_test_side(tmp_path):
    folder = store_images(TinySource(), tmp_path, 8)
    split = ImageData("shapes").split(3, network="mlp", validation=0.2, images=folder)
    assert list(split.tests) == [*RATIOS, WHOLE]
    assert len(split.tests[WHOLE]) == len(split.test.labels)
    usual = [
        split.test.contexts[rows].bincount().max() / len(rows)
        for rows in (split.tests["1:1"], split.tests["5:1"])
    ]
    assert usual[0] == 0.5
    assert 0 < len(split.validation.labels) < len(split.train.labels)
    both = torch.cat([split.train.inputs, split.validation.inputs])
    assert torch.equal(split.context_features(), image_statistics(both))
    plain = ImageData("shapes").split(3, network="mlp", images=folder)
    assert len(plain.validation.labels) == 0
    assert len(plain.train.labels) > len(split.train.labels)


def test_a_tenth_of_each_class_of_digits_is_held_out(digits):
    whole, split = (digits.split(3, network="perceptron", validation=share) for share in (0.0, 0.1))
    assert list(split.tests) == [SHIFTED, SAME]
    held_out = torch.bincount(split.validation.labels) / torch.bincount(whole.train.labels)
    torch.testing.assert_close(held_out, torch.full((2,), 0.1), atol=0.01, rtol=0)
    assert len(split.train.labels) + len(split.validation.labels) == len(whole.train.labels)
    assert len(split.context_features()) == len(whole.train.labels)


def test_other_images_have_another_fingerprint():
    assert fingerprint(None) is None
    assert fingerprint(TinySource()) == fingerprint(TinySource())
    assert fingerprint(TinySource()) != fingerprint(TinySource(per_cell=29))


def test_folders_are_read_as_pfdl_train_reads_them(tmp_path):
    make_folder(tmp_path, grid(("photo", "sketch"), ("dog", "horse")))
    (place,) = make_datasets([str(tmp_path)], [], None, DataOptions())
    assert {sample.class_name for sample in place.open().samples} == {"dog", "horse"}
    (asked,) = make_datasets([str(tmp_path)], [], None, DataOptions(layout="class/context"))
    assert {sample.class_name for sample in asked.open().samples} == {"photo", "sketch"}
    assert fingerprint(place.open()) != fingerprint(asked.open())
    (table,) = make_datasets(["meta.csv"], [], None, DataOptions(layout="class/context"))
    assert table.options.layout is None


def test_a_folder_is_grouped_by_its_path_or_its_name():
    def grouped(*group_by):
        places = make_datasets(["shapes", "data/pets", "other/pacs"], group_by, None, DataOptions())
        return [place.group_by for place in places]

    assert (
        grouped("pets=meta.csv:place")
        == grouped("data/pets=meta.csv:place")
        == [None, "meta.csv:place", None]
    )
    with pytest.raises(ValueError, match="--group-by birds=a:b names no folder of the study"):
        grouped("birds=a:b")
    with pytest.raises(ValueError, match="--group-by pets=m:a names several folders of the study"):
        make_datasets(["a/pets", "b/pets"], ["pets=m:a"], None, DataOptions())


def test_groups_are_read_from_a_column_of_a_table(tmp_path):
    table = tmp_path / "meta.csv"
    table.write_text("path,background\ncat/1.png,beach\ncat/2.png,\n")
    assert read_groups(f"{table}:background") == {"cat/1.png": "beach"}
    with pytest.raises(ValueError, match="has no column 'place'; it has 'path', 'background'"):
        read_groups(f"{table}:place")
    with pytest.raises(ValueError, match=r"as meta\.csv:background"):
        read_groups("meta.csv")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_groups("absent.csv:x")
