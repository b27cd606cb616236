import json

import pytest

from pfdl.data import Manifest, make_split, read_manifest
from pfdl.data.images import hash_bytes
from pfdl.data.manifest import ManifestRow
from tests.data.test_proportions import even, source_of

A = "a" * 64


def row(path="cat/snow/1", sha256=A, side="train", sets=("train",)):
    return ManifestRow(path, "cat", "snow", sha256, side, sets)


def rewrite(csv_path, change):
    """Change the table and make the pair match again, as one who edits a manifest on purpose
    would.
    """
    text = change(csv_path.read_text(encoding="utf-8"))
    csv_path.write_text(text, encoding="utf-8", newline="")
    json_path = csv_path.with_suffix(".json")
    parameters = json.loads(json_path.read_text(encoding="utf-8"))
    json_path.write_text(
        json.dumps(parameters | {"csv_sha256": hash_bytes(text.encode())}), encoding="utf-8"
    )


@pytest.fixture
def saved(tmp_path):
    return make_split(source_of(even(20)), ratio="5:1", seed=1).save(
        tmp_path / "new" / "manifest.csv"
    )[0]


def test_a_manifest_comes_back_as_it_was_saved_and_the_same_split_is_the_same_bytes(
    saved, tmp_path
):
    again = make_split(source_of(even(20)), ratio="5:1", seed=1)
    assert read_manifest(saved) == again
    files = again.save(tmp_path / "again.csv")
    assert [file.read_bytes() for file in files] == [
        saved.read_bytes(),
        saved.with_suffix(".json").read_bytes(),
    ]


def test_names_with_commas_quotes_line_ends_and_other_scripts_survive(tmp_path):
    names = ['a,"b"/1', "line\nend/2", "return\r\n/3", "größe 日本/4", " blank /5", "=1+1/6"]
    rows = tuple(row(path, hash_bytes(path.encode())) for path in names)
    manifest = Manifest(rows, {"dominant": {"größe": "日本"}})
    assert read_manifest(manifest.save(tmp_path / "m.csv")[0]) == manifest


def test_classes_contexts_and_sets_are_in_order(saved):
    manifest = read_manifest(saved)
    assert manifest.classes == ("class0", "class1", "class2")
    assert manifest.contexts == ("context0", "context1", "context2", "context3")
    tests = [f"test-{ratio}" for ratio in ("1:5", "1:3", "1:1", "2:1", "3:1", "4:1", "5:1")]
    assert manifest.set_names == ("train", "validation", "test", *tests)
    with pytest.raises(ValueError, match="no set 'test-9:1'; it has 'train', 'validation'"):
        manifest.rows_of("test-9:1")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("/etc/passwd")], "'/etc/passwd' is not a path inside"),
        ([row("cat/../../x")], "is not a path inside"),
        ([row(), row()], "'cat/snow/1' twice"),
        ([row(sha256="a" * 63)], "64 hexadecimal digits"),
        ([row(side="both")], "the side of 'cat/snow/1' is 'both'"),
        ([row(sets=("training",))], "'training', which is no set"),
        ([row(sets=("test",))], "on the train side but in the set 'test'"),
        ([row(side="test", sets=("validation",))], "on the test side but in the set 'validation'"),
        ([row(sets=("train", "validation"))], "in the training set and in the validation set"),
        (
            [row(), row("dog/other name", side="test", sets=())],
            "such as 'cat/snow/1' and 'dog/other name'",
        ),
    ],
)
def test_unsound_rows_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        Manifest(tuple(rows), {"dominant": {}})


def test_a_table_that_was_edited_is_noticed(saved):
    saved.write_text(saved.read_text().replace(",train,train", ",train,", 1))
    with pytest.raises(ValueError, match=r"is not the table that manifest\.json was written with"):
        read_manifest(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", "does not have the columns"),
        (lambda text: text.replace("sha256", "md5", 1), "does not have the columns"),
        (lambda text: text + "one,two\n", "does not have the columns"),
        (lambda text: text + '"open quote', "not a CSV file"),
        (
            lambda text: text.replace("class0/context0/0,", "../passwd,"),
            r"csv: the path '\.\./passwd' is not",
        ),
    ],
)
def test_damaged_tables_are_refused(saved, change, message):
    rewrite(saved, change)
    with pytest.raises(ValueError, match=message):
        read_manifest(saved)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a whole JSON file"),
        ("[]", "not the parameter file"),
        ('{"format": "other"}', "not the parameter file"),
        ('{"format": "pfdl-manifest-1"}', "which context is dominant"),
    ],
)
def test_damaged_parameters_are_refused(saved, text, message):
    saved.with_suffix(".json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_manifest(saved)


def test_missing_files_and_wrong_names_are_told(saved, tmp_path):
    saved.with_suffix(".json").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no file .*manifest\.json"):
        read_manifest(saved)
    with pytest.raises(ValueError, match=r"must end in \.csv"):
        read_manifest(tmp_path / "manifest.json")
