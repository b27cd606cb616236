"""The run folder, the one format in which every command keeps its work: docs/run-folder.md. Reading runs no code."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pfdl._internal.files import TEMPORARY, read_json, write_atomically
from pfdl._internal.provenance import describe_this_machine, version_of

VERSION = 2
CONFIG = "config.json"
LOCK = ".pfdl-lock"
HOLDER = ".pfdl-holder"
PATIENCE = 10.0
"""Seconds to wait for what a killed process left running, such as the processes that loaded its images."""

_log = logging.getLogger("pfdl")


class RunInUseError(OSError):
    """Another process works in the folder."""


@dataclass(frozen=True)
class Run:
    """What a run folder says about itself.

    Args:
        folder: The folder.
        kind: What made it: ``"training"``, ``"mmads"``, ``"colored-mnist"``, ``"contexts"``, ….
        settings: All that changes its results, as JSON has it.
        made_with: Versions, git revision, hardware and the time of its first start.
    """

    folder: Path
    kind: str
    settings: Mapping[str, Any]
    made_with: Mapping[str, Any]


def read_run(folder: str | Path) -> Run:
    """Read ``config.json`` of a run folder.

    Args:
        folder: The folder.

    Returns:
        What it says.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged, or was written by a newer version of pfdl.
    """
    folder = Path(folder)
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"there is no {CONFIG} in {folder}; name a folder that a command of pfdl made.")
    content = read_json(path)
    if not isinstance(content, dict):
        content = {}
    made_with = content.get("made_with", {})
    version = re.fullmatch(r"pfdl-run-([0-9]{1,9})", str(content.get("format")))
    if version and int(version[1]) > VERSION:
        author = made_with.get("pfdl") if isinstance(made_with, dict) else None
        raise ValueError(
            f"{folder} was written by {f'pfdl {author}' if author else 'a newer pfdl'} in the format "
            f"{content['format']!r}; this is pfdl {version_of('pfdl')}, which knows it up to {VERSION}. Update pfdl."
        )
    if version and int(version[1]) == 1:  # trainings of the first version, which kept nothing else
        content = {"kind": "training", "settings": {name: content.get(name) for name in ("model", "training")}}
    kind, settings = content.get("kind"), content.get("settings")
    if not version or not isinstance(kind, str) or not isinstance(settings, dict) or not isinstance(made_with, dict):
        raise ValueError(
            f"{path} does not say what this run is (it needs format, kind, settings and made_with); restore it, "
            "or choose another folder."
        )
    return Run(folder, kind, settings, made_with)


@contextmanager
def claim(
    folder: Path, kind: str, settings: Mapping[str, Any], *, may_change: Collection[str] = ("command",)
) -> Iterator[Run]:
    """Have a run folder for oneself, new or of the same run as before.

    While it is held, other processes are refused. A lock is gone with the process that held it, however that ended.

    Args:
        folder: The run folder; made if missing.
        kind: See :class:`Run`.
        settings: All that changes results, of what JSON can hold. A folder that was made with others is refused.
        may_change: Names of settings that may differ from those of the last start, because finished work stays right
            all the same; the folder then says the new ones.

    Yields:
        What the folder says now.

    Raises:
        RunInUseError: If another process holds it.
        OSError: If it cannot be written to.
        ValueError: If the folder holds another run, something else, or what :func:`read_run` refuses.
    """
    _make_sure_it_is_a_run_or_empty(folder)
    lock = FileLock(folder / LOCK)
    _acquire(lock, folder)
    try:
        write_atomically(folder / HOLDER, str(os.getpid()))
        for litter in folder.rglob(f"{TEMPORARY}*"):
            litter.unlink(missing_ok=True)  # what a killed process was about to write
        yield _agree(folder, Run(folder, kind, json.loads(json.dumps(settings)), {}), may_change)
    finally:
        (folder / HOLDER).unlink(missing_ok=True)
        lock.release()


def set_aside(path: Path, reason: object, remedy: str = "what it held is done again") -> Path:
    """Rename a damaged file so that nothing is lost, and say so on standard error (as a warning of the log ``pfdl``).

    Args:
        path: The file.
        reason: A sentence that names it and says what is wrong, or the error that does.
        remedy: What happens now.

    Returns:
        Its new name, which ends in ``.damaged``.
    """
    aside = path.with_name(f"{path.name}.damaged")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.{number}.damaged")
    path.replace(aside)
    _log.warning("%s It is kept as %s; %s.", reason, aside.name, remedy)
    return aside


def write_table(path: Path, text: str) -> None:
    """Write a CSV table that follows from what else is in the folder; a damaged one in its place is set aside.

    Args:
        path: The file.
        text: All of it.
    """
    content = path.read_bytes() if path.exists() else None
    if content == text.encode():
        return
    if content is not None:
        try:
            lines = list(csv.reader(io.StringIO(content.decode(), newline=""), strict=True))
            if not lines or len({len(line) for line in lines}) > 1:
                raise ValueError("its lines are not of one length" if lines else "it is empty")
        except (ValueError, csv.Error) as error:
            set_aside(path, f"{path} is not a whole table ({error}).", "it is written anew")
    write_atomically(path, text)


def _make_sure_it_is_a_run_or_empty(folder: Path) -> None:
    """Before anything is written: somebody's own files are not to be mixed with a run's."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder for the run.")
    if folder.is_dir() and not (folder / CONFIG).exists():
        ours = (LOCK, HOLDER, TEMPORARY)
        if any(not path.name.startswith(ours) for path in folder.iterdir()):
            raise ValueError(f"{folder} has files in it but no run of pfdl; choose another output folder.")


def _acquire(lock: FileLock, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
            return
        except Timeout:
            holder = _holder(folder)
            if (holder is None or not _is_alive(holder)) and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            who = "another process" if holder is None else f"process {holder}"
            raise RunInUseError(f"{folder} is in use by {who}; wait for it, or choose another output folder.") from None
        except OSError as error:
            raise type(error)(f"{folder} cannot be written to ({error.strerror or error}).") from error


def _holder(folder: Path) -> int | None:
    try:
        return int((folder / HOLDER).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _is_alive(pid: int) -> bool:
    if os.name != "posix":  # elsewhere os.kill would end the process; there a lock never outlives its holder
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _agree(folder: Path, wanted: Run, may_change: Collection[str]) -> Run:
    """Write what this run is, or make sure that the folder already says just that."""
    if not (folder / CONFIG).exists():
        started = replace(wanted, made_with=describe_this_machine())
        _write(started)
        return started
    found = read_run(folder)
    if found.kind != wanted.kind:
        raise ValueError(
            f"{folder} holds a run of the kind {found.kind!r}, not {wanted.kind!r}; choose another folder."
        )
    different = [name for name in _differences(found.settings, wanted.settings) if name not in may_change]
    if different:
        raise ValueError(
            f"{folder} holds another run (it differs in {', '.join(different)}); "
            "choose another output folder, or remove this one."
        )
    _warn_of_other_versions(found)
    if found.settings != wanted.settings:
        found = replace(found, settings=wanted.settings)
        _write(found)
    return found


def _write(run: Run) -> None:
    content = {
        "format": f"pfdl-run-{VERSION}",
        "kind": run.kind,
        "settings": run.settings,
        "made_with": run.made_with,
    }
    write_atomically(run.folder / CONFIG, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _differences(first: Mapping[str, Any], second: Mapping[str, Any], depth: int = 2) -> list[str]:
    """Names of the entries that differ, with those of a group instead of the group's own."""
    names: list[str] = []
    for name in {**first, **second}:
        one, other = first.get(name), second.get(name)
        if one == other and (name in first) == (name in second):
            continue
        if depth > 1 and isinstance(one, dict) and isinstance(other, dict):
            names += _differences(one, other, depth - 1)
        else:
            names.append(name)
    return list(dict.fromkeys(names))


def _warn_of_other_versions(run: Run) -> None:
    changed = [
        f"{name} {run.made_with[name]} then, {version_of(name)} now"
        for name in ("pfdl", "torch", "numpy", "scikit-learn")
        if run.made_with.get(name) not in (None, version_of(name))
    ]
    if changed:
        _log.warning("%s goes on with other versions than it was started with: %s.", run.folder, "; ".join(changed))
