"""Which test digits plain training gets wrong and another objective gets right: kept for the report as a picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from pfdl._internal.files import read_json, write_bytes_atomically, write_json
from pfdl.data.colored_mnist import ColoredMNIST
from pfdl_lab.colored_mnist.data import draw_digits
from pfdl_lab.colored_mnist.rows import ERM, WITHOUT_LABELS
from pfdl_lab.colored_mnist.selection import choose_by_worst_group

ANSWERS, PICTURE, COUNTS = "answers", "corrected.png", "corrected.json"
OBJECTIVE = "GroupDRO"
"""The row without environment labels that plain training is compared with."""

DIGITS_SHOWN = 24
DIGITS_IN_A_ROW = 8

Answers = dict[int, np.ndarray[Any, np.dtype[np.bool_]]]
"""The answers of the first restart to the test rows, by the step after which they were given."""


class Corrected(NamedTuple):
    """How the answers of two networks differ on the same test digits.

    Attributes:
        digits: All test digits.
        wrong: Those that plain training gets wrong.
        corrected: Of these, those that the other objective gets right.
        newly_wrong: Those that only plain training gets right.
        picture: Some of the corrected ones, as the bytes of a PNG file.
    """

    digits: int
    wrong: int
    corrected: int
    newly_wrong: int
    picture: bytes


def store_answers(folder: Path, row: str, answers: Answers) -> None:
    """Write the answers of a row, one array per step."""
    stream = io.BytesIO()
    packed: dict[str, Any] = {str(step): np.packbits(given) for step, given in answers.items()}
    np.savez_compressed(stream, **packed)
    write_bytes_atomically(folder / f"{row}.npz", stream.getvalue())


def write_corrected(output: Path, results: pd.DataFrame, data: ColoredMNIST) -> None:
    """Compare plain training with :data:`OBJECTIVE` on the test digits of the first restart, where both were trained.

    Args:
        output: The run folder, in which :func:`store_answers` wrote.
        results: What was measured, which says at which step each network was stopped.
        data: The environments of the first restart.
    """
    candidates = WITHOUT_LABELS[OBJECTIVE]
    if not {ERM.key, *(row.key for row in candidates)} <= set(results["row"]):
        return
    chosen = choose_by_worst_group(results, candidates)
    row, step = chosen.loc[chosen["restart"] == 0, ["row", "step"]].to_numpy()[0]
    truth = data.test.labels.numpy() > 0.5
    plain = _read(output / ANSWERS, ERM.key, None, len(truth))
    other = _read(output / ANSWERS, str(row), int(step), len(truth))
    if plain is None or other is None:
        return
    corrected = (plain != truth) & (other == truth)
    shown = torch.from_numpy(np.flatnonzero(corrected)[:DIGITS_SHOWN])
    full = len(shown) - len(shown) % DIGITS_IN_A_ROW or len(shown)  # rows of one length
    rows = torch.split(data.test.images[shown[:full]], DIGITS_IN_A_ROW)
    if not len(shown):
        return
    write_bytes_atomically(output / PICTURE, draw_digits(rows))
    counts = {
        "digits": len(truth),
        "wrong": int((plain != truth).sum()),
        "corrected": int(corrected.sum()),
        "newly_wrong": int(((plain == truth) & (other != truth)).sum()),
    }
    write_json(output / COUNTS, counts)


def read_corrected(output: Path) -> Corrected | None:
    """Return what :func:`write_corrected` found, or None where there is nothing, or nothing that can be read."""
    try:
        counts, picture = read_json(output / COUNTS), (output / PICTURE).read_bytes()
        digits, wrong, corrected, newly_wrong = (int(counts[name]) for name in Corrected._fields[:-1])
        return Corrected(digits, wrong, corrected, newly_wrong, picture)
    except (KeyError, OSError, TypeError, ValueError):
        return None


def _read(folder: Path, row: str, step: int | None, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Return the answers of a row after a step, or after the last one."""
    try:
        with np.load(folder / f"{row}.npz", allow_pickle=False) as stored:
            name = max(stored, key=int) if step is None else str(step)
            return np.unpackbits(stored[name], count=rows).astype(bool)
    except (KeyError, OSError, ValueError):  # a folder that an older version began has no answers
        return None
