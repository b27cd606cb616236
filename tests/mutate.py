"""Change random lines of given files, one at a time, and say which changes no nearby test notices.

    python -m tests.mutate src/pfdl/decorrelation/functional.py --tests tests/decorrelation

Works on a copy of the project, so that it may run beside anything else. A change is what a slip of
the hand might be: a comparison, an operator, a constant, a boolean, a sum for a mean. Messages,
docstrings, annotations and defaults are left alone. At most one change in twenty should survive,
and one that does should be one that changes nothing of importance.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NOT_COPIED = ("docs/results/", "docs/pictures/", "evidence/")
LEAST_SECONDS = 60
"""What a run may take at least before it counts as one that does not end."""

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
    line: int
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
    elif isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node.value, float):
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
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("warnings.warn", "print")


def changes_of(path):
    """Return all changes that could be made to a file."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    changes = []
    for node in code_of(ast.parse(text)):
        for kind in KINDS:
            for changed in kind(copy.deepcopy(node)):
                first = starts[node.lineno - 1] + node.col_offset
                last = starts[node.end_lineno - 1] + node.end_col_offset
                before = text.encode()[first:last].decode()
                after = ast.unparse(changed)
                if not isinstance(node, ast.Slice):
                    after = f"({after})"
                changes.append(Change(path, node.lineno, first, last, before, after))
    return changes


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


def run_tests(folder, tests, seconds):
    """Return whether the tests pass in a copy; a run that does not end in time fails."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(call_pytest(folder, tests))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.2)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def call_pytest(folder, tests):
    import pytest

    log = os.open(folder / "last-run.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    paths = [str(folder / "src"), str(folder / "lab"), str(folder)]
    sys.path[:0] = paths
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    import pfdl

    assert Path(pfdl.__file__).is_relative_to(folder), "another copy of the library is imported"
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))


def preload():
    """Import what takes long, once, and nothing of the project's own."""
    import lightning.pytorch
    import pandas
    import sklearn.ensemble
    import torchmetrics
    import torchvision.transforms.v2

    return lightning.pytorch, pandas, sklearn.ensemble, torchmetrics, torchvision


def nearby(path):
    """Return the folder of tests that mirrors that of a file."""
    package = path.resolve().relative_to(ROOT / "src" / "pfdl").parts[0]
    return f"tests/{package}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tests", nargs="+", help="for pytest; by default the mirrored folder")
    parser.add_argument("--number", type=int, default=20, help="how many changes to try")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    tests = options.tests or sorted({nearby(path) for path in options.files})
    changes = [change for path in options.files for change in changes_of(path)]
    drawn = random.Random(options.seed).sample(changes, min(options.number, len(changes)))
    os.environ["OMP_NUM_THREADS"] = "1"
    preload()
    survivors = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy_project(folder)
        started = time.monotonic()
        if not run_tests(folder, tests, seconds=3600):
            sys.exit("the tests fail without any change:\n" + (folder / "last-run.txt").read_text())
        seconds = max(LEAST_SECONDS, 5 * (time.monotonic() - started))
        for change in drawn:
            target = folder / change.path.resolve().relative_to(ROOT)
            text = target.read_bytes()
            target.write_bytes(text[: change.first] + change.after.encode() + text[change.last :])
            survives = run_tests(folder, tests, seconds)
            target.write_bytes(text)
            survivors += survives
            verdict = "SURVIVES" if survives else "noticed"
            print(f"{verdict:8} {change.path}:{change.line}  {change.before}  ->  {change.after}")
            sys.stdout.flush()
    print(f"{survivors} of {len(drawn)} changes survive ({len(changes)} are possible)")


if __name__ == "__main__":
    main()
