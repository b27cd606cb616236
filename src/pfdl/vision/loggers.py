"""Where a training logs beside its own metrics.csv: TensorBoard, Weights & Biases, MLflow, through Lightning."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from pfdl._internal.validation import check_choice

LOGGERS = {"csv": None, "tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
"""Names, and the package that each needs; ``csv`` is the table that every run folder has anyway."""


def check_loggers(names: Sequence[str]) -> None:
    """Raise unless all loggers are known and installed.

    Raises:
        ValueError: If there is no such logger.
        ImportError: If its package is not installed.
    """
    for name in names:
        check_choice("logger", name, LOGGERS)
        package = LOGGERS[name]
        if package is not None and find_spec(package) is None:
            raise ModuleNotFoundError(
                f"the logger {name!r} needs the package {package}, which is not installed: pip install {package}."
            )


def make_loggers(names: Sequence[str] | None, folder: Path) -> list[Logger]:
    """Return Lightning's loggers for a run folder.

    MLflow logs to the server that ``MLFLOW_TRACKING_URI`` names, else to ``mlflow.db`` in the run folder (it refuses
    plain folders since version 3). ``WANDB_MODE=offline`` keeps Weights & Biases on this machine.

    Args:
        names: Keys of ``LOGGERS``; None for TensorBoard where it is installed.
        folder: The run folder; its name is that of the run.
    """
    if names is None:
        names = ["tensorboard"] if find_spec("tensorboard") is not None else []
    check_loggers(names)
    makers: dict[str, Callable[[], Logger]] = {
        "tensorboard": lambda: TensorBoardLogger(folder, name="", version="tensorboard"),
        "wandb": lambda: WandbLogger(name=folder.name, save_dir=folder, project="pfdl"),
        "mlflow": lambda: MLFlowLogger(
            experiment_name="pfdl",
            run_name=folder.name,
            tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve() / 'mlflow.db'}",
            artifact_location=None if "MLFLOW_TRACKING_URI" in os.environ else (folder.resolve() / "mlflow").as_uri(),
        ),
    }
    return [makers[name]() for name in dict.fromkeys(names) if name in makers]


def close_loggers(loggers: Sequence[Logger], status: str) -> None:
    """Write what loggers still hold, and end what would take in the next training too: a run of Weights & Biases."""
    for logger in loggers:
        logger.finalize(status)
        if isinstance(logger, WandbLogger):
            logger.experiment.finish()
