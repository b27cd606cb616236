"""Commands as a user types them, for the tests of the command line."""

from __future__ import annotations

import shlex

from click.testing import Result
from typer.testing import CliRunner

from pfdl.cli.main import app

FAST = "--backbone mlp --image-size 8 --epochs 1 --batch-size 8 --device cpu --no-export"


def typed(line: str, *, fails: bool = False) -> Result:
    """Run a command; it must end well, or with the exit status of a user's mistake and no traceback."""
    result = CliRunner().invoke(app, shlex.split(line))
    assert result.exit_code == (2 if fails else 0), f"pfdl {line}\n{result.output}"
    assert "Traceback" not in result.output
    return result
