"""Whatever bytes a file holds, a reader returns or raises ValueError or OSError; and nothing on disk is ever executed.

The examples that are written out are those with which something else came out once.
"""

import ast
import gzip
import io
import json
import struct
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save

import pfdl
from pfdl._internal.runs import CONFIG, read_run
from pfdl._internal.state import FORMAT as STATE_FORMAT
from pfdl._internal.state import load_state
from pfdl.cli.images import open_source
from pfdl.data.idx import read_idx
from pfdl.data.images import BadImageError, decode, hash_bytes, to_tensor
from pfdl.data.manifest import COLUMNS, FORMAT, read_groups, read_manifest
from pfdl.experiments.grid import _load, _path
from pfdl.vision.backbones import make_backbone
from pfdl.vision.checkpoint import WEIGHTS, load_model, read_model_config, save_weights
from pfdl.vision.resume import STATE, read_state

MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
DOCUMENTED = (ValueError, OSError)

words = st.text(max_size=8) | st.sampled_from(["", "train", "test", "cat", "/", "..", "0" * 64, "5:1", "test-1:0"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def records(**parts):
    """Dictionaries with some of these entries right, some wrong and some missing."""
    return st.fixed_dictionaries({}, optional={name: part | values for name, part in parts.items()})


def quietly(function, *arguments):
    try:
        return function(*arguments)
    except DOCUMENTED:
        return None


headers = st.builds(
    lambda dimensions, sizes: bytes([0, 0, 8, dimensions]) + b"".join(struct.pack(">I", size) for size in sizes),
    st.integers(0, 4),
    st.lists(st.sampled_from([0, 1, 2, 3, 255, 2**32 - 1]), max_size=4),
)


@MANY
@given(st.builds(bytes.__add__, headers, st.binary(max_size=20)) | st.binary(max_size=40), st.booleans())
@example(bytes([0, 0, 8, 3]) + struct.pack(">3I", 0, 2**32 - 1, 2**32 - 1), False)
@example(gzip.compress(b"")[:-9], True)
def test_idx_files(folder, content, compress):
    (folder / "idx").write_bytes(
        gzip.compress(content)[: -1 if content[-1:] == b"\0" else None] if compress else content
    )
    array = quietly(read_idx, folder / "idx", 3)
    assert array is None or array.ndim == 3


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(folder, monkeypatch):
    monkeypatch.setattr("pfdl.data.idx.MAX_BYTES", 1000)
    (folder / "bomb").write_bytes(gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", 2000) + bytes(2000)))
    with pytest.raises(ValueError, match="unpacks to more than 1000 bytes"):
        read_idx(folder / "bomb", 1)


lines = st.tuples(words, words, words, st.just("a" * 64) | words, st.sampled_from(["train", "test"]) | words, words)
tables = st.lists(lines, max_size=4).map(
    lambda rows: "\n".join([",".join(COLUMNS), *(",".join(row) for row in rows)]).encode("utf-8", "surrogatepass")
)
manifests = records(
    format=st.just(FORMAT),
    dominant=st.dictionaries(words, words, max_size=2),
    notes=st.lists(words, max_size=2),
    source=records(per_cell=st.integers(0, 5), temptation=st.floats(), seed=st.integers()),
)
HEADING = ",".join(COLUMNS).encode()


@MANY
@given(tables | st.binary(max_size=60), manifests | values)
@example(HEADING + b"\na,b,c," + b"0" * 64 + b",test,test-1:0", {"format": FORMAT, "dominant": {}, "notes": []})
@example(
    HEADING + b"\na,b,c," + b"0" * 64 + b",test,test-" + b"1" * 5000 + b":1",
    {"format": FORMAT, "dominant": {}, "notes": []},
)
@example(HEADING, {"format": FORMAT, "dominant": {}})
@example(HEADING, {"format": FORMAT, "dominant": {}, "notes": 3})
@example(HEADING, {"format": FORMAT, "dominant": {}, "notes": [], "source": []})
@example(HEADING, {"format": FORMAT, "dominant": {}, "notes": [], "source": {"temptation": "x"}})
@example(HEADING, {"format": FORMAT, "dominant": {}, "notes": [], "source": {"per_cell": 2.5}})
def test_manifests(folder, table, parameters):
    if isinstance(parameters, dict):
        parameters = {**parameters, "csv_sha256": hash_bytes(table)}  # so that what comes after the check is reached
    (folder / "m.csv").write_bytes(table)
    (folder / "m.json").write_text(json.dumps(parameters))
    manifest = quietly(read_manifest, folder / "m.csv")
    if manifest is not None:
        assert not any(".." in row.path.split("/") or row.path.startswith("/") for row in manifest.rows)
        assert all(isinstance(note, str) for note in manifest.notes)
        assert set(manifest.dominant) is not None
        assert all(isinstance(name, str) for name in manifest.set_names)
        quietly(open_source, "contexts", None, "error", manifest)


@MANY
@given(
    st.binary(max_size=60)
    | st.lists(st.lists(words, max_size=3), max_size=3).map(
        lambda rows: "\n".join(["path,group", *(",".join(row) for row in rows)]).encode("utf-8", "surrogatepass")
    )
)
@example(b"group,path\nx")
def test_tables_of_groups(folder, content):
    (folder / "groups.csv").write_bytes(content)
    groups = quietly(read_groups, f"{folder / 'groups.csv'}:group")
    assert groups is None or all(isinstance(text, str) for pair in groups.items() for text in pair)


models = records(
    backbone=st.sampled_from(["mlp", "cn", "resnet18", "timm/x", "timm/hf-hub:a/b"]),
    classes=st.lists(words, min_size=1, max_size=3),
    image_size=st.integers(-1, 20),
    small_stem=st.booleans(),
)
configurations = records(
    format=st.sampled_from(["pfdl-run-1", "pfdl-run-2", "pfdl-run-3"]),
    kind=st.sampled_from(["training", "mmads"]),
    settings=records(model=models, training=values),
    model=models,
    training=st.just({}),
    made_with=records(pfdl=words),
)
RIGHT = {"backbone": "mlp", "classes": ["a", "b"], "image_size": 8, "small_stem": False}


def training(**changes):
    return {"format": "pfdl-run-2", "kind": "training", "settings": {"model": {**RIGHT, **changes}}, "made_with": {}}


@MANY
@given(configurations | values)
@example(training())
@example(training(classes=3))
@example(training(classes="ab"))
@example(training(image_size="8"))
@example(training(image_size=10**12))
@example(training(image_size=True))
@example(training(backbone=["mlp"]))
@example(training(backbone="timm/hf-hub:somebody/something"))
def test_configurations(folder, content):
    (folder / CONFIG).write_text(json.dumps(content))
    quietly(read_run, folder)
    config = quietly(read_model_config, folder)
    if config is not None:
        assert all(isinstance(name, str) for name in config.classes)
    save_weights(folder / WEIGHTS, make_backbone("mlp", 2, image_size=8))
    quietly(load_model, folder)


@MANY
@given(st.binary(max_size=200))
@example(b"[" * 100_000)
@example(b"\x80\x04\x95")
def test_bytes_in_the_place_of_any_file(folder, content):
    for name in (CONFIG, STATE, WEIGHTS, "m.csv", "m.json"):
        (folder / name).write_bytes(content)
    assert quietly(read_run, folder) is None
    assert quietly(load_state, folder / STATE) is None
    assert quietly(load_model, folder) is None
    assert quietly(read_manifest, folder / "m.csv") is None
    assert read_state(folder) is None
    for path in folder.glob("*.damaged"):
        path.unlink()


trees = st.recursive(
    st.none() | st.integers() | st.just({"tensor": "a"}) | words,
    lambda inner: st.sampled_from(["dict", "list", "tuple", "tensor"]).flatmap(
        lambda kind: st.lists(st.lists(inner, max_size=3) | inner, max_size=3).map(lambda items: {kind: items})
    ),
    max_leaves=6,
)


@MANY
@given(trees | values)
@example([])
@example({"dict": [["finished", True]]})
@example({"dict": [[{"list": []}, 1]]})
@example({"dict": [["history", 3], ["finished", True], ["best_score", None]]})
@example({"tensor": "a"})
def test_states(folder, tree):
    tensors = {"a": torch.ones(2), "b": torch.ones((), dtype=torch.bfloat16)}
    (folder / STATE).write_bytes(save(tensors, metadata={"format": STATE_FORMAT, "tree": json.dumps(tree)}))
    state = quietly(load_state, folder / STATE)
    assert state is None or isinstance(state, dict)
    state = read_state(folder)
    assert state is None or isinstance(state["finished"], bool)
    for path in folder.glob("*.damaged"):
        path.unlink()


WHOLE_STATE = save(
    {"a": torch.ones(4)}, metadata={"format": STATE_FORMAT, "tree": '{"dict": [["a", {"tensor": "a"}]]}'}
)


@MANY
@given(st.lists(st.tuples(st.integers(0, len(WHOLE_STATE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_states_with_some_bytes_changed(folder, changes):
    content = bytearray(WHOLE_STATE)
    for place, byte in changes:
        content[place] = byte
    (folder / "some.safetensors").write_bytes(content)
    state = quietly(load_state, folder / "some.safetensors")
    assert state is None or isinstance(state, dict)


@MANY
@given(values)
@example({"task": {"seed": 1}})
@example({"task": {"seed": 1}, "rows": {}})
@example({"task": {"seed": 1}, "rows": [[]]})
def test_stored_tasks(folder, content):
    path = _path(folder, {"seed": 1})
    path.write_text(json.dumps(content))
    assert _load(folder, {"seed": 1}) is None
    for aside in folder.glob("*.damaged"):
        aside.unlink()


def picture(kind, mode="RGB"):
    stream = io.BytesIO()
    Image.effect_noise((9, 7), 60).convert(mode).save(stream, kind)
    return stream.getvalue()


PICTURES = [picture(kind) for kind in ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")]
PICTURES += [picture("GIF", "P"), picture("PNG", "I;16"), picture("JPEG", "CMYK")]


@settings(MANY, max_examples=400)
@given(
    st.sampled_from(PICTURES), st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=4)), max_size=4), st.data()
)
def test_pictures(original, changes, data):
    content = bytearray(original)
    for place, new in changes:
        content[place % len(content) : place % len(content) + len(new)] = new
    cut = data.draw(st.integers(1, len(content)))
    try:
        image = decode(bytes(content[:cut]))
    except BadImageError:
        return
    assert to_tensor(image, 4).shape == (3, 4, 4)


def test_nothing_in_the_library_can_execute_what_it_reads():
    modules = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
    calls = {"eval", "exec", "compile", "__import__", "read_pickle", "load_from_checkpoint"}
    for path in Path(pfdl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {alias.name.partition(".")[0] for alias in node.names} & modules, path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in modules, path
            if isinstance(node, ast.Call):
                assert not (isinstance(node.func, ast.Name) and node.func.id in calls), path
                if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                    called = (node.func.value.id, node.func.attr)
                    assert called not in {("np", "load"), ("joblib", "load")}, path
                    # Tensors alone, which PyTorch reads without running anything.
                    assert called != ("torch", "load") or "weights_only=True" in ast.unparse(node), path
