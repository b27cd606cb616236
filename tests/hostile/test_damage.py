"""Damaged files are set aside and named, and only what they held is done again.

What a full disk, a kill or a removed folder costs a grid of tasks is in the laboratory's
``test_grid.py``.
"""

import errno
import os
import shutil

import pytest

from pfdl._internal.state import load_state, save_state
from pfdl.cli import common as cli_common
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import METRICS, STATE
from pfdl.vision.training import TrainingConfig, train
from tests.hostile.killing_driver import content
from tests.vision.tiny_images import tiny_data

PLAN = TrainingConfig(backbone="mlp", objective="erm", image_size=8, epochs=2, batch_size=16)


def aside(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.damaged"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(PLAN, *tiny_data(), tmp_path_factory.mktemp("trained") / "run", device="cpu")


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def with_parts(**parts):
    return lambda path: save_state(path, {**load_state(path), **parts})


@pytest.mark.parametrize(
    ("name", "damage", "set_aside", "kept"),
    [
        (METRICS, lambda path: path.write_text("epoch,lea\n0"), [], True),
        (METRICS, lambda path: path.unlink(), [], True),
        (STATE, cut, [STATE], False),
        *(
            (STATE, with_parts(finished=word), [STATE], False) for word in (False, "yes")
        ),  # or other parts are missing
        *(
            (STATE, with_parts(history=rows), [STATE], False)
            for rows in ("junk", [1, 2], [{"epoch": 7}])
        ),
        (STATE, with_parts(history=[{"epoch": 0, "train_loss": "low"}]), [STATE], False),
        (STATE, lambda path: path.write_bytes(b"\x80\x04K\x01."), [STATE], False),
        (WEIGHTS, cut, [WEIGHTS, STATE], False),
        (WEIGHTS, lambda path: path.unlink(), [STATE], False),
        ("manifest.csv", cut, [], True),
        ("manifest.json", lambda path: path.unlink(), [], True),
    ],
)
def test_a_training_redoes_what_a_damaged_file_held(
    name, damage, set_aside, kept, trained, tmp_path, caplog
):
    folder = shutil.copytree(trained, tmp_path / "run")
    damage(folder / name)
    state_time = (folder / STATE).stat().st_mtime_ns
    train(PLAN, *tiny_data(), folder, device="cpu")
    assert (
        (folder / STATE).stat().st_mtime_ns == state_time
    ) == kept  # unless something is trained
    assert aside(folder) == sorted(f"{name}.damaged" for name in set_aside)
    assert all(name in caplog.text for name in set_aside)
    for path in folder.glob("*.damaged"):
        path.unlink()
    assert content(folder) == content(trained)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("/a/model.onnx", "/a/model.onnx: No space left on device."),
        (None, "No space left on device."),
    ],
)
def test_an_error_of_the_system_is_a_sentence_on_the_command_line(where, sentence, capsys):
    with pytest.raises(cli_common.typer.Exit), cli_common.exit_on_user_error():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where)
    assert capsys.readouterr().err == f"Error: {sentence}\n"
