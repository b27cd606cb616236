from pfdl.data import read_manifest
from tests.cli.typing_commands import typed
from tests.data.image_files import grid, make_folder


def test_split_writes_the_manifest_and_says_what_is_in_it(tmp_path):
    out = tmp_path / "m.csv"
    folder = make_folder(tmp_path / "data", grid(("cat", "dog"), ("on grass", "on snow"), count=20))
    result = typed(f"split {folder} -o {out} --ratio 5:1 --seed 3 --validation 0.2")
    manifest = read_manifest(out)
    chosen = {name: manifest.parameters[name] for name in ("ratio", "seed", "validation_fraction")}
    assert chosen == {"ratio": "5:1", "seed": 3, "validation_fraction": 0.2}
    assert f"cat: dominant context {manifest.dominant['cat']}" in result.output
    assert (
        "Images: 80, of 2 classes (cat, dog), in 2 contexts (on grass, on snow); folders read as"
        " class/context/image." in result.output
    )
    assert f"Sets: train {len(manifest.rows_of('train'))}, " in result.output
    assert f"Note: {manifest.notes[0]}" in result.output
    assert str(out.with_suffix(".json")) in result.output
    assert "cat: most frequent context" in typed(f"split {folder} -o {out}").output


def test_names_of_folders_cannot_steer_the_terminal_where_bad_images_stop_it_or_are_left_out(
    tmp_path,
):
    hostile = "cat\x1b[2J\x1b]0;owned\x07"
    cells = grid((hostile, "dog"), ("snow\x1b[31m", "grass"), count=12)
    make_folder(tmp_path / "data", cells)
    (tmp_path / "data" / hostile / "grass" / "bad\x1b[1m.png").write_bytes(b"none")
    line = f"split {tmp_path / 'data'} --layout class/context --ratio 2:1 -o {tmp_path / 'm.csv'}"
    stopped = typed(line, fails=True)
    assert not (tmp_path / "m.csv").exists()
    skipped = typed(f"{line} --set on_bad_image=skip")
    for result in (stopped, skipped):
        assert "\x1b" not in result.output
        assert "\x07" not in result.output
        assert r"bad\x1b[1m.png" in result.output
    assert "They are left out." in skipped.output
    assert r"cat\x1b[2J\x1b]0;owned\x07: dominant context" in skipped.output
