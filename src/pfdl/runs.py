"""The run folder, in which every command keeps its work, and with what it was made. Reading one
never runs code.

Nothing in it names a person or a machine.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pfdl._internal.files import TEMPORARY, read_json, write_json

FORMAT = "pfdl-run-2"
CONFIG = "config.json"
MANIFEST = "manifest.csv"
METRICS = "metrics.csv"
INFERRED_CONTEXTS = "contexts.csv"
WHY_CONTEXTS = "contexts.json"
"""In the folder of a training: the split, what was logged; the inferred contexts, and why they are
believed.
"""
LOCK = ".pfdl-lock"
PATIENCE = 10.0
"""Seconds to wait for the children of a killed process, such as those that load its images: they
hold its lock.
"""

PACKAGES = ("pfdl", "torch", "numpy", "scikit-learn", "lightning", "torchvision")
CHECKOUT = Path(__file__).parents[2]
"""The folder above ``src``, if the package is used from there."""

_log = logging.getLogger("pfdl")


class RunInUseError(OSError):
    """Another process works in the folder."""


@dataclass(frozen=True)
class Run:
    """Describe a run folder, as its ``config.json`` does.

    Args:
        folder: The folder.
        kind: What made it: ``"training"``, ``"sweep"``, ``"images"``, ``"mmads"``, ``"readings"``,
            ….
        settings: All that changes its results, as JSON holds it.
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
        ValueError: If it is damaged, or in another format.
    """
    folder = Path(folder)
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {CONFIG} in {folder}; name a folder that a command of pfdl made."
        )
    content = read_json(path)
    about: Any = content if isinstance(content, dict) else {}
    kind, settings, made_with = (about.get(name) for name in ("kind", "settings", "made_with"))
    is_whole = isinstance(kind, str) and isinstance(settings, dict) and isinstance(made_with, dict)
    if about.get("format") != FORMAT or not is_whole:
        raise ValueError(
            f"{path} does not say what this run is (it needs kind, settings, made_with and the"
            f" format {FORMAT!r}, and has {str(about.get('format'))[:40]!r}); restore it, choose"
            " another folder, or update pfdl if a newer version wrote it."
        )
    return Run(folder, kind, settings, made_with)


def identify(folder: Path) -> str:
    """Return a hash of what makes a run, by which its files are told from those of another one.

    Raises:
        FileNotFoundError: If the folder holds no run.
        ValueError: If its ``config.json`` is damaged.
    """
    run = read_run(folder)
    settings = {name: value for name, value in run.settings.items() if name != "command"}
    text = json.dumps([run.kind, settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def claim(
    folder: Path,
    kind: str,
    settings: Mapping[str, Any],
    *,
    may_change: Collection[str] = ("command",),
) -> Iterator[Run]:
    """Lock a run folder, creating or resuming it.

    While it is locked, other processes are refused. A lock ends with the process that holds it,
    however that ends.

    Args:
        folder: The run folder; made if missing.
        kind: See :class:`Run`.
        settings: All that changes results, of what JSON can hold. A folder with other settings is
            refused.
        may_change: Names of settings that may differ from those of the last start, because finished
            work stays valid; the folder then keeps the new ones.

    Yields:
        The run, as the folder now describes it.

    Raises:
        RunInUseError: If another process holds it.
        OSError: If it cannot be written to.
        ValueError: If the folder holds another run, something else, or what :func:`read_run`
            refuses; or if a setting is no value that JSON can hold, such as NaN.
    """
    try:
        held = json.loads(json.dumps(settings, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"a setting of the run cannot be kept as JSON ({error}); give finite numbers and words."
        ) from error
    _refuse_foreign_folder(folder)
    lock = FileLock(folder / LOCK)
    _acquire(lock, folder)
    try:
        for unfinished in folder.rglob(f"{TEMPORARY}*"):
            unfinished.unlink(missing_ok=True)  # a killed process was about to write it
        yield _create_or_resume(folder, kind, held, may_change)
    finally:
        lock.release()


def set_aside(path: Path, reason: object, remedy: str = "what it held is done again") -> Path:
    """Rename a damaged file so that nothing is lost, and log a warning.

    Args:
        path: The file.
        reason: A sentence that names the file and says what is wrong, or the error that does.
        remedy: What happens now.

    Returns:
        The new path, which ends in ``.damaged``.
    """
    aside = path.with_name(f"{path.name}.damaged")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.{number}.damaged")
    path.replace(aside)
    _log.warning("%s It is kept as %s; %s.", reason, aside.name, remedy)
    return aside


def _refuse_foreign_folder(folder: Path) -> None:
    """Raise if a folder has files but no run: a user's own files must not be mixed with those of a
    run.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder for the run.")
    if folder.is_dir() and not (folder / CONFIG).exists():
        ours = (LOCK, TEMPORARY)
        if any(not path.name.startswith(ours) for path in folder.iterdir()):
            raise ValueError(
                f"{folder} has files in it but no run of pfdl; choose another output folder."
            )


def _acquire(lock: FileLock, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            _log.warning("%s is in use; waiting %.0f seconds for it.", folder, PATIENCE)
            lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise RunInUseError(
            f"{folder} is in use by another process; wait for it, or choose another output folder."
        ) from None
    except OSError as error:
        raise type(error)(f"{folder} cannot be written to ({error.strerror or error}).") from error


def _create_or_resume(
    folder: Path, kind: str, settings: dict[str, Any], may_change: Collection[str]
) -> Run:
    """Write ``config.json``, or make sure that the one in the folder describes the same run."""
    is_new = not (folder / CONFIG).exists()
    run = Run(folder, kind, settings, describe_this_machine()) if is_new else read_run(folder)
    if run.kind != kind:
        raise ValueError(
            f"{folder} holds a run of the kind {run.kind!r}, not {kind!r}; choose another folder."
        )
    different = [name for name in _differences(run.settings, settings) if name not in may_change]
    if different:
        raise ValueError(
            f"{folder} holds another run (it differs in {', '.join(different)}); "
            "choose another output folder, or remove this one."
        )
    _warn_of_other_versions(run)
    if is_new or run.settings != settings:
        run = replace(run, settings=settings)
        about = {"kind": kind, "settings": settings, "made_with": run.made_with}
        write_json(folder / CONFIG, {"format": FORMAT, **about})
    return run


def _differences(first: Mapping[str, Any], second: Mapping[str, Any], depth: int = 2) -> list[str]:
    """List the names of settings that differ; of nested settings, the inner names."""
    names: list[str] = []
    for name in {**first, **second}:
        before = first.get(name)
        now = second.get(name)
        if before == now and (name in first) == (name in second):
            continue
        if depth > 1 and isinstance(before, dict) and isinstance(now, dict):
            names += _differences(before, now, depth - 1)
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
        _log.warning("%s was started with other versions: %s.", run.folder, "; ".join(changed))


def name_folders(folders: Sequence[Path]) -> list[str]:
    """Return short names of folders: their paths below the folder that they have in common.

    Example:
        >>> name_folders([Path("runs/a/seed-0"), Path("runs/b/seed-0"), Path("runs/erm")])
        ['a/seed-0', 'b/seed-0', 'erm']
    """
    paths = [folder.resolve() for folder in folders]
    common = os.path.commonpath([path.parent for path in paths])
    return [path.relative_to(common).as_posix() for path in paths]


def describe_this_machine() -> dict[str, Any]:
    """Return what to write beside results, as JSON can hold it."""
    versions = {name: installed for name in PACKAGES if (installed := version_of(name)) is not None}
    return {
        **versions,
        "python": platform.python_version(),
        "git_revision": git_revision(CHECKOUT),
        "hardware": {
            "cpu": _cpu(),
            "cpu_count": os.cpu_count(),
            "gpu": _gpus(),
            "platform": platform.platform(),
        },
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


@cache  # each is read from a file, and a grid asks for all of them in every run
def version_of(package: str) -> str | None:
    """Return the version of an installed package, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache  # the code that this process has loaded stays the same
def git_revision(checkout: Path) -> str | None:
    """Return the commit of a checkout, with ``-dirty`` if tracked files have changed since; None if
    there is none.
    """
    if not (checkout / ".git").exists():
        return None  # an installed package may lie in a checkout of something else
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        described = subprocess.run(
            command, cwd=checkout, capture_output=True, text=True, check=True, timeout=30
        )
        return described.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _gpus() -> list[str]:
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
