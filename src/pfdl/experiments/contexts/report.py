"""The table on images: ours and the paper's at seven dominant ratios, and the differences to plain training."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from pfdl._internal.figures import save_figure
from pfdl._internal.files import write_atomically
from pfdl.experiments.contexts.rows import RATIOS, ROWS, Row
from pfdl.experiments.contexts.run import FULL, Images, Scale
from pfdl.experiments.pairing import paired_difference

COLUMNS = (*RATIOS, "all", "worst group")
PAPER_NOTE = (
    "Rows *in the paper* are the paper's figures **on NICO**, at 1:5 to 5:1; where the images above are others, they "
    "stand here for orientation only. The paper's ResNet-50 row is commented out in its source, and it does not say "
    "on which network it ran DWR."
)
DIFFERENCE_NOTE = (
    "## Differences to plain training of the same backbone\n\nMean ± standard error over paired seeds, in points. "
    "A method is above plain training beyond chance where the difference is well over twice its standard error."
)


def write_report(results: pd.DataFrame, scale: Scale, images: Images, folder: Path, command: str) -> list[Path]:
    """Write ``table.md`` and ``accuracy.png`` beside ``results.csv``.

    Args:
        results: See :func:`pfdl.experiments.contexts.run.run`.
        scale: How large the experiment was.
        images: Which images it was made with.
        folder: Where to write.
        command: What the user typed, for the heading.

    Returns:
        The three files.
    """
    table = "\n\n".join(
        [
            f"# Images under context shift\n\n`{command}`",
            _provenance(scale, images),
            _accuracies(results),
            PAPER_NOTE,
            DIFFERENCE_NOTE,
            _differences(results),
        ]
    )
    write_atomically(folder / "table.md", table + "\n")
    draw(results, folder / "accuracy.png")
    return [folder / name for name in ("results.csv", "table.md", "accuracy.png")]


def draw(results: pd.DataFrame, path: Path) -> None:
    """Accuracy against the dominant ratio of the test set, with standard errors."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axis = figure.subplots()
    for number, row in enumerate(_rows(results)):
        ours = _cells(results, row.key)[list(RATIOS)].to_numpy()
        errors = ours.std(axis=0, ddof=1) / len(ours) ** 0.5
        line = "--" if row.baseline is None else "-"
        axis.errorbar(RATIOS, ours.mean(axis=0), errors, label=row.title, color=f"C{number}", capsize=2, ls=line)
    axis.set_xlabel("dominant ratio of the test set (training: 5:1)")
    axis.set_ylabel("accuracy, %")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False, title="dashed: plain training", title_fontsize=8)
    save_figure(figure, path, dpi=150)


def _rows(results: pd.DataFrame) -> list[Row]:
    """The methods that were run, in the order of the table."""
    return [row for key, row in ROWS.items() if key in set(results["row"])]


def _cells(results: pd.DataFrame, key: str) -> pd.DataFrame:
    """Accuracies of one row: seeds down, test sets across."""
    return results.loc[results["row"] == key].pivot_table(index="seed", columns="test", values="accuracy")


def _provenance(scale: Scale, images: Images) -> str:
    if images.folder is None:
        source = f"Images: the built-in drawn set, {scale.per_cell} of every class in every context. **Not NICO.**"
    else:
        name = Path(images.folder).resolve().name + (f", {images.superclass}" if images.superclass else "")
        source = f"Images: the folder `{name}`."
    stem = "with a 3×3 stem" if scale.small_stem else "with its stock stem"
    how = (
        f"Trained at 5:1 from scratch, {scale.image_size}×{scale.image_size} pixels, {scale.epochs} epochs, learning "
        f"rate 0.01 and a tenth after every {scale.decay_every}, batches of {scale.batch_size}. The ResNet is "
        f"{scale.resnet} {stem}. {scale.seeds} seeds; each has its own split, shared by all methods. The epoch is "
        "chosen on validation images of the training distribution. Mean ± standard error, in percent."
    )
    if (scale.epochs, scale.resnet) != (FULL.epochs, FULL.resnet):
        how += f" **Not the paper's schedule** ({FULL.epochs} epochs, {FULL.resnet})."
    return f"{source} {how}"


def _accuracies(results: pd.DataFrame) -> str:
    lines = [f"| method | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row in _rows(results):
        ours = _cells(results, row.key)
        against_zero = [paired_difference(ours[test].tolist(), [0.0] * len(ours)) for test in COLUMNS]
        cells = [f"{mean.mean:.1f} ± {mean.standard_error:.1f}" for mean in against_zero]
        lines.append(f"| **{row.title}** | {' | '.join(cells)} |")
        if row.paper is not None:
            paper = ["–" if value is None else f"{value:.2f}" for value in row.paper]
            lines.append(f"| *in the paper* | {' | '.join([*paper, '–', '–'])} |")
    return "\n".join(lines)


def _differences(results: pd.DataFrame) -> str:
    lines = [f"| method | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row in _rows(results):
        if row.baseline is None or row.baseline not in set(results["row"]):
            continue
        ours, plain = _cells(results, row.key), _cells(results, row.baseline)
        cells = []
        for test in COLUMNS:
            difference = paired_difference(ours[test].tolist(), plain[test].tolist())
            cells.append(f"{difference.mean:+.1f} ± {difference.standard_error:.1f}")
        lines.append(f"| {row.title} − {ROWS[row.baseline].title} | {' | '.join(cells)} |")
    return "\n".join(lines)
