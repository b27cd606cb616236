"""With what a result was made: versions, revision, hardware, time. Nothing that names a person or a machine."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("pfdl", "torch", "numpy", "scikit-learn", "lightning", "torchvision")
CHECKOUT = Path(__file__).parents[3]
"""The folder above ``src``, if the package is used from there."""


def describe_this_machine() -> dict[str, Any]:
    """Return what to write beside results, as JSON can hold it."""
    versions = {name: found for name in PACKAGES if (found := version_of(name)) is not None}
    return {
        **versions,
        "python": platform.python_version(),
        "git_revision": git_revision(CHECKOUT),
        "hardware": {"cpu": _cpu(), "cpu_count": os.cpu_count(), "gpu": _gpus(), "platform": platform.platform()},
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
    """Return the commit of a checkout, with ``-dirty`` if tracked files have changed since; None if there is none."""
    if not (checkout / ".git").exists():  # an installed package may lie in a checkout of something else
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
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
