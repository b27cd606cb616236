import pandas as pd
import pytest

from pfdl.data import Manifest, make_split, open_images
from pfdl.data.tables import list_paths
from tests.data.image_files import celeba, make_folder


@pytest.fixture
def photos(tmp_path):
    return make_folder(tmp_path, {"images": 12})


def write(photos, lines, name="metadata.csv"):
    (photos / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return photos / name


def waterbirds(photos, separator=","):
    lines = [["img_id", "img_filename", "y", "split", "place"]]
    lines += [
        [str(n), f"images/{n:03d}.png", str(n % 2), str(n // 4), str(n // 2 % 2)] for n in range(12)
    ]
    return write(photos, [separator.join(line) for line in lines])


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_table_of_waterbirds_is_understood_without_flags(photos, separator):
    source = open_images(waterbirds(photos, separator))
    first, last = source.samples[0], source.samples[-1]
    assert first[:3] == ("images/000.png", "0", "0")
    assert [sample.split for sample in source.samples] == ["train"] * 4 + ["validation"] * 4 + [
        "test"
    ] * 4
    assert (last.class_name, last.context, last.split) == ("1", "1", "test")
    assert source.description["columns"] == {
        "path": "img_filename",
        "label": "y",
        "context": "place",
        "split": "split",
    }
    assert source.load(first.path, 6, first.sha256).shape == (3, 6, 6)


def test_columns_are_named_by_the_user(photos):
    table = pd.DataFrame(
        {
            "where": [f"images\\{n:03d}.png" for n in range(12)],
            "bird": ["land", "water"] * 6,
            "label": "ignored",
            "patient": [f"p{n // 3}" for n in range(12)],
        }
    )
    table.to_csv(photos / "birds.csv", index=False)
    source = open_images(
        photos / "birds.csv", columns={"path": "where", "label": "bird", "group": "patient"}
    )
    assert {sample.class_name for sample in source.samples} == {"land", "water"}
    manifest = make_split(source)
    sides = {}
    for sample, row in zip(source.samples, manifest.rows, strict=True):
        sides.setdefault(sample.group, set()).add(row.side)
    assert all(len(side) == 1 for side in sides.values())
    assert {"train", "test"} == set.union(*sides.values())
    again = open_images(photos / "birds.csv", like=manifest)
    assert again.samples == source.samples
    # As a damaged manifest may say
    odd = {"columns": {"path": "where", "context": ["sky"], "colour": "bird"}}
    again = open_images(
        photos / "birds.csv", columns={"label": "bird"}, like=Manifest((), {"source": odd})
    )
    assert again.description["columns"] == {"path": "where", "label": "bird"}


def test_numbers_of_any_type_are_the_same_names(photos, monkeypatch):
    table = pd.DataFrame(
        {
            "path": [f"images/{n:03d}.png" for n in range(4)],
            "y": [0.0, 1.0, 0.0, 1.0],
            "split": [0, 0, 2, 2],
        }
    )
    (photos / "meta.parquet").touch()
    monkeypatch.setattr(pd, "read_parquet", lambda path: table)
    found = [(one.class_name, one.split) for one in open_images(photos / "meta.parquet").samples]
    assert found == [("0", "train"), ("1", "train"), ("0", "test"), ("1", "test")]


def test_parquet_without_its_package_is_a_sentence(photos, monkeypatch):
    def missing(path):
        raise ImportError("no pyarrow")

    monkeypatch.setattr(pd, "read_parquet", missing)
    (photos / "meta.parquet").touch()
    with pytest.raises(ModuleNotFoundError, match="needs pyarrow; install it"):
        _ = open_images(photos / "meta.parquet").samples


def test_lines_that_cannot_be_used_are_named(photos):
    lines = [
        "path,label",
        "images/000.png,cat",
        "images/001.png,dog",
        "images/002.png,",
        "../secret.png,cat",
    ]
    table = write(photos, [*lines, "images/000.png,dog", "images/none.png,cat"])
    bad = {
        entry.path: entry.reason for entry in open_images(table, on_bad_image="skip").check().bad
    }
    assert "has no label" in bad["images/002.png"]
    assert "not a path inside" in bad["../secret.png"]
    assert "listed twice" in bad["images/000.png"]
    assert "cannot be read" in bad["images/none.png"]
    with pytest.raises(ValueError, match=r"4 file\(s\)"):
        _ = open_images(table).samples


def test_other_sets_are_left_out_with_a_note(photos):
    lines = ["path,label,split"]
    lines += [
        f"images/{n:03d}.png,{'ab'[n % 2]},{('train', 'test', 'id_val')[n // 4]}" for n in range(12)
    ]
    manifest = make_split(open_images(write(photos, lines)), validation_fraction=0)
    assert manifest.parameters["images"] == {"train": 4, "test": 4}
    assert "4 images whose entry under 'split' is 'id_val'" in " ".join(manifest.notes)


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (
            ["file,kind", "a.png,b"],
            {},
            "say which of 'file', 'kind' is the label .*--columns label=NAME",
        ),
        (["where,y", "a.png,b"], {}, "is the path .*--columns path=NAME"),
        (
            ["path,y", "a.png,b"],
            {"columns": {"context": "sky"}},
            "has no column 'sky'; it has 'path', 'y'",
        ),
        (["path,y", "images/000.png,b"], {}, "one class 'b' under 'y'"),
        (["path,y,split", "images/000.png,b,dev2"], {}, "its sets are 'dev2' instead of"),
        (["path,y"], {}, "names no image"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(photos, lines, options, message):
    with pytest.raises(ValueError, match=message):
        _ = open_images(write(photos, lines), **options).samples


def test_what_is_no_table_is_refused(photos):
    (photos / "meta.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"not a table in UTF-8|say which of"):
        _ = open_images(photos / "meta.csv").samples
    with pytest.raises(FileNotFoundError, match="there is no file"):
        open_images(photos / "none.csv")
    with pytest.raises(ValueError, match=r"columns or an image root are named, but .* is no table"):
        open_images(photos, columns={"label": "y"})
    with pytest.raises(ValueError, match="in no folders; leave it out"):
        open_images(waterbirds(photos), layout="class/context")
    with pytest.raises(
        ValueError, match="'lable'; choose one of 'context', 'group', 'label', 'path', 'split'"
    ):
        _ = open_images(waterbirds(photos), columns={"lable": "y"}).samples
    (photos / "notes.txt").write_text("some words\nand some more of them\n")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        open_images(photos / "notes.txt")


@pytest.mark.parametrize("kind", ["txt", "csv"])
def test_the_images_of_a_table_are_found_below_it_or_where_one_says(tmp_path, kind):
    celeba(tmp_path)
    table = tmp_path / f"list_attr_celeba.{kind}"
    named = {"columns": {"label": "Blond_Hair", "context": "Male"}}
    source = open_images(table, **named)
    assert source.samples[0][:3] == ("img_align_celeba/000.png", "not Blond_Hair", "Male")
    assert "were found in 'img_align_celeba/'" in " ".join(make_split(source).notes)
    images = tmp_path / "img_align_celeba"
    assert list_paths(table)[0] == list_paths(table, image_root=images)[0] == images / "000.png"
    (tmp_path / "tables").mkdir()
    for path in tmp_path.glob("list_*"):
        path.rename(tmp_path / "tables" / path.name)
    table = tmp_path / "tables" / table.name
    manifest = make_split(open_images(table, image_root=images, **named))
    assert manifest.rows[0].path == "000.png"
    assert open_images(table, image_root=images, like=manifest).samples[0].path == "000.png"
    with pytest.raises(ValueError, match="cannot be read"):
        _ = open_images(table, **named).samples
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        open_images(table, image_root=tmp_path / "none")


def test_no_folder_that_is_a_link_is_searched_for_a_tables_images(tmp_path):
    make_folder(tmp_path / "elsewhere", {"faces": 2})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere" / "faces")
    table = write(tmp_path / "data", ["path,label", "000.png,a", "001.png,b"])
    with pytest.raises(ValueError, match="cannot be read"):
        _ = open_images(table).samples
