"""Change random lines of given files, one at a time, and say which changes no nearby test notices.

    python -m tests.mutate src/pfdl/decorrelation/functional.py --tests tests/decorrelation

Works on a copy of the project, so that it may run beside anything else. Each file of tests is run
once and noted with the lines that it reaches; a change is then tried on those files alone, the
fastest first. A change is what a slip of the hand might be: a comparison, an operator, a constant,
a boolean, a sum for a mean. Messages, docstrings, annotations and defaults are left alone. At most
one change in twenty should survive, and one that does should be one that changes nothing of
importance.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

ROOT = Path(__file__).parents[1]
NOT_COPIED = ("docs/results/", "docs/pictures/", "evidence/")
LEAST_SECONDS = 60
"""What a run may take at least before it counts as one that does not end."""
FEW = 16
"""Whole numbers below are changed by one, others doubled: one more or less of many is no slip."""
LOG = "last-run.txt"
REACHED = "reached.json"

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"mean": "sum", "sum": "mean", "min": "max", "max": "min", "any": "all", "all": "any"}


class Change(NamedTuple):
    """A place in a file, and what stands there instead."""

    path: Path
    lines: range
    first: int
    last: int
    before: str
    after: str


def change_comparison(node):
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
        yield node


def change_operator(node):
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        node.op = OPERATORS[type(node.op)]()
        yield node


def change_boolean(node):
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield node.operand


def change_constant(node):
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int) and abs(node.value) < FEW:
        yield ast.Constant(node.value + 1)
    elif isinstance(node.value, (int, float)):
        yield ast.Constant(2 * node.value or 1.0)


def change_name(node):
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        node.attr = NAMES[node.attr]
        yield node
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield ast.Name(NAMES[node.id])


def change_bound(node):
    """Move a bound of a slice by one."""
    if isinstance(node, ast.Slice) and isinstance(node.upper, (ast.Name, ast.Attribute)):
        node.upper = ast.BinOp(node.upper, ast.Sub(), ast.Constant(1))
        yield node


KINDS = (
    change_comparison,
    change_operator,
    change_boolean,
    change_constant,
    change_name,
    change_bound,
)


def code_of(node):
    """Yield the nodes of a tree that decide what a program does."""
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Assert)) or is_message(node):
        return
    if isinstance(node, ast.keyword) and node.arg in ("strict", "stacklevel"):
        return
    yield node
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "defaults", "kw_defaults"):
            continue
        children = field if isinstance(field, list) else [field]
        for child in children:
            if isinstance(child, ast.AST):
                yield from code_of(child)


def is_message(node):
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called == "print" or called.startswith(("warnings.", "logging.", "logger.", "_log."))


def changes_of(path):
    """Return all changes that could be made to a file."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    changes = []
    tree = ast.parse(text)
    lines = lines_of_statements(tree)
    for node in code_of(tree):
        for kind in KINDS:
            for changed in kind(copy.deepcopy(node)):
                first = starts[node.lineno - 1] + node.col_offset
                last = starts[node.end_lineno - 1] + node.end_col_offset
                before = text.encode()[first:last].decode()
                after = ast.unparse(changed)
                if not isinstance(node, ast.Slice):
                    after = f"({after})"
                changes.append(Change(path, lines[node], first, last, before, after))
    return changes


def lines_of_statements(tree):
    """Return, for each node, the lines of its statement without the body of one that has one."""
    lines = {}
    for statement in ast.walk(tree):  # those outside before those inside
        if not isinstance(statement, ast.stmt):
            continue
        body = getattr(statement, "body", None)
        end = max(body[0].lineno, statement.lineno + 1) if body else statement.end_lineno + 1
        for node in ast.walk(statement):
            lines[node] = range(statement.lineno, end)
    return lines


def copy_project(folder):
    """Copy all files of the project that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split("\0"):
        source = ROOT / name
        if name and source.is_file() and not name.startswith(NOT_COPIED):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


class FastestFirst:
    """Have pytest run files of tests in the order in which they are named."""

    def __init__(self, files):
        self.places = {name: place for place, name in enumerate(files)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: self.places[item.nodeid.partition("::")[0]])


def in_child(function, seconds):
    """Return whether a function that returns an exit status ends well in a process of its own.

    One that does not end in time does not end well.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        status = 1
        try:
            status = function()
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def call_pytest(folder, files):
    """Return the exit status of files of tests, run on the copy in a folder until one fails."""
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    paths = [str(folder / "src"), str(folder / "lab"), str(folder)]
    sys.path[:0] = paths
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    import pfdl

    assert Path(pfdl.__file__).is_relative_to(folder), "another copy of the library is imported"
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:pytest_cov"]
    return int(pytest.main([*options, *files], plugins=[FastestFirst(files)]))


def count_lines(folder, test, sources):
    """Run one file of tests and write down which lines of the sources it reaches."""
    counter = coverage.Coverage(data_file=None, config_file=False, include=sources)
    counter.start()
    status = call_pytest(folder, [test])
    counter.stop()
    data = counter.get_data()
    reached = {source: data.lines(source) or [] for source in sources}
    (folder / REACHED).write_text(json.dumps(reached))
    return status


class TestFile(NamedTuple):
    """A file of tests, the lines that it reaches, and how long it takes."""

    name: str
    reached: dict[str, list[int]]
    seconds: float


def time_tests(folder, tests, sources):
    """Return the files of tests, the fastest first; all must pass on the copy as it is."""
    timed = []
    for name in files_of_tests(folder, tests):
        started = time.monotonic()
        if not in_child(lambda: count_lines(folder, name, sources), seconds=3600):  # noqa: B023
            log = (folder / LOG).read_text()
            sys.exit(f"{name} fails without any change:\n{log}")
        reached = json.loads((folder / REACHED).read_text())
        timed.append(TestFile(name, reached, time.monotonic() - started))
    return sorted(timed, key=lambda test: test.seconds)


def files_of_tests(folder, tests):
    for name in tests:
        path = folder / name
        files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        for file in files:
            yield file.relative_to(folder).as_posix()


def is_noticed(change, folder, tests):
    """Make a change in the copy, run the tests that reach it, and take it back."""
    target = folder / change.path.resolve().relative_to(ROOT)
    reaching = [test for test in tests if set(change.lines) & set(test.reached[str(target)])]
    reaching = reaching or tests  # only in processes of their own
    seconds = max(LEAST_SECONDS, 5 * sum(test.seconds for test in reaching))
    text = target.read_bytes()
    target.write_bytes(text[: change.first] + change.after.encode() + text[change.last :])
    try:
        names = [test.name for test in reaching]
        return not in_child(lambda: call_pytest(folder, names), seconds)
    finally:
        target.write_bytes(text)


def preload():
    """Import what takes long, once, and nothing of the project's own."""
    import lightning.pytorch
    import pandas
    import sklearn.ensemble
    import torchmetrics
    import torchvision.transforms.v2

    return lightning.pytorch, pandas, sklearn.ensemble, torchmetrics, torchvision


def nearby(path):
    """Return the folder of tests that mirrors that of a file, and the other tests that name it."""
    parts = path.resolve().relative_to(ROOT / "src").with_suffix("").parts
    mirrored = ROOT / "tests" / parts[1]
    name = ".".join(parts)
    others = [
        file
        for file in (ROOT / "tests").rglob("test_*.py")
        if mirrored not in file.parents and name in file.read_text(encoding="utf-8")
    ]
    return [file.relative_to(ROOT).as_posix() for file in (mirrored, *others)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tests", nargs="+", help="by default those nearby")
    parser.add_argument("--number", type=int, default=20, help="how many changes to try")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    places = options.tests or sorted(set(chain.from_iterable(map(nearby, options.files))))
    changes = list(chain.from_iterable(map(changes_of, options.files)))
    drawn = random.Random(options.seed).sample(changes, min(options.number, len(changes)))
    os.environ["OMP_NUM_THREADS"] = "1"
    preload()
    survivors = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy_project(folder)
        sources = [str(folder / path.resolve().relative_to(ROOT)) for path in options.files]
        tests = time_tests(folder, places, sources)
        for change in drawn:
            noticed = is_noticed(change, folder, tests)
            survivors += not noticed
            verdict = "noticed" if noticed else "SURVIVES"
            place = f"{change.path}:{change.lines.start}"
            print(f"{verdict:8} {place}  {change.before}  ->  {change.after}")
            sys.stdout.flush()
    print(f"{survivors} of {len(drawn)} changes survive ({len(changes)} are possible)")


if __name__ == "__main__":
    main()
