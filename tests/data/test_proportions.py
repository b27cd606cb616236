import random
from collections import Counter
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from pfdl.data import make_split
from pfdl.data.images import hash_bytes
from pfdl.data.proportions import TEST_RATIOS, parse_ratio
from pfdl.data.sources import Sample

RATIO_NAMES = [f"test-{ratio}" for ratio in TEST_RATIOS]


@dataclass
class Listed:
    """A source that is a list."""

    samples: list

    @property
    def description(self):
        return {"kind": "list"}


def source_of(cells, prefix=""):
    """``{("cat", "snow"): 3}`` is three different pictures of cats in the snow."""
    samples = []
    for (class_name, context), count in cells.items():
        for number in range(count):
            path = f"{prefix}{class_name}/{context}/{number}"
            digest = hash_bytes(f"{class_name}/{context}/{number}".encode())
            samples.append(Sample(path, class_name, context, digest, digest))
    return Listed(sorted(samples))


def even(count, classes=3, contexts=4):
    cells = product(range(classes), range(contexts))
    return {(f"class{i}", f"context{j}"): count for i, j in cells}


def name_cells(counts):
    """Return how many images each class has in each context."""
    cells = {}
    for number, row in enumerate(counts):
        for place, count in enumerate(row):
            cells[f"c{number}", f"x{place}"] = count
    return cells


def on_side(manifest, side):
    return Counter((row.class_name, row.context) for row in manifest.rows if row.side == side)


def needed_for(manifest, ratio, cells):
    """Return for each class how many images of each context a round takes."""
    of_dominant, of_minor = parse_ratio(ratio)
    rounds = []
    for class_name, dominant in manifest.dominant.items():
        own = [cell for cell in cells if cell[0] == class_name]
        rounds.append({cell: of_dominant if cell[1] == dominant else of_minor for cell in own})
    return rounds


def until_one_runs_out(manifest, ratio, there):
    """Return how many images of each cell are drawn from those that are there."""
    drawn = {}
    for needed in needed_for(manifest, ratio, there):
        rounds = min(there[cell] // number for cell, number in needed.items())
        drawn |= {cell: rounds * number for cell, number in needed.items()}
    return drawn


def counted(manifest, set_name):
    return Counter((row.class_name, row.context) for row in manifest.rows_of(set_name))


def hashes(manifest, set_name):
    return {row.sha256 for row in manifest.rows_of(set_name)}


cell_counts = st.integers(2, 4).flatmap(
    lambda contexts: st.lists(
        st.lists(st.integers(20, 60), min_size=contexts, max_size=contexts), min_size=2, max_size=4
    )
)
ratios = st.builds("{}:{}".format, st.integers(1, 6), st.integers(1, 6))


@settings(max_examples=20)
@given(cell_counts, st.integers(0, 10**6))
def test_six_in_ten_of_each_cell_are_on_the_side_of_training(counts, seed):
    cells = name_cells(counts)
    manifest = make_split(source_of(cells), ratio="1:1", seed=seed)
    train = {cell: int(0.6 * count + 0.5) for cell, count in cells.items()}
    assert on_side(manifest, "train") == train
    assert on_side(manifest, "test") == Counter(cells) - Counter(train)


@settings(max_examples=20)
@given(cell_counts, st.integers(0, 10**6))
def test_every_test_set_has_its_proportions_until_a_context_runs_out(counts, seed):
    manifest = make_split(source_of(name_cells(counts)), ratio="1:1", seed=seed)
    test = on_side(manifest, "test")
    for name in RATIO_NAMES:
        expected = until_one_runs_out(manifest, name.partition("-")[2], test)
        assert counted(manifest, name) == expected


@settings(max_examples=40)
@given(cell_counts, ratios, st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 0.3]))
def test_training_and_validation_have_their_proportions(counts, ratio, seed, validation):
    cells = name_cells(counts)
    manifest = make_split(source_of(cells), ratio=ratio, seed=seed, validation_fraction=validation)
    held_out = counted(manifest, "validation") if "validation" in manifest.set_names else Counter()
    drawn = counted(manifest, "train") + held_out
    assert drawn == until_one_runs_out(manifest, ratio, on_side(manifest, "train"))
    for needed in needed_for(manifest, ratio, cells):
        (rounds_held_out,) = {held_out[cell] / number for cell, number in needed.items()}
        (rounds,) = {drawn[cell] / number for cell, number in needed.items()}
        assert abs(rounds_held_out - validation * rounds) <= 1


@settings(max_examples=25)
@given(cell_counts, st.integers(0, 10**6))
def test_no_picture_is_in_training_and_validation_or_on_both_sides(counts, seed):
    cells = name_cells(counts)
    manifest = make_split(source_of(cells), ratio="2:1", seed=seed)
    train, validation, test = (hashes(manifest, name) for name in ("train", "validation", "test"))
    assert train.isdisjoint(validation)
    assert test.isdisjoint(train | validation)
    for name in RATIO_NAMES:
        assert hashes(manifest, name) <= test


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_the_split_depends_on_contents_not_on_names_or_order(seed):
    samples = source_of(even(15)).samples
    numbers = random.Random(seed).sample(range(10**6), len(samples))
    renamed = [
        s._replace(path=f"{n}/{s.class_name}") for n, s in zip(numbers, samples, strict=True)
    ]
    first, second = (
        make_split(Listed(one), ratio="5:1", seed=seed) for one in (samples, sorted(renamed))
    )
    assert {r.sha256: (r.side, r.sets) for r in first.rows} == {
        r.sha256: (r.side, r.sets) for r in second.rows
    }
    assert first.dominant == second.dominant


def test_a_further_class_leaves_the_others_as_they_are():
    cells = even(20)
    before = make_split(source_of(cells), ratio="5:1", seed=3)
    after = make_split(
        source_of(cells | {("new", "context0"): 30, ("new", "context9"): 30}), ratio="5:1", seed=3
    )
    kept = [row for row in after.rows if row.class_name != "new"]
    assert kept == list(before.rows)


def test_another_seed_is_another_split_and_dominant_contexts_are_drawn_evenly():
    source = source_of(even(14, classes=2, contexts=2))
    manifests = [make_split(source, ratio="5:1", seed=seed) for seed in range(200)]
    assert len({tuple(row.side for row in manifest.rows) for manifest in manifests}) == 200
    drawn = Counter((m.dominant["class0"], m.dominant["class1"]) for m in manifests)
    assert len(drawn) == 4
    chi_squared = sum((count - 50) ** 2 / 50 for count in drawn.values())
    assert chi_squared < 16.3  # 0.1 % of fair draws exceed this, with 3 degrees of freedom


def test_every_image_can_be_on_either_side():
    source = source_of(even(14, classes=2, contexts=2))
    on_train = Counter()
    for seed in range(200):
        on_train.update(
            row.path for row in make_split(source, seed=seed).rows if row.side == "train"
        )
    expected = 200 * 8 / 14
    assert all(
        abs(count - expected) < 5 * (200 * 8 / 14 * 6 / 14) ** 0.5 for count in on_train.values()
    )
    assert len(on_train) == len(source.samples)


def test_test_sets_share_images_as_far_as_they_can():
    manifest = make_split(source_of(even(60)), ratio="5:1", seed=0)
    small = manifest.rows_of("test-5:1")
    minor = {row.path for row in small if row.context != manifest.dominant[row.class_name]}
    assert minor <= {row.path for row in manifest.rows_of("test-4:1")}


def test_by_default_every_image_is_used_in_its_natural_proportion():
    manifest = make_split(source_of({("cat", "snow"): 50, ("cat", "grass"): 10, ("dog", ""): 30}))
    assert counted(manifest, "train") == {("cat", "snow"): 27, ("cat", "grass"): 5, ("dog", ""): 16}
    assert counted(manifest, "validation") == {
        ("cat", "snow"): 3,
        ("cat", "grass"): 1,
        ("dog", ""): 2,
    }
    assert counted(manifest, "test") == {("cat", "snow"): 20, ("cat", "grass"): 4, ("dog", ""): 12}
    assert manifest.set_names == ("train", "validation", "test")
    assert (manifest.parameters["protocol"], manifest.parameters["ratio"]) == ("plain", None)
    note = "30 of 90 images have no context; they count as a context of their own."
    assert (manifest.dominant, manifest.notes) == ({"cat": "snow", "dog": ""}, [note])
    assert "in 3 contexts (no context, grass, snow)" in manifest.describe()
    # Without contexts there is no ratio
    alike = make_split(source_of({("cat", ""): 50, ("dog", ""): 30}), ratio="5:1")
    assert (alike.parameters["protocol"], alike.parameters["ratio"]) == ("plain", None)
    assert alike.notes == ["The ratio 5:1 was not used: the data has no contexts."]


def test_a_class_with_one_context_only_takes_part_with_it():
    manifest = make_split(
        source_of(even(20) | {("lone", "context0"): 50}), ratio="5:1", validation_fraction=0
    )
    assert counted(manifest, "train")["lone", "context0"] == 30
    assert counted(manifest, "test-1:5")["lone", "context0"] == 20


def test_a_repeated_picture_is_used_once_and_told_whatever_its_format():
    source = source_of(even(20))
    first = next(s for s in source.samples if s.class_name == "class0")
    source.samples = sorted(
        [*source.samples, first._replace(path="class0/context3/copy", context="context3")]
    )
    manifest = make_split(source)
    assert [row.path for row in manifest.rows if row.sha256 == first.sha256] == [first.path]
    (note,) = manifest.notes
    assert note == "Left out, because the same picture is in another file: 'class0/context3/copy'."
    other_bytes = hash_bytes(b"in another format")
    many = [
        s._replace(path=f"{s.path}-copy", sha256=other_bytes)
        for s in source.samples
        if s.class_name == "class0"
    ]
    (note,) = make_split(Listed(sorted([*source.samples, *many]))).notes
    assert note.startswith(
        "Left out, because the same picture is in another file: 82 images, such as "
    )


def test_a_picture_with_two_labels_is_left_out_and_told():
    source = source_of(even(20))
    first = source.samples[0]
    source.samples.append(first._replace(path="class2/context0/contradiction", class_name="class2"))
    manifest = make_split(source)
    assert first.sha256 not in {row.sha256 for row in manifest.rows}
    assert "'class2/context0/contradiction'" in manifest.parameters["notes"][0]


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_no_group_is_on_both_sides(seed):
    source = source_of(even(20))
    chance = random.Random(seed)
    groups = {
        sample.path: f"g{chance.randrange(60)}"
        for sample in source.samples
        if chance.random() < 0.9
    }
    source.samples = [
        sample._replace(group=groups.get(sample.path, "")) for sample in source.samples
    ]
    manifest = make_split(source, ratio="5:1", seed=seed)
    sides = {"train": set(), "test": set()}
    for row in manifest.rows:
        sides[row.side].add(groups.get(row.path))
    sides["train"].discard(None)
    assert sides["train"].isdisjoint(sides["test"])
    share = sum(row.side == "train" for row in manifest.rows) / len(manifest.rows)
    assert 0.5 < share < 0.7
    assert manifest.parameters["grouped"]


def test_images_that_do_not_suffice_for_training_are_an_error_that_names_them():
    source = source_of(even(20) | {("class1", "context2"): 1})
    assert make_split(source, ratio="1:1", seed=0).dominant["class1"] != "context2"
    with pytest.raises(
        ValueError, match=r"at 1:5: class 'class1' has 1 image\(s\) in context 'context2' where 5"
    ):
        make_split(source, ratio="1:5", seed=0)


def test_a_test_set_that_cannot_be_drawn_is_left_out_and_told():
    manifest = make_split(source_of(even(10)), ratio="5:1", validation_fraction=0)
    assert "test-1:5" not in manifest.set_names
    assert "test-4:1" in manifest.set_names
    notes = manifest.parameters["notes"]
    assert len(notes) == 3
    assert notes[0].startswith("24 of the 72 images on the training side are used, to reach 5:1")
    assert notes[1].startswith(
        "There is no test set at 1:5: class 'class0' has 4 image(s) in context"
    )


def test_a_class_too_small_for_validation_is_told():
    manifest = make_split(source_of(even(60) | {("small", "context0"): 14}), ratio="5:1", seed=0)
    assert counted(manifest, "validation").keys().isdisjoint({("small", "context0")})
    assert manifest.parameters["notes"][1:] == [
        "The validation set has no images of 'small': one round is all they suffice for, and it is"
        " trained on."
    ]


def test_the_parameters_say_how_the_split_was_made():
    manifest = make_split(source_of(even(20)), ratio="3:2", seed=7, validation_fraction=0.25)
    expected = {
        "seed": 7,
        "ratio": "3:2",
        "validation_fraction": 0.25,
        "train_fraction": 0.6,
        "grouped": False,
    }
    assert {name: manifest.parameters[name] for name in expected} == expected
    assert manifest.parameters["source"] == {"kind": "list"}
    assert manifest.parameters["images"] == {
        name: len(manifest.rows_of(name)) for name in manifest.set_names
    }


@pytest.mark.parametrize(
    "text", ["5", "5:", ":1", "0:1", "1:0", "-1:2", "1.5:1", "a:b", "1:2:3", "²:1", ""]
)
def test_what_is_no_ratio_is_refused(text):
    with pytest.raises(ValueError, match="such as 5:1"):
        parse_ratio(text)


def test_wrong_arguments():
    source = source_of(even(20))
    with pytest.raises(ValueError, match="seed is -1"):
        make_split(source, seed=-1)
    with pytest.raises(ValueError, match="validation_fraction is 1"):
        make_split(source, validation_fraction=1)
