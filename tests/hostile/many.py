"""Feed hostile content to every loader, and report whatever is not a clean answer.

Usage: python -m tests.hostile.many [--cases N] [--seed S] [TARGET…]

``--cases`` is the number for a target of share 1. Each target works in a process of its own, forked after what is slow:
a crash of the interpreter, a hang and a memory bomb end that process and are findings, with the case that caused them.
What is printed is JSON: the number of cases and the findings by target. The exit status is 1 if there are any.

The tests run some hundreds of cases; for a hundred thousand: python -m tests.hostile.many --cases 8000
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.hostile import file_targets  # noqa: F401, it enters its targets in the list
from tests.hostile.registry import TARGETS, Target, clean
from tests.hostile.state_targets import made_state

SECONDS = 60
"""For one case."""
MEMORY = 4 << 30
"""Bytes that a case may take."""


def attack(name: str, cases: int, number: int, scratch: Path) -> dict[str, Any]:
    """Run the cases of a target in a process of its own, and say what became of it."""
    folder, last, report = scratch / name, scratch / f"{name}.last", scratch / f"{name}.json"
    folder.mkdir()
    if (pid := os.fork()) == 0:
        status = 1
        sys.settrace(None)  # nobody would save the lines it counts
        try:
            status = _run(TARGETS[name], folder, last, report, cases, number)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if ended < 0:
        return {"cases": None, "findings": [f"{signal.Signals(-ended).name} with {last.read_text()}"]}
    found: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {"cases": None, "findings": ["?"]}
    return found


def _run(target: Target, folder: Path, last: Path, report: Path, cases: int, number: int) -> int:
    done, findings = 0, []
    _limit_memory()

    def one(*drawn: Any) -> None:
        nonlocal done
        done += 1
        last.write_text(shown(drawn)[:2000], errors="replace")
        signal.alarm(SECONDS)
        try:
            target.check(folder, *drawn)
        finally:
            signal.alarm(0)
            clean(folder)

    for example in target.examples():
        try:
            one(*example)
        except Exception:
            findings.append(f"{traceback.format_exc(limit=-6)} with {last.read_text()}")
    quiet = settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=True,
    )
    try:
        quiet(seed(number)(given(st.tuples(*target.strategies()))(lambda drawn: one(*drawn))))()
    except BaseException as error:
        for each in getattr(error, "exceptions", [error]):  # a group if there are several kinds
            each.__notes__ = []  # the whole case, tensors and all; the last one, the smallest, is shown in short
            findings.append("".join(traceback.format_exception(each, limit=-8)) + f" with {last.read_text()}")
    report.write_text(json.dumps({"cases": done, "findings": findings}))
    return 0


def shown(value: Any) -> str:
    """A case in short: of tensors the shape and kind."""
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {value.dtype}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(shown, value)) + "]"
    return repr(value)[:200]


def _limit_memory() -> None:
    """Let a bomb be a MemoryError instead of the end of the machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"by default all: {', '.join(TARGETS)}")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # and so no other threads, which a fork would lose
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        os.environ["PFDL_HOSTILE_SCRATCH"] = name
        made_state()  # slow, and inherited by all
        settings(max_examples=1, database=None)(given(st.text())(lambda _: None))()  # hypothesis reads all our modules
        reports = {
            each: attack(each, max(1, round(options.cases * TARGETS[each].share)), options.seed, Path(name))
            for each in options.targets or TARGETS
        }
    json.dump(reports, sys.stdout, indent=1)
    return 1 if any(report["findings"] for report in reports.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
