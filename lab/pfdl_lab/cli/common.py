"""What the laboratory's commands share."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl._internal.settings import setting

if TYPE_CHECKING:
    from pfdl_lab.workers import Execution

MAX_TABLES = 4
"""So many tables of a run are printed on the terminal; all are in its folder."""

Output = Annotated[Path, typer.Option("--output", "-o", help="Run folder, with results.csv, table.md and figures.")]
Mnist = Annotated[
    Path | None,
    typer.Option(envvar="PFDL_MNIST", help="Folder of the four MNIST files. Without it: scikit-learn's digits."),
]
Rows = Annotated[
    str,
    typer.Option(
        help="With commas: keys of rows, names of objectives, and the lists paper, methods, factors (variants of "
        "PFDL), declared, grid and practice; an unknown one is answered with all keys."
    ),
]


@dataclass(frozen=True)
class Parallel:
    """How many tasks run at a time, and where.

    Args:
        jobs: How many at a time on this machine; -1 for all cores.
        backend: joblib: processes of this machine; ray: the Ray cluster that RAY_ADDRESS names, else a local one.
        gpus_per_task: With ray, the part of a GPU that each asks for: 0.1 puts ten on one GPU.
    """

    jobs: int = setting(1, short="-j")
    backend: str = setting("joblib")
    gpus_per_task: float | None = setting(None)

    def find_device(self, device: str) -> str:
        """Return the device that tasks compute on, of cpu, cuda or auto; on a cluster this machine need not have it."""
        from pfdl._internal.validation import resolve_device

        if self.backend == "ray" and (device == "cuda" or (device == "auto" and self.gpus_per_task)):
            return "cuda"
        return resolve_device(device)

    def execution(self, device: str) -> Execution:
        """Return what an experiment takes."""
        from rich.console import Console

        from pfdl_lab.workers import Execution, Workers

        device = self.find_device(device)
        on_gpu = device.startswith("cuda")
        if self.gpus_per_task is not None and self.backend != "ray":
            raise ValueError(
                "--gpus-per-task is for --backend ray; on this machine alone --jobs says how many share the GPU."
            )
        gpus = float(on_gpu) if self.gpus_per_task is None else self.gpus_per_task
        if on_gpu and not gpus:
            raise ValueError("--gpus-per-task is 0, but tasks compute on a GPU; give a part of one, or --device cpu.")
        return Execution(device, Workers(self.jobs, self.backend, gpus), Console(stderr=True), _this_command())


def _this_command() -> str:
    """Return the command line for the record; an absolute path is cut to its name, for it may name a person."""
    return shlex.join(["pfdl", *(Path(part).name if Path(part).is_absolute() else part for part in sys.argv[1:])])


def print_tables(output: Path) -> None:
    """Write the tables and plots of an experiment into its run folder, print the first, and name the files."""
    from pfdl_lab.report.blocks import Table
    from pfdl_lab.report.markdown import print_table
    from pfdl_lab.reporting import write_tables

    section, files = write_tables(output)
    for table in [block for block in section.blocks if isinstance(block, Table)][:MAX_TABLES]:
        print_table(table)
    for path in files:
        typer.echo(path)
