"""One thought a line: what linters do not count and readers do, over all of the library.

Branches are those of cyclomatic complexity with booleans, conditional expressions and the loops of
comprehensions. Functions that break a rule are named here; the list may shrink, not grow.
"""

import ast
from pathlib import Path

import pytest

import pfdl

HERE = Path(pfdl.__file__).parent
MOST_BRANCHES = 12
EXCEPTIONS = {
    # A table of two dimensions
    "a comprehension in a comprehension": {"diagnosis/reliance.py goes_together"},
}

ONE_BRANCH = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.Assert, ast.IfExp)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def branches(function):
    total = 1
    for node in ast.walk(function):
        if isinstance(node, ONE_BRANCH):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
    return total


def has_within(node, kinds):
    return any(isinstance(inner, kinds) for inner in ast.walk(node) if inner is not node)


def has_too_many_branches(node):
    return isinstance(node, FUNCTIONS) and branches(node) > MOST_BRANCHES


def is_nested_comprehension(node):
    if not isinstance(node, COMPREHENSIONS):
        return False
    return len(node.generators) > 1 or has_within(node, COMPREHENSIONS)


def is_chain_of_conditions(node):
    return isinstance(node, ast.IfExp) and has_within(node, ast.IfExp)


def is_packed(node):
    """Whether it is ``a, b = x, y`` of values that are not made alike."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Tuple):
        return False
    if not isinstance(node.value, ast.Tuple):
        return False
    return len({form(value) for value in node.value.elts}) > 1


def form(node):
    """How a value is made, whatever its names and numbers: of ``f(x, 1)`` and ``g(y, 2)`` alike."""
    return " ".join(type(part).__name__ for part in ast.walk(node))


RULES = {
    f"more than {MOST_BRANCHES} branches": has_too_many_branches,
    "a comprehension in a comprehension": is_nested_comprehension,
    "a chain of conditional expressions": is_chain_of_conditions,
    "a tuple for a tuple of unlike things": is_packed,
}


def places(rule):
    """Yield file and function of all that breaks a rule."""
    for path in sorted(HERE.rglob("*.py")):
        file = path.relative_to(HERE).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from (f"{file} {name}" for name, node in named_nodes(tree) if rule(node))


def named_nodes(node, name=""):
    """Yield all nodes with the name of the function or class that they stand in."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            inner = f"{name}.{child.name}".lstrip(".")
        yield inner, child
        yield from named_nodes(child, inner)


@pytest.mark.parametrize("what", RULES)
def test_the_library_has_one_thought_a_line(what):
    allowed = EXCEPTIONS.get(what, set())
    assert sorted(set(places(RULES[what])) - allowed) == []
