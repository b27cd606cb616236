"""How every run was made: command, versions, revision, hardware, and its settings, among them the seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pfdl.runs import Run
from pfdl_lab.report.blocks import Block, Heading, Listing, Section, Text

TITLE = "How the runs were made"
_FIRST = ("command", "started", "pfdl", "git_revision", "python", "torch")
_NAMES = {"git_revision": "git revision", "cpu_count": "cores", "gpu": "GPU", "cpu": "CPU"}


def build(runs: Sequence[Run]) -> Section:
    """Build one section with a part for each run."""
    blocks: list[Block] = [Text("What is needed to reproduce these results. Settings are as config.json has them.")]
    for run in runs:
        blocks += [
            Heading(f"{run.folder} ({run.kind})"),
            Listing("Command, versions, hardware", "\n".join(_facts(run))),
            Listing("Settings", json.dumps(run.settings, indent=2, ensure_ascii=False)),
        ]
    return Section(TITLE, blocks)


def _facts(run: Run) -> list[str]:
    flat = {"command": run.settings.get("command")}
    for name, value in run.made_with.items():
        flat |= value if isinstance(value, Mapping) else {name: value}
    order = sorted(flat, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return [f"{_NAMES.get(name, name)}: {_words(flat[name])}" for name in order]


def _words(value: Any) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
