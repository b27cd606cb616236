"""Folders whose outer or inner names are the classes: names decide, or the user does, and the
reading is told.
"""

import unicodedata

import pytest

from pfdl.data import make_split, open_images
from pfdl.data.layout import PUBLISHED_CONTEXTS
from tests.data.image_files import grid, make_folder


def classes_and_contexts(source):
    classes = {sample.class_name for sample in source.samples}
    contexts = {sample.context for sample in source.samples}
    return sorted(classes), sorted(contexts)


@pytest.mark.parametrize("layout", ["class/context", "context/class"])
def test_a_grid_of_unknown_names_is_read_only_as_one_says(tmp_path, layout):
    make_folder(tmp_path, grid(("a", "b", "c"), ("x", "y")))
    with pytest.raises(
        ValueError, match="--layout class/context or --layout context/class"
    ) as raised:
        _ = open_images(tmp_path).samples
    assert "class/context: the classes are 'a', 'b', 'c', in the contexts 'x', 'y'\n" in str(
        raised.value
    )
    assert "context/class: the classes are 'x', 'y', in the contexts 'a', 'b', 'c'\n" in str(
        raised.value
    )
    source = open_images(tmp_path, layout=layout)
    expected = ["a", "b", "c"], ["x", "y"]
    assert classes_and_contexts(source) == (
        expected if layout == "class/context" else expected[::-1]
    )
    manifest = make_split(source, validation_fraction=0)
    assert manifest.parameters["source"]["layout"] == f"{layout}/image"
    assert f"; folders read as {layout}/image." in manifest.describe()
    # Later commands follow the manifest
    assert open_images(tmp_path, like=manifest).samples == source.samples


@pytest.mark.parametrize("names", [names.split() for names in PUBLISHED_CONTEXTS.values()])
def test_published_names_of_contexts_decide_on_either_level(tmp_path, names):
    make_folder(tmp_path / "outer", grid(names, ("dog", "horse")))
    make_folder(tmp_path / "inner", grid(("dog", "horse"), names))
    for place in ("outer", "inner"):
        assert classes_and_contexts(open_images(tmp_path / place)) == (
            ["dog", "horse"],
            sorted(names),
        )


@pytest.mark.parametrize(
    "names",
    [
        ("Art Painting", "Cartoon"),
        ("Real World", "Product"),
        ("location_38", "location_100"),
        ("on snow", "in water"),
    ],
)
def test_spellings_of_contexts_do_not_matter(tmp_path, names):
    make_folder(tmp_path, grid(names, ("dog", "horse")))
    assert classes_and_contexts(open_images(tmp_path)) == (["dog", "horse"], sorted(names))


def test_a_grid_with_few_gaps_is_asked_about_and_one_with_many_is_classes_first(tmp_path):
    cells = grid("abcdef", "uvwxyz")
    make_folder(tmp_path / "few", dict(list(cells.items())[:-3]))
    with pytest.raises(ValueError, match="can be read in two ways"):
        _ = open_images(tmp_path / "few").samples
    make_folder(tmp_path / "many", dict(list(cells.items())[::2]) | {"a/v": 1})
    assert classes_and_contexts(open_images(tmp_path / "many"))[0] == list("abcdef")


def test_the_sets_of_the_data_are_read_alike(tmp_path):
    make_folder(tmp_path, grid(("train", "test"), "ab", "xyz"))
    with pytest.raises(ValueError, match="can be read in two ways"):
        _ = open_images(tmp_path).samples
    with pytest.raises(ValueError, match="layout is 'domain/class'"):
        _ = open_images(tmp_path, layout="domain/class").samples
    source = open_images(tmp_path, layout="context/class")
    assert classes_and_contexts(source) == (list("xyz"), list("ab"))
    assert {sample.split for sample in source.samples} == {"train", "test"}


def test_a_level_of_one_folder_cannot_be_the_classes(tmp_path):
    make_folder(tmp_path, grid(("a", "b"), ("x",)))
    assert classes_and_contexts(open_images(tmp_path)) == (["a", "b"], ["x"])


def test_two_forms_of_one_name_are_one_class(tmp_path):
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    make_folder(tmp_path, {composed: 2, decomposed: 3, "bar": 1})
    source = open_images(tmp_path)
    assert classes_and_contexts(source)[0] == ["bar", composed]
    assert len({sample.path for sample in source.samples}) == 6
    lines = [f"{s.path},{unicodedata.normalize('NFD', s.class_name)}" for s in source.samples]
    (tmp_path / "table.csv").write_text("\n".join(["path,label", *lines]), encoding="utf-8")
    assert open_images(tmp_path / "table.csv").samples == source.samples
