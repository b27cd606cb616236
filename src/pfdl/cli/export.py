"""The command that exports a trained model: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfdl.cli.common import Run, answering_mistakes


def export(
    run: Run,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the files go; by default RUN/export.")
    ] = None,
) -> None:
    """Write a trained model as ONNX, checked against PyTorch, and as plain weights for the bare backbone.

    preprocessing.json says what to do to an image before it enters, and how to load the plain weights.
    """
    with answering_mistakes():
        from pfdl.vision.checkpoint import load_model
        from pfdl.vision.exporting import export as write

        for path in write(load_model(run), output or run / "export"):
            typer.echo(path)
