import json

import pytest

from pfdl.data import read_manifest
from tests.cli.typing_commands import typed
from tests.data.image_files import make_folder


@pytest.fixture
def folder(tmp_path):
    return make_folder(
        tmp_path / "data", {f"{name}/{context}": 20 for name in ("cat", "dog") for context in ("on grass", "on snow")}
    )


def test_split_writes_the_manifest_and_says_what_is_in_it(folder, tmp_path):
    out = tmp_path / "m.csv"
    result = typed(f"split {folder} -o {out} --ratio 2:1 --seed 3 --validation 0.2")
    manifest = read_manifest(out)
    chosen = {name: manifest.parameters[name] for name in ("ratio", "seed", "validation_fraction")}
    assert chosen == {"ratio": "2:1", "seed": 3, "validation_fraction": 0.2}
    assert f"cat: dominant context {manifest.dominant['cat']}" in result.output
    assert (
        "Images: 80, of 2 classes (cat, dog), in 2 contexts (on grass, on snow); folders read as class/context/image."
        in result.output
    )
    assert f"Sets: train {len(manifest.rows_of('train'))}, " in result.output
    assert str(out.with_suffix(".json")) in result.output


def test_bad_images_stop_it_or_are_left_out(folder, tmp_path):
    (folder / "cat/on snow/empty.png").touch()
    stopped = typed(f"split {folder} -o {tmp_path / 'm.csv'}", fails=True)
    assert "'cat/on snow/empty.png' is empty (0 bytes)" in stopped.output
    assert not (tmp_path / "m.csv").exists()
    skipped = typed(f"split {folder} -o {tmp_path / 'm.csv'} --set on_bad_image=skip")
    assert "They are left out." in skipped.output
    left_out = json.loads((tmp_path / "m.json").read_text())["source"]["left_out"]
    assert left_out == [{"path": "cat/on snow/empty.png", "reason": "is empty (0 bytes)"}]


def test_a_table_is_split_by_its_columns(tmp_path):
    make_folder(tmp_path, {"images": 40})
    lines = ["file;bird;sky", *(f"images/{n:03d}.png;{'ab'[n % 2]};{'xy'[n // 2 % 2]}" for n in range(40))]
    (tmp_path / "birds.csv").write_text("\n".join(lines))
    line = f"split {tmp_path / 'birds.csv'} -o {tmp_path / 'm.csv'}"
    result = typed(f"{line} --columns label=bird,context=sky")
    assert "in 2 contexts (x, y)" in result.output
    manifest = read_manifest(tmp_path / "m.csv")
    assert manifest.parameters["source"]["columns"] == {"path": "file", "label": "bird", "context": "sky"}
    assert "--columns label=NAME" in typed(line, fails=True).output


def test_notes_are_printed(tmp_path):
    make_folder(tmp_path / "data", {f"{name}/{c}": 10 for name in ("cat", "dog") for c in ("on grass", "on snow")})
    result = typed(f"split {tmp_path / 'data'} -o {tmp_path / 'm.csv'} --ratio 5:1")
    assert "Note: There is no test set at 1:5" in result.output


def test_two_readings_stop_it_until_one_is_named(tmp_path):
    make_folder(tmp_path / "data", {f"{one}/{two}": 5 for one in ("a", "b") for two in ("x", "y", "z")})
    line = f"split {tmp_path / 'data'} -o {tmp_path / 'm.csv'}"
    stopped = typed(line, fails=True)
    assert "--layout class/context or --layout context/class" in stopped.output
    assert "context/class: the classes are 'x', 'y', 'z', in the contexts 'a', 'b'" in stopped.output
    assert not (tmp_path / "m.csv").exists()
    named = typed(f"{line} --layout context/class")
    assert "3 classes (x, y, z), in 2 contexts (a, b); folders read as context/class/image." in named.output
    typed(f"{line} --layout class/context")
    assert read_manifest(tmp_path / "m.csv").classes == ("a", "b")


def test_the_built_in_data_set_can_be_split(tmp_path):
    result = typed(f"split shapes -o {tmp_path / 'm.csv'}")
    assert "disc: most frequent context" in result.output
    assert read_manifest(tmp_path / "m.csv").parameters["source"]["kind"] == "shapes"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--ratio five", "such as 5:1"),
        ("-o m.txt", "must end in .csv"),
        ("--validation 2", "validation_fraction is 2.0"),
        ("--set on_bad_image=maybe", "choose one of"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(folder, options, message):
    assert message in typed(f"split {folder} {options}", fails=True).output


def test_names_of_folders_cannot_steer_the_terminal(tmp_path):
    hostile, snow = "cat\x1b[2J\x1b]0;owned\x07", "snow\x1b[31m"
    cells = {f"{name}/{context}": 12 for name in (hostile, "dog") for context in (snow, "grass")}
    make_folder(tmp_path / "data", cells)
    (tmp_path / "data" / hostile / "grass" / "bad\x1b[1m.png").write_bytes(b"none")
    line = f"split {tmp_path / 'data'} --layout class/context --ratio 2:1 -o {tmp_path / 'm.csv'}"
    for result in (typed(line, fails=True), typed(f"{line} --set on_bad_image=skip")):
        assert "\x1b" not in result.output
        assert "\x07" not in result.output
        assert r"bad\x1b[1m.png" in result.output
    assert r"cat\x1b[2J\x1b]0;owned\x07: dominant context" in result.output
