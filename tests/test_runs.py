"""The run folder: what it says, who may write to it, and what is refused."""

import contextlib
import getpass
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from pfdl import runs
from pfdl._internal.files import TEMPORARY
from pfdl.runs import CONFIG, LOCK, RunInUseError, claim, read_run, set_aside
from tests.hostile.tampering import files

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "seeds": 3,
    "cells": [(1, 2.5)],
    "model": {"name": "mlp", "size": 8},
    "command": "pfdl …",
}


def make(folder, settings=SETTINGS, kind="mmads", **options):
    with claim(folder, kind, settings, **options) as run:
        return run


def test_a_run_says_what_it_is_and_with_what_it_was_made(tmp_path):
    made = make(tmp_path / "deep" / "run")
    found = read_run(tmp_path / "deep" / "run")
    assert found == made
    assert (found.kind, found.settings) == ("mmads", json.loads(json.dumps(SETTINGS)))
    content = json.loads((tmp_path / "deep" / "run" / CONFIG).read_text())
    assert content["format"] == "pfdl-run-2"
    assert set(content) == {"format", "kind", "settings", "made_with"}
    versions = {"pfdl", "python", "torch", "numpy", "scikit-learn", "lightning", "torchvision"}
    assert versions | {"git_revision", "hardware", "started"} == set(found.made_with)
    assert set(found.made_with["hardware"]) == {"cpu", "cpu_count", "gpu", "platform"}
    assert found.made_with["started"].endswith("+00:00")
    assert files(tmp_path / "deep" / "run").keys() == {CONFIG}
    assert found.made_with["git_revision"] == runs.git_revision(ROOT)


def test_a_run_names_neither_the_machine_nor_its_user(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "machine-of-ada")
    made_with = json.dumps(make(tmp_path / "run").made_with)
    assert "machine-of-ada" not in made_with
    assert str(Path.home()) not in made_with
    assert f'"{getpass.getuser()}"' not in made_with


def test_the_same_run_is_resumed_and_keeps_when_it_began(tmp_path, monkeypatch):
    first = make(tmp_path)
    monkeypatch.setattr(runs, "describe_this_machine", lambda: {"started": "later"})
    assert make(tmp_path) == first
    changed = make(
        tmp_path, {**SETTINGS, "seeds": 5, "command": "another"}, may_change=("seeds", "command")
    )
    assert read_run(tmp_path) == changed
    assert (changed.settings["seeds"], changed.made_with) == (5, first.made_with)


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        (
            {**SETTINGS, "seeds": 4, "model": {"name": "mlp", "size": 9}},
            "mmads",
            r"differs in seeds, size\); choose",
        ),
        ({**SETTINGS, "more": None}, "mmads", "differs in more"),
        ({**SETTINGS, "model": "mlp"}, "mmads", "differs in model"),
        (SETTINGS, "training", "of the kind 'mmads', not 'training'"),
    ],
)
def test_another_run_is_refused_with_what_differs(settings, kind, message, tmp_path):
    make(tmp_path)
    before = files(tmp_path)
    with pytest.raises(ValueError, match=message):
        make(tmp_path, settings, kind)
    assert files(tmp_path) == before


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(ValueError, match="no run of pfdl"):
        make(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ValueError, match="is a file"):
        make(tmp_path / "thesis.tex")


def test_what_a_killed_process_was_writing_is_tidied_away(tmp_path):
    (tmp_path / "cells").mkdir()
    make(tmp_path / "run")
    for folder in (tmp_path / "run", tmp_path / "run" / "cells"):
        folder.mkdir(exist_ok=True)
        (folder / f"{TEMPORARY}0123").write_text("hal")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / f"{TEMPORARY}4567").write_text("killed before anything was whole")
    make(tmp_path / "run")
    make(tmp_path / "new")
    assert not list(tmp_path.rglob(f"{TEMPORARY}*"))


@pytest.mark.parametrize(
    "content",
    [
        {"format": "pfdl-run-3", "kind": "mmads", "settings": {}, "made_with": {"pfdl": "7.1"}},
        {"format": "pfdl-run-2", "kind": "mmads", "settings": []},
        [],
    ],
)
def test_a_newer_or_damaged_folder_is_refused_politely_and_left(content, tmp_path):
    (tmp_path / CONFIG).write_text(json.dumps(content))
    before = files(tmp_path)
    for read in (read_run, make):
        with pytest.raises(
            ValueError, match=r"does not say what this run is .* update pfdl if a newer"
        ):
            read(tmp_path)
    assert files(tmp_path) == before


@pytest.mark.parametrize("value", [{"deep": [float("-inf")]}, {1, 2}])
def test_settings_that_json_cannot_hold_are_refused_before_anything_is_written(value, tmp_path):
    with pytest.raises(ValueError, match=r"cannot be kept as JSON \(.*\); give finite numbers"):
        make(tmp_path / "run", {**SETTINGS, "rate": value})
    assert not (tmp_path / "run").exists()


def test_resuming_with_other_versions_is_said(tmp_path, caplog, monkeypatch):
    make(tmp_path)
    make(tmp_path)
    assert caplog.text == ""
    version_of = runs.version_of
    monkeypatch.setattr(
        runs, "version_of", lambda name: "99.0" if name == "torch" else version_of(name)
    )
    make(tmp_path)
    assert f"torch {version_of('torch')} then, 99.0 now" in caplog.text


HOLD = """
import sys
from pathlib import Path
from pfdl import runs
runs.describe_this_machine = dict  # slow: it imports PyTorch
with runs.claim(Path(sys.argv[1]), "mmads", {}):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_gets_a_sentence_and_a_killed_one_blocks_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "PATIENCE", 0.0)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], text=True, cwd=ROOT, **pipes
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = files(tmp_path)
        with pytest.raises(RunInUseError, match="in use by another process; wait for it"):
            make(tmp_path, {})
        assert files(tmp_path) == before
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    make(tmp_path, {})
    assert files(tmp_path).keys() == {CONFIG}


def test_what_a_dead_process_left_running_is_waited_for(tmp_path):
    make(tmp_path)
    lock = FileLock(tmp_path / LOCK, thread_local=False)
    lock.acquire()
    threading.Timer(0.1, lock.release).start()
    assert make(tmp_path).kind == "mmads"


@contextlib.contextmanager
def as_somebody_else():
    """For the administrator nothing is read-only."""
    if os.name == "posix" and os.geteuid() == 0:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        yield


@pytest.mark.skipif(os.name != "posix", reason="permissions of folders")
def test_a_read_only_folder_is_a_sentence_and_stays_as_it_was():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        Path(name).chmod(0o755)
        make(folder)
        before = files(folder)
        folder.chmod(0o555)
        for place in (folder, folder / "new"):
            with (
                as_somebody_else(),
                pytest.raises(PermissionError, match=r"cannot be written to \(Permission denied\)"),
            ):
                make(place)
        folder.chmod(0o755)
        assert files(folder) == before


def test_a_file_set_aside_never_replaces_an_earlier_one(tmp_path, caplog):
    for text in ("one", "two", "three"):
        (tmp_path / "a.json").write_text(text)
        set_aside(tmp_path / "a.json", "a.json is nonsense.")
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {
        "a.json.damaged": "one",
        "a.json.2.damaged": "two",
        "a.json.3.damaged": "three",
    }
    assert (
        "a.json is nonsense. It is kept as a.json.2.damaged; what it held is done again."
        in caplog.text
    )


def test_the_revision_is_that_of_the_checkout(tmp_path):
    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    find_revision = runs.git_revision.__wrapped__  # each time anew
    assert find_revision(tmp_path) is None
    git("init")
    assert find_revision(tmp_path) is None  # no commit yet
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-m", "one")
    git("tag", "v1")
    revision = git("rev-parse", "HEAD")
    assert find_revision(tmp_path) == revision
    (tmp_path / "file").write_text("b")
    assert find_revision(tmp_path) == f"{revision}-dirty"
