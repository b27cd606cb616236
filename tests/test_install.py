"""What people are told to install exists: no package of these names is on an index."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMAND = re.compile(r"pip install ([^\n`]*)")
OURS = re.compile(r"^pfdl(-lab)?(\[[\w,]*\])?$")
FOLDERS = ("docs", "examples", "lab", "src")


def commands():
    files = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile")]
    for folder in FOLDERS:
        for pattern in ("*.md", "*.py", "*.ipynb"):
            files += (ROOT / folder).rglob(pattern)
    for file in files:
        if file.exists():
            for found in COMMAND.finditer(file.read_text(encoding="utf-8")):
                yield file, found[1]


def names_ours(arguments):
    words = (word.strip("'\".,;:)") for word in arguments.split("#")[0].split())
    return any(OURS.match(word) for word in words)


def test_no_command_installs_a_name_that_is_on_no_index():
    wrong = [f"{file}: {arguments}" for file, arguments in commands() if names_ours(arguments)]
    assert not wrong


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("pfdl", True),
        ("'pfdl[images]'", True),
        ("torch pfdl-lab  # laboratory", True),
        ("-e '.[images]' -e ./lab  # pfdl", False),
        ("dist/pfdl-0.2.0-py3-none-any.whl", False),
    ],
)
def test_commands_that_name_the_package_are_seen(arguments, expected):
    assert names_ours(arguments) == expected
