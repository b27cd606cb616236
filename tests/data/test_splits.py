from itertools import product

import pytest

from pfdl.data import make_split, make_test_set, read_manifest
from pfdl.data.images import hash_bytes
from pfdl.data.sources import Sample
from tests.data.test_proportions import Listed


def sample(split, class_name, context, number, picture=None, group=""):
    digest = hash_bytes((picture or f"{split}{class_name}{context}{number}").encode())
    return Sample(
        f"{split or 'all'}/{class_name}/{context}/{number:03d}",
        class_name,
        context,
        digest,
        digest,
        split,
        group,
    )


def own_sets(counts, contexts=("",)):
    samples = []
    for split, count in counts.items():
        cells = product(("cat", "dog"), contexts, range(count))
        samples += [sample(split, *cell) for cell in cells]
    return samples


def paths(manifest, name):
    return {row.path for row in manifest.rows_of(name)}


def test_the_datas_own_test_set_is_not_split_again():
    samples = own_sets({"train": 20, "validation": 5, "test": 7})
    for seed in range(3):
        manifest = make_split(Listed(samples), ratio="2:1", seed=seed)
        for name, split in (("train", "train"), ("validation", "validation"), ("test", "test")):
            assert paths(manifest, name) == {s.path for s in samples if s.split == split}
    assert manifest.set_names == ("train", "validation", "test")
    assert (manifest.parameters["ratio"], len(manifest.notes)) == (None, 1)
    assert manifest.notes[0] == "The ratio 2:1 was not used: the data has sets of its own."


def test_a_validation_set_is_held_out_where_the_data_has_none():
    samples = own_sets({"train": 20, "test": 7}, contexts=("snow", "grass"))
    manifest = make_split(Listed(samples), validation_fraction=0.25)
    assert paths(manifest, "test") == {s.path for s in samples if s.split == "test"}
    assert len(paths(manifest, "validation")) == 20
    assert paths(manifest, "validation") | paths(manifest, "train") == {
        s.path for s in samples if s.split == "train"
    }
    assert make_split(Listed(samples), validation_fraction=0).set_names == ("train", "test")
    other = make_split(Listed(samples), validation_fraction=0.25, seed=1)
    assert paths(other, "validation") != paths(manifest, "validation")


def test_a_validation_set_alone_is_the_test_set():
    manifest = make_split(Listed(own_sets({"train": 20, "validation": 5})))
    assert {path.partition("/")[0] for path in paths(manifest, "test")} == {"validation"}
    assert {path.partition("/")[0] for path in paths(manifest, "validation")} == {"train"}
    assert "its validation set is the test set" in manifest.notes[0]


def test_a_picture_of_the_test_set_is_not_trained_on(tmp_path):
    samples = [
        *own_sets({"train": 8, "test": 4}),
        sample("train", "cat", "", 90, picture="twin"),
        sample("test", "cat", "", 91, picture="twin"),
        sample("test", "cat", "", 92, picture="twin"),
    ]
    manifest = make_split(Listed(samples))
    assert "train/cat//090" not in {row.path for row in manifest.rows}
    # A published test set stays what it is
    assert {"test/cat//091", "test/cat//092"} <= paths(manifest, "test")
    assert "Left out of training or validation: 'train/cat//090'" in manifest.notes[0]
    manifest.save(tmp_path / "m.csv")
    assert read_manifest(tmp_path / "m.csv") == manifest


@pytest.mark.parametrize(
    ("stays", "leaves"), [("test", "validation"), ("test", "train"), ("validation", "train")]
)
def test_a_picture_of_two_sets_stays_in_the_one_that_is_further_from_training(stays, leaves):
    samples = [
        *own_sets({"train": 8, "validation": 4, "test": 4}),
        sample(stays, "cat", "", 90, picture="twin"),
        sample(leaves, "cat", "", 91, picture="twin"),
    ]
    manifest = make_split(Listed(samples))
    assert f"{stays}/cat//090" in paths(manifest, stays)
    assert f"{leaves}/cat//091" not in {row.path for row in manifest.rows}


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (3, "'train/cat//090', 'train/cat//091', 'train/cat//092', as"),
        (4, "4 images, such as 'train/cat//090', 'train/cat//091', 'train/cat//092', as"),
    ],
)
def test_three_images_that_are_left_out_are_named_and_more_are_counted(lost, words):
    samples = own_sets({"train": 8, "test": 4})
    for number in range(90, 90 + lost):
        samples += [
            sample(split, "cat", "", number, picture=str(number)) for split in ("train", "test")
        ]
    (note,) = make_split(Listed(samples)).notes
    assert words in note


def test_a_test_set_of_which_nothing_was_trained_on_has_no_note():
    trained_on = make_split(Listed(own_sets({"train": 8, "test": 4})))
    other = Listed([sample("", "cat", "", number, picture=f"new {number}") for number in range(3)])
    manifest = make_test_set(other, trained_on)
    assert len(manifest.rows) == 3
    assert not manifest.notes


def test_groups_are_not_in_training_and_validation():
    samples = [sample("train", "cat", "", n, group=f"g{n // 4}") for n in range(40)]
    samples += [sample("train", "dog", "", n, group=f"h{n // 4}") for n in range(40)]
    samples += own_sets({"test": 3})
    manifest = make_split(Listed(samples), validation_fraction=0.2)
    group = {s.path: s.group for s in samples}
    held_out = {group[path] for path in paths(manifest, "validation")}
    assert len(held_out) == 4
    assert held_out.isdisjoint(group[path] for path in paths(manifest, "train"))


def test_a_training_set_alone_is_split_and_a_test_set_alone_is_refused():
    manifest = make_split(Listed(own_sets({"train": 10})))
    assert len(paths(manifest, "test")) == 8
    with pytest.raises(ValueError, match="none to train on"):
        make_split(Listed(own_sets({"test": 10})))
    with pytest.raises(ValueError, match="'owl', which its training set does not have"):
        make_split(Listed([*own_sets({"train": 10, "test": 3}), sample("test", "owl", "", 0)]))


def test_any_data_can_be_a_test_set_without_what_was_trained_on():
    training = make_split(Listed(own_sets({"train": 10, "test": 5})), validation_fraction=0)
    everything = make_test_set(
        Listed([s._replace(split="") for s in own_sets({"train": 10, "other": 3})]), training
    )
    assert {path.partition("/")[0] for path in paths(everything, "test")} == {"other"}
    assert everything.notes == ["Left out: 20 of 26 images, which the model was trained on."]
    assert len(paths(make_test_set(Listed(own_sets({"train": 10, "test": 5}))), "test")) == 10
    with pytest.raises(ValueError, match="trained on all of these"):
        make_test_set(Listed(own_sets({"train": 10})), training)


def test_contexts_of_the_test_set_alone_are_none_to_train_with():
    samples = [*own_sets({"train": 5}), *own_sets({"test": 3}, contexts=("snow", "grass"))]
    assert not make_split(Listed(samples)).has_contexts
    assert make_split(
        Listed(own_sets({"train": 5, "test": 3}, contexts=("snow", "grass")))
    ).has_contexts
    assert make_test_set(Listed(own_sets({"test": 3}, contexts=("snow",)))).has_contexts
