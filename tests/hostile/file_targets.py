"""Attacks on readers of tables, folders, evaluations, configurations, weights and images."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load, save

from pfdl._internal.config_files import read_config_file
from pfdl._internal.state import load_state
from pfdl.cli.common import open_source
from pfdl.data.images import BadImageError, decoded, hash_bytes, to_tensor
from pfdl.data.layout import list_folder
from pfdl.data.manifest import COLUMNS, FORMAT, read_manifest
from pfdl.data.tables import list_table
from pfdl.runs import CONFIG, METRICS, claim, read_run
from pfdl.vision.backbones import make_backbone
from pfdl.vision.checkpoint import WEIGHTS, check_weights, load_model, read_model_config
from pfdl.vision.config import DataOptions
from pfdl.vision.evaluation import read_evaluations
from pfdl.vision.resume import STATE, read_state
from tests.data.image_files import encoded, image_bombs
from tests.hostile.state_targets import made_run
from tests.hostile.tampering import (
    SPECIAL,
    UNDAMAGED,
    Damage,
    Target,
    answered,
    check_sentence,
    damaged,
    damages,
    encode,
    make_special,
    records,
    tampered,
    target,
    values,
    words,
)

EVALUATION = "evaluations/test.json"


def as_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    return encode("\n".join([",".join(heading), *(",".join(row) for row in rows)]))


lines = st.tuples(
    words,
    words,
    words,
    st.just("a" * 64) | words,
    st.sampled_from(["train", "test"]) | words,
    words,
)
HEADING = ",".join(COLUMNS).encode()
SOUND = {"format": FORMAT, "dominant": {}, "notes": []}


@target(
    lambda: (
        st.lists(lines, max_size=4).map(lambda rows: as_table(COLUMNS, rows))
        | st.binary(max_size=60),
        records(
            format=st.just(FORMAT),
            dominant=st.dictionaries(words, words, max_size=2),
            notes=st.lists(words, max_size=2),
            source=records(
                per_cell=st.integers(0, 5), strength=st.floats(), layout=words, seed=st.integers()
            ),
        )
        | values,
    ),
    lambda: [
        (HEADING + b"\na,b,c," + b"0" * 64 + b",test,test-1:0", SOUND),
        (HEADING + b"\na,b,c," + b"0" * 64 + b",test,test-" + b"1" * 5000 + b":1", SOUND),
        (HEADING, {"format": FORMAT, "dominant": {}}),
        (HEADING, {**SOUND, "notes": 3}),
        *(
            (HEADING, {**SOUND, "source": source})
            for source in ([], {"strength": "x"}, {"per_cell": 2.5})
        ),
    ],
)
def manifests(folder: Path, table: bytes, parameters: Any) -> None:
    if isinstance(parameters, dict):
        # So that what comes after the check is reached
        parameters = {
            **parameters,
            "csv_sha256": hash_bytes(table),
        }
    (folder / "m.csv").write_bytes(table)
    (folder / "m.json").write_text(json.dumps(parameters))
    manifest = answered(read_manifest, folder / "m.csv")
    if manifest is not None:
        assert not any(
            ".." in row.path.split("/") or row.path.startswith("/") for row in manifest.rows
        )
        assert all(isinstance(note, str) for note in manifest.notes)
        assert set(manifest.dominant) is not None
        assert all(isinstance(name, str) for name in manifest.set_names)
        answered(open_source, "shapes", DataOptions(), manifest)


TABLES = ("m.csv", "m.tsv", "m.txt", "m.parquet", "list_attr_celeba.csv", "list_attr_celeba.txt")
PATHS = ("", "a.png", "b/c.png", "../a.png", "/a.png", "a\0b")
cells = st.sampled_from([*PATHS, "-1", "1", "train", "e\u0301", "\xe9"]) | words


@target(
    lambda: (
        st.sampled_from([",", ";", "\t", "|", " "]),
        st.lists(st.lists(cells, max_size=4), max_size=5),
        st.sampled_from(TABLES),
        st.binary(max_size=30),
    ),
    lambda: [
        (
            ",",
            [["a.png", "-1"], ["b/c.png", "1"]],
            "list_attr_celeba.csv",
            b"image_id,partition\na.png,0",
        ),
        (" ", [["a.png", "-1"], ["b/c.png", "1"]], "list_attr_celeba.txt", b"a.png 0\nb/c.png 2"),
        (" ", [], "list_attr_celeba.txt", b""),
    ],
)
def tables_of_images(
    folder: Path, separator: str, rows: Sequence[Sequence[str]], name: str, partition: bytes
) -> None:
    lines = [separator.join(row) for row in [("path", "label", "context", "split"), *rows]]
    content = encode("\n".join(lines))
    (folder / name).write_bytes(b"2\n" * name.endswith(".txt") + content)
    if "celeba" in name:
        (folder / name.replace("attr_celeba", "eval_partition")).write_bytes(partition)
    listed = answered(list_table, folder, folder / name, None, None, True)
    if listed is not None:
        assert not any(
            ".." in file.path.split("/") or file.path.startswith("/") for file in listed[0]
        )
        assert len({file.class_name for file in listed[0]}) > 1


FOLDERS = ("a", "A", "train", "test", "on grass", "photo", "sketch", "e\u0301", "\xe9", "x(a)")


@target(
    lambda: (
        st.lists(st.lists(st.sampled_from(FOLDERS), min_size=1, max_size=4), max_size=12),
        st.sampled_from([None, "class/context", "context/class", "a/b"]),
    ),
)
def folders_of_any_nesting(
    folder: Path, paths: Sequence[Sequence[str]], layout: str | None
) -> None:
    for number, parts in enumerate(paths):
        place = folder.joinpath(*parts)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.png").touch()
    listed = answered(list_folder, folder, layout)
    if listed is not None:
        found, bad, _ = listed
        assert len(found) + len(bad) == len(paths)
        assert len({file.class_name for file in found}) > 1


NAMES = (CONFIG, STATE, WEIGHTS, METRICS, EVALUATION, "m.csv", "m.json")


def read_everything(folder: Path) -> list[Any]:
    """What each reader of a folder answers; None where it refuses."""
    answered(check_weights, folder / WEIGHTS)
    answered(_claim_again, folder)
    found = [answered(load_state, folder / STATE), answered(read_manifest, folder / "m.csv")]
    found += [answered(read, folder) for read in (read_run, load_model, read_state)]
    return [*found, *read_evaluations(folder, [])]


def _claim_again(folder: Path) -> None:
    with claim(folder, "training", {}):
        pass


def any_bytes(names: Sequence[str], read: Callable[[Path], list[Any]]) -> Target:
    """Return the target that puts bytes in the place of all files with these names."""

    @target(
        lambda: (st.binary(max_size=200),),
        lambda: [(b"[" * 100_000,), (b"\x80\x04\x95",), (b"," * 100_000,), (b"\0\r\0",)],
    )
    def check(folder: Path, content: bytes) -> None:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        assert all(found is None for found in read(folder))

    return check


def special_file(names: Sequence[str], read: Callable[[Path], list[Any]]) -> Target:
    """Return the target that puts a pipe, a device or a folder where a file should be: nobody waits
    or reads on.
    """

    @target(lambda: (st.sampled_from(names), st.sampled_from(SPECIAL)), share=0.4)
    def check(folder: Path, name: str, kind: str) -> None:
        shutil.copytree(made_run(), folder, dirs_exist_ok=True)
        for other in names:
            (folder / other).parent.mkdir(exist_ok=True)
            if not (folder / other).exists():
                (folder / other).write_text("a,b\n1,2\n")
        (folder / name).unlink()
        make_special(folder / name, kind)
        answered(load_state, folder / name)
        read(folder)

    return check


bytes_in_the_place_of_any_file = any_bytes(NAMES, read_everything)
special_files = special_file(NAMES, read_everything)


@target(
    lambda: (
        records(
            **{
                name: st.dictionaries(words, st.floats(), max_size=2)
                for name in ("by_ratio", "by_label", "by_context")
            },
            overall=st.floats(),
            calibration_error=st.floats(),
            worst_group=records(
                accuracy=st.floats(), label=words, context=words, samples=st.integers()
            ),
        )
        | values,
    ),
)
def evaluations(folder: Path, evaluation: Any) -> None:
    (folder / EVALUATION).parent.mkdir()
    (folder / EVALUATION).write_text(json.dumps(evaluation))
    problems: list[str] = []
    read_evaluations(folder, problems)
    assert all("\n" not in problem for problem in problems)


MODEL = {"backbone": "mlp", "classes": ["a", "b"], "image_size": 8, "small_stem": False}


def training(**changes: Any) -> dict[str, Any]:
    return {
        "format": "pfdl-run-2",
        "kind": "training",
        "settings": {"model": {**MODEL, **changes}},
        "made_with": {},
    }


def write_run(folder: Path, content: Any, weights: bytes) -> None:
    (folder / CONFIG).write_text(json.dumps(content))
    (folder / WEIGHTS).write_bytes(weights)


lines_of_yaml = st.sampled_from(
    ["a: 1", "epochs: 2", "a: &a [1]", "b: *a", "<<: *a", "- x", "? [", "{a: b", "!!python/none x"]
)


@target(
    lambda: (
        st.lists(lines_of_yaml | words, max_size=5).map("\n".join).map(encode) | st.binary(),
        st.sampled_from([".yaml", ".json"]),
    ),
    lambda: [
        (b"[" * 60_000, ".yaml"),
        (b"[" * 60_000, ".json"),
        (b"a: !!python/object/apply:os.system [false]", ".yaml"),
        (b"\n".join([b"a0: &a0 {x: 1}", *LAUGHS]), ".yaml"),
    ],
)
def files_of_settings(folder: Path, content: bytes, suffix: str) -> None:
    path = folder / f"settings{suffix}"
    path.write_bytes(content)
    settings = answered(read_config_file, path)
    assert settings is None or all(isinstance(text, str) for text in settings.values())


LAUGHS = [b"a%d: &a%d {<<: [*a%d, *a%d]}" % (n, n, n - 1, n - 1) for n in range(1, 40)]
"""Each line doubles what it merges."""


@cache
def sound_weights() -> bytes:
    torch.manual_seed(0)
    return save(make_backbone("mlp", 2, image_size=8).state_dict())


@target(
    lambda: (
        records(
            format=st.sampled_from(["pfdl-run-1", "pfdl-run-2", "pfdl-run-3"]),
            kind=st.sampled_from(["training", "mmads"]),
            settings=records(
                model=records(
                    backbone=st.sampled_from(
                        ["mlp", "small", "resnet18", "timm/x", "timm/hf-hub:a/b"]
                    ),
                    classes=st.lists(words, min_size=1, max_size=3),
                    image_size=st.integers(-1, 20) | st.sampled_from([2**14, 2**31, 2**63]),
                    small_stem=st.booleans(),
                ),
                training=values,
            ),
            made_with=records(pfdl=words),
        )
        | tampered(training())
        | values,
    ),
    lambda: [
        (training(),),
        *((training(classes=classes),) for classes in (3, "ab")),
        *((training(image_size=size),) for size in ("8", 10**12, 16384, True)),
        *((training(backbone=name),) for name in (["mlp"], "timm/hf-hub:somebody/something")),
    ],
    share=0.5,
)
def configurations(folder: Path, content: Any) -> None:
    text = json.dumps(content, default=str)
    write_run(folder, json.loads(text), sound_weights())
    answered(read_run, folder)
    config = answered(read_model_config, folder)
    assert config is None or all(isinstance(name, str) for name in config.classes)
    answered(load_model, folder)


@target(
    lambda: (tampered(load(sound_weights())),),
    lambda: [
        (
            {
                name: torch.full_like(value, float("nan"))
                for name, value in load(sound_weights()).items()
            },
        ),
        ({name: value.to(torch.int8) for name, value in load(sound_weights()).items()},),
    ],
)
def weights(folder: Path, state: dict[str, Any]) -> None:
    kept = {
        str(name).encode("utf-8", "replace").decode(): one
        for name, one in state.items()
        if torch.is_tensor(one)
    }
    kept.pop("__metadata__", None)  # safetensors' own name
    write_run(folder, training(), save(kept))
    trained = answered(load_model, folder)
    if trained is not None:
        assert trained.model(torch.zeros(1, 3, 8, 8)).isfinite().all()


@cache
def pictures_of_all_kinds() -> list[bytes]:
    kinds = [("RGB", kind) for kind in ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")]
    kinds += [("P", "GIF"), ("I;16", "PNG"), ("CMYK", "JPEG")]
    return [encoded(Image.effect_noise((9, 7), 60).convert(mode), kind) for mode, kind in kinds]


@target(
    lambda: (
        st.sampled_from(pictures_of_all_kinds()),
        damages,
    ),
    lambda: [(content, UNDAMAGED) for content in image_bombs().values()],
    share=2.0,
)
def pictures(folder: Path, original: bytes, damage: Damage) -> None:
    try:
        with decoded(damaged(original, damage)) as image:
            assert to_tensor(image, 4).shape == (3, 4, 4)
    except BadImageError as error:
        check_sentence(error)
