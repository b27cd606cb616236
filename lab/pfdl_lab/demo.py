"""``pfdl demo``: a shortcut found, shown, repaired and proved; a table that leaks; the paper in
small; and one page about them.
"""

from __future__ import annotations

import base64
import contextlib
import io
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from markupsafe import Markup
from PIL import Image
from rich.console import Console
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from typer.main import get_command

from pfdl._internal.files import write_atomically
from pfdl.data import write_photos
from pfdl.data.mmads import SETTINGS
from pfdl.data.photos import SETS
from pfdl.report.page import blocks, figure, render
from pfdl.tabular import LeakScreen, LeakWarning
from pfdl_lab.colored_mnist import run as colored_mnist
from pfdl_lab.images import run as images
from pfdl_lab.images.config import ImagesConfig
from pfdl_lab.images.data import ImageData
from pfdl_lab.mmads import run as mmads
from pfdl_lab.reporting import write_report
from pfdl_lab.workers import Execution

TITLE = "Shortcuts: found, shown, repaired, proved"
COMMAND = "pfdl demo"
JOBS, MAX_TRAININGS = -1, 4
"""At a time, one for each core; fewer trainings, as each needs more than a gigabyte of memory."""

SMALL = shlex.split("--backbone small --image-size 32 --epochs 15 --no-export")
BALANCED = shlex.split("--contexts inferred --sampler groups --no-export")
PLAIN = "runs/erm"
REPAIRED = "runs/repaired"
SHOWN = 8
"""Pictures in a row."""

TABLES = replace(mmads.QUICK, cells=(mmads.FIGURE_CELL,), settings=SETTINGS[:1], seeds=4)
"""The paper's own setting, in the cell of its figure."""

DIGITS = replace(colored_mnist.QUICK, rows=("erm", "irm", "irm-pfdl-1"))
IMAGES = ImagesConfig(
    rows=("erm", "pfdl"),
    seeds=3,
    backbone="small",
    image_size=32,
    epochs=12,
    decay_every=8,
    batch_size=32,
)
"""Large enough that plain training learns something and loses it where backgrounds change."""


@dataclass(frozen=True)
class Photos:
    """What came of the photographs.

    Args:
        folder: Where the photographs and both models are.
        said: The first lines of the diagnosis of the plain model.
        predictions: The predicted class of each test image, by model and path.
    """

    folder: Path
    said: Sequence[str]
    predictions: pd.DataFrame

    def accuracy(self, model: str) -> dict[str, float]:
        """Return the accuracy of a model in percent, on all test images and by the ground."""
        right = self.predictions[model] == self.predictions["label"]
        is_usual = self.predictions["usual"]
        return {
            "all": 100 * right.mean(),
            "on the usual ground": 100 * right[is_usual].mean(),
            "on the other ground": 100 * right[~is_usual].mean(),
        }

    @property
    def finding(self) -> str:
        """What was repaired, in one sentence."""
        before, after = (self.accuracy(model)["all"] for model in (PLAIN, REPAIRED))
        return (
            f"Plain training is right on {before:.0f} % of the test images, training with balanced"
            f" inferred contexts on {after:.0f} %."
        )


@dataclass(frozen=True)
class Leak:
    """What came of the table: what the screen says, and R² with and without the column."""

    verdict: str
    with_column: float
    without: float


@dataclass(frozen=True)
class Claim:
    """A claim of the paper: what it says, what came of it here, and by its own protocol."""

    about: str
    paper: str
    in_small: str
    in_full: str


def run(folder: Path, console: Console) -> tuple[Path, list[str]]:
    """Run what is missing of the demonstration, each part in folders of its own, and write the
    page.

    Args:
        folder: Where the runs and ``demo.html`` go. An interrupted demonstration resumes there.
        console: Where to say what is being done.

    Returns:
        The page, and a sentence for each part.

    Raises:
        ValueError: If a folder holds another run.
    """
    console.print("1 of 3: photographs whose ground gives the class away")
    photos = show_photos(folder / "photographs", console)
    console.print("2 of 3: a table with a column that was written after the outcome")
    leak = show_leak()
    console.print("3 of 3: the paper's three experiments in small")
    claims = rerun_paper(folder, console)
    page = folder / "demo.html"
    write_atomically(page, build_page(photos, leak, claims))
    return page, [photos.finding, leak.verdict.partition(". ")[0] + "."]


def show_photos(folder: Path, console: Console) -> Photos:
    """Train, diagnose, repair and test a model, by the commands that a user would type."""
    photos = folder / "photos"
    if not photos.is_dir():
        write_photos(photos)
    plain, repaired = folder / PLAIN, folder / REPAIRED
    found, proved = folder / "found.html", folder / "proved.html"
    _type(console, folder, "train", photos, *SMALL, "-o", plain)
    said = _type(console, folder, "diagnose", plain, photos, "-o", found)
    _type(console, folder, "train", photos, "--config", plain, *BALANCED, "-o", repaired)
    _type(console, folder, "diagnose", plain, photos, "--compare", repaired, "-o", proved)
    return Photos(folder, said.splitlines()[:2], _predict(folder, console))


def show_leak() -> Leak:
    """Add a column that was recorded after the outcome to a real table, and screen it."""
    table = load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": "outcome"})
    rng = np.random.default_rng(0)
    visits = table["outcome"] / 12 + rng.normal(0, 4, len(table))
    table["visits"] = visits.clip(0).round()
    columns = table.drop(columns="outcome")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)  # the verdict says it
        screen = LeakScreen().fit(columns, table["outcome"])
    scores = [
        float(cross_val_score(LinearRegression(), used, table["outcome"]).mean())
        for used in (columns, columns.drop(columns="visits"))
    ]
    return Leak(screen.verdict_, *scores)


def rerun_paper(folder: Path, console: Console) -> list[Claim]:
    """Rerun the paper's three experiments in small, and write the page about them."""
    execution = Execution(JOBS, console=console, command=COMMAND)
    parts = [folder / name for name in ("mmads", "colored-digits", "images")]
    of_tables = mmads.run(TABLES, parts[0], execution)
    of_digits = colored_mnist.run(DIGITS, parts[1], folder=None, execution=execution)
    at_once = min(MAX_TRAININGS, joblib.effective_n_jobs(JOBS))
    shapes = [ImageData("shapes")]
    of_images = images.run(IMAGES, shapes, parts[2], replace(execution, jobs=at_once))
    made = dict(zip(parts, (of_tables, of_digits, of_images), strict=True))
    write_report(parts, folder / "paper.html", title="The paper in small", tables=made)
    return [_claim_of_tables(of_tables), _claim_of_digits(of_digits), _claim_of_images(of_images)]


def build_page(photos: Photos, leak: Leak, claims: Sequence[Claim]) -> str:
    """Return the page as HTML."""
    introduction = [
        blocks.text(
            "A model that uses a shortcut looks right until the data shifts. Below, a model that"
            " looks at the ground instead of the animal, and a table with a column from the future."
        )
    ]
    sections = [
        ("A model that learnt the ground", _of_photos(photos)),
        ("A table that leaks", _of_leak(leak)),
        ("The paper in small", _of_paper(claims)),
        ("With data of your own", _next_commands()),
    ]
    return render(TITLE, introduction, sections, "This file needs nothing from the network.")


def _of_photos(photos: Photos) -> list[Markup]:
    wrong = photos.predictions[photos.predictions[PLAIN] != photos.predictions["label"]]
    in_training = [
        (path, path.parent.name)
        for animal in ("camel", "zebra")
        for path in sorted((photos.folder / "photos" / "train" / animal).iterdir())[: SHOWN // 2]
    ]
    mistaken = [
        (path, f"{label}, taken for {prediction}")
        for path, label, prediction in _spread(wrong)[["path", "label", PLAIN]].to_numpy()
    ]
    columns = ["plain training", "balanced inferred contexts"]
    shares = [photos.accuracy(model) for model in (PLAIN, REPAIRED)]
    rows = [
        (where, [figure(share[where], 0, missing="not known") for share in shares])
        for where in shares[0]
    ]
    answer, reason, *_ = photos.said
    return [
        blocks.text(
            "In training 19 of 20 camels stand on sand and 19 of 20 zebras on grass; in the test as"
            " often not. The pictures are drawn so that the effect shows."
        ),
        blocks.gallery("Training images", [_picture(*one) for one in in_training]),
        blocks.command(shlex.join(["pfdl", "train", "photos", *SMALL, "-o", PLAIN])),
        blocks.command(f"pfdl diagnose {PLAIN} photos"),
        blocks.text(reason, "yes" if answer.endswith("YES") else "unclear"),
        blocks.gallery("Test images that it gets wrong", [_picture(*one) for one in mistaken]),
        blocks.text(
            "Nobody labelled the ground. pfdl infers it, and draws every animal on every ground"
            " equally often:"
        ),
        blocks.command(
            shlex.join(["pfdl", "train", "photos", "--config", PLAIN, *BALANCED, "-o", REPAIRED])
        ),
        blocks.table("Accuracy on the test images (%)", "test images", columns, rows),
        blocks.text(
            "Both models side by side, with pictures of every group: photographs/proved.html beside"
            " this page."
        ),
    ]


def _of_leak(leak: Leak) -> list[Markup]:
    found, _, meaning = leak.verdict.partition(". ")
    rows = [
        ("with visits", [figure(leak.with_column, 2, missing="not run")]),
        ("without", [figure(leak.without, 2, missing="not run")]),
    ]
    return [
        blocks.text(
            "442 patients, ten measurements, and the progression of their diabetes a year later"
            " (scikit-learn's data). We added visits, a column that was recorded in that year."
        ),
        blocks.command("python examples/leaking_table.py"),
        blocks.command("pfdl diagnose patients.csv --target progression"),
        blocks.text(f"{found}.", "yes"),
        blocks.text(meaning),
        blocks.table(
            "Cross-validated R² of least squares",
            "columns",
            ["R²"],
            rows,
            ["In use nobody knows next year's visits: the second figure is the truth."],
        ),
    ]


def _of_paper(claims: Sequence[Claim]) -> list[Markup]:
    rows = [(claim.about, [claim.paper, claim.in_small, claim.in_full]) for claim in claims]
    return [
        blocks.text(
            "PFDL, the paper's method, trains a network so that its features cannot be predicted"
            " from each other. In small, as here, chance is large; the last column is what the"
            " published protocols gave."
        ),
        blocks.table(
            "What holds",
            "experiment",
            ["the paper", "here, in small", "by its protocol"],
            rows,
            ["All tables of these small runs: paper.html beside this page."],
        ),
    ]


def _next_commands() -> list[Markup]:
    return [
        blocks.text("A folder of images, class/image or a table with paths and labels:"),
        blocks.command("pfdl train photos/ -o runs/mine"),
        blocks.command("pfdl diagnose runs/mine photos/"),
        blocks.text("A table of numbers:"),
        blocks.command("pfdl diagnose table.csv --target y"),
        blocks.text("The paper's tables:"),
        blocks.command("pfdl reproduce --help"),
    ]


def _claim_of_tables(table: pd.DataFrame) -> Claim:
    errors = table[table["metric"] == "beta_v_error"].groupby("method")["value"].mean()
    return Claim(
        "Tables selected with a bias: what columns without effect get (should be 0)",
        "PFDL 0.027, least squares 0.070",
        f"PFDL {errors['PFDL']:.3f}, least squares {errors['OLS']:.3f}",
        "not reproduced: PFDL equals least squares",
    )


def _claim_of_digits(table: pd.DataFrame) -> Claim:
    ends = table[table["step"] == table.groupby("row")["step"].transform("max")]
    accuracy = ends.groupby("row")["test_accuracy"].mean()
    return Claim(
        "Digits whose colours are reversed in the test: accuracy (%)",
        "IRM 66.9, IRM + PFDL 67.5",
        f"IRM {accuracy['irm']:.1f}, IRM + PFDL {accuracy['irm-pfdl-1']:.1f}",
        "not reproduced: PFDL adds a tenth of that",
    )


def _claim_of_images(table: pd.DataFrame) -> Claim:
    last = table[(table["epoch"] == table["epoch"].max()) & (table["test"] == "1:5")]
    accuracy = last.groupby("row")["value"].mean()
    return Claim(
        "Images whose contexts are reversed in the test: accuracy (%)",
        "PFDL ahead, also at the end of a training",
        f"plain training {accuracy['erm']:.1f}, PFDL {accuracy['pfdl']:.1f}",
        "ahead early, with and without a shift; at the end at most about a point",
    )


def _predict(folder: Path, console: Console) -> pd.DataFrame:
    """Return the class that each model gives each test image, its label and whether its ground is
    the usual one.
    """
    images = folder / "photos" / "test"
    paths = sorted(images.glob("*/*"))
    count, share = SETS["test"]
    table = pd.DataFrame({"path": paths})
    table["label"] = [path.parent.name for path in paths]
    table["usual"] = [int(path.stem) < share * count for path in paths]
    for model in (PLAIN, REPAIRED):
        answers = folder / f"{Path(model).name}.csv"
        _type(console, folder, "predict", folder / model, images, "-o", answers)
        predicted = pd.read_csv(answers)
        of_image = dict(
            zip(map(_last_two, predicted["path"]), predicted["prediction"], strict=True)
        )
        table[model] = [of_image[_last_two(path)] for path in paths]
    return table


def _last_two(path: str | Path) -> tuple[str, ...]:
    return Path(path).parts[-2:]


def _type(console: Console, folder: Path, *words: str | Path) -> str:
    """Run a command of pfdl, shown as a user in a folder would type it; return what it prints."""
    from pfdl.cli.main import app

    typed = [str(word) for word in words]
    shown = [str(word.relative_to(folder)) if isinstance(word, Path) else word for word in words]
    console.print(f"  pfdl {shlex.join(shown)}", style="dim", highlight=False, soft_wrap=True)
    printed, problems = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(problems):
        code = get_command(app).main(typed, standalone_mode=False)
    if code:
        raise ValueError(problems.getvalue().strip().rpartition("\n")[2])
    return printed.getvalue()


def _spread(table: pd.DataFrame) -> pd.DataFrame:
    """Return as many lines as a row of pictures has, of both classes."""
    return table.groupby("label").head(SHOWN // 2)


def _picture(path: Path, words: str) -> tuple[str, str, str]:
    """Return a PNG file in base 64, what it shows, and the words below it."""
    stream = io.BytesIO()
    Image.open(path).resize((96, 96)).save(stream, format="PNG", optimize=True)
    return base64.b64encode(stream.getvalue()).decode(), words, words
