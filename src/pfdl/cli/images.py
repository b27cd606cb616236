"""The commands for images: train, evaluate, export, list. They parse, call and print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pfdl._internal.text import printable, printable_lines

if TYPE_CHECKING:
    from pfdl.data.manifest import Manifest
    from pfdl.data.sources import ContextSource
    from pfdl.vision.checkpoint import TrainedModel
    from pfdl.vision.evaluation import Evaluation

BUILT_IN = "contexts"
EVALUATION = "evaluation.json"
DATA_HELP = "A folder class/context/image or class/image; or the word 'contexts' for the built-in drawn data set."
Data = Annotated[str, typer.Argument(metavar="DIR|contexts", help=DATA_HELP)]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder that pfdl train made.")]
Superclass = Annotated[str | None, typer.Option(help="Top folder to use, where classes lie one level deeper (NICO).")]
OnBadImage = Annotated[str, typer.Option(help="error: name unusable files and stop; skip: name them and go on.")]
Device = Annotated[str, typer.Option(help="cpu or cuda; auto takes a GPU where there is one.")]


def train(
    data: Data,
    backbone: Annotated[
        str, typer.Option("--backbone", "-b", help="Such as resnet18, cn, timm/…; see 'pfdl list backbones'.")
    ] = "resnet18",
    objective: Annotated[
        str, typer.Option("--objective", "-O", help="Such as erm, pfdl, stablenet+pfdl; see 'pfdl list objectives'.")
    ] = "pfdl",
    contexts: Annotated[
        str,
        typer.Option(help="What the objective may know of contexts: hidden, known (from the folders) or inferred."),
    ] = "hidden",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PART.NAME=VALUE", help="A setting of the objective: --set pfdl.weight=0.1"),
    ] = None,
    ratio: Annotated[str, typer.Option(help="Images of the dominant context to those of each other, in training.")] = (
        "5:1"
    ),
    manifest: Annotated[
        Path | None,
        typer.Option(help="A split by 'pfdl split' instead of one from --ratio and --seed."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run folder; by default runs/train-BACKBONE-OBJECTIVE-SEED.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 160,
    decay_every: Annotated[int, typer.Option(min=1, help="Epochs until the learning rate falls to a tenth.")] = 80,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many epochs without a better validation accuracy.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=2, help="Images per step.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Of SGD, at the start.")] = 0.01,
    image_size: Annotated[int, typer.Option(min=1, help="Images are scaled and cut to this square.")] = 64,
    small_stem: Annotated[
        bool, typer.Option("--small-stem", help="ResNets: a 3×3 stem without pooling, for small images.")
    ] = False,
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Start from the library's weights (a download).")
    ] = False,
    precision: Annotated[str, typer.Option(help="32, or bf16 for mixed precision.")] = "32",
    workers: Annotated[int, typer.Option(min=0, help="Processes that load images; 0 is right for cached sets.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the split, the first weights and all that training draws.")] = 0,
    superclass: Superclass = None,
    on_bad_image: OnBadImage = "error",
    device: Device = "auto",
    export: Annotated[bool, typer.Option(help="Write an ONNX file too, where onnxruntime is installed.")] = True,
) -> None:
    """Train a classifier, then test it at seven dominant ratios and by class and context.

    The model that is kept is the best on validation images of the training distribution; test images play no part.
    After Ctrl-C or a crash the same command goes on where it was.

        pfdl train contexts --backbone cn --epochs 5

        pfdl train photos/ --backbone resnet50 --objective pfdl --patience 20
    """
    with answering_mistakes():
        from pfdl._internal.devices import resolve_device
        from pfdl.data import make_split, read_manifest
        from pfdl.vision.backbones import make_backbone
        from pfdl.vision.training import TrainingConfig, TrainingStoppedError
        from pfdl.vision.training import train as run

        device = resolve_device(device)
        config = TrainingConfig(
            backbone=backbone,
            objective=objective,
            contexts=contexts,
            objective_settings=_parse_settings(objective, setting or []),
            image_size=image_size,
            small_stem=small_stem,
            pretrained=pretrained,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            decay_every=decay_every,
            patience=patience,
            precision=precision,
            seed=seed,
        )
        folder = output or Path("runs") / f"train-{backbone.replace('/', '-')}-{objective}-{seed}"
        make_backbone(backbone, 2, image_size=image_size, small_stem=small_stem)  # a typing error shows at once
        split = None if manifest is None else read_manifest(manifest)
        source = open_source(data, superclass, on_bad_image, split)
        split = split or make_split(source, ratio=ratio, seed=seed)
        for note in split.notes:
            typer.echo(f"Note: {printable(note)}", err=True)
        try:
            run(config, source, split, folder, device=device, num_workers=workers, progress=sys.stderr.isatty())
        except TrainingStoppedError as stopped:
            typer.echo(stopped, err=True)
            raise typer.Exit(130) from None
        trained = _load(folder)
        _print(_evaluate(trained, source, split, device))
        typer.echo(folder / "model.safetensors")
        if export:
            _export_if_possible(trained)


def evaluate(
    run: Run,
    data: Data,
    manifest: Annotated[Path | None, typer.Option(help="Another split than the one the model was trained on.")] = None,
    superclass: Superclass = None,
    device: Device = "auto",
) -> None:
    """Test a trained model: accuracy at the seven ratios, by class and context, worst group, calibration.

    The test images are those of the split that is kept with the model, so none of them was trained on. The figures
    are also written to evaluation.json in the run folder.
    """
    with answering_mistakes():
        from pfdl._internal.devices import resolve_device
        from pfdl.data import read_manifest

        device = resolve_device(device)
        trained = _load(run)
        split = read_manifest(manifest or trained.folder / "manifest.csv")
        source = open_source(data, superclass, "skip", split)
        _print(_evaluate(trained, source, split, device))


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
        from pfdl.vision.export import export as write

        for path in write(_load(run), output or run / "export"):
            typer.echo(path)


def list_names(
    what: Annotated[str, typer.Argument(metavar="objectives|backbones", help="What to list.")],
    pattern: Annotated[str, typer.Argument(help="A wildcard, in quotes: 'resnet*'.")] = "*",
) -> None:
    """List the objectives or backbones that can be named; objectives can be joined: irm+pfdl."""
    import fnmatch

    from pfdl._internal.validation import check_choice

    with answering_mistakes():
        check_choice("what to list", what, ("objectives", "backbones"))
        if what == "backbones":
            from pfdl.vision.backbones import list_backbones

            names = list_backbones(pattern)
        else:
            from pfdl.objectives import list_objectives

            names = fnmatch.filter([one.name for one in list_objectives()], pattern)
        if not names:
            raise ValueError(f"no {what} match {pattern!r}; 'pfdl list {what}' shows all.")
        typer.echo("\n".join(names))


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(train)
    app.command()(evaluate)
    app.command()(export)
    app.command("list")(list_names)


@contextmanager
def answering_mistakes() -> Iterator[None]:
    """A user's mistake, a missing package and a full disk get a sentence; a mistake of ours keeps its traceback."""
    try:
        yield
    except (ImportError, OSError, ValueError) as error:
        sentence = str(error)
        if isinstance(error, ModuleNotFoundError) and error.name:  # without a name the sentence is our own
            sentence += "; install it, or pfdl[images], which brings all that images need."
        elif isinstance(error, OSError) and error.strerror:  # likewise
            sentence = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
        typer.echo(f"Error: {printable_lines(sentence)}", err=True)
        raise typer.Exit(2) from None


def open_source(data: str, superclass: str | None, on_bad_image: str, split: Manifest | None) -> ContextSource:
    """The images that a command was given; the built-in ones as the split describes them."""
    from rich.console import Console

    from pfdl._internal.progress import counting
    from pfdl.data import ContextFolder, ProceduralContexts
    from pfdl.data.sources import describe_bad_images

    if data == BUILT_IN:
        described = {} if split is None else split.parameters.get("source", {})
        try:
            return ProceduralContexts(
                **{name: described[name] for name in ("per_cell", "temptation", "seed") & described.keys()}
            )
        except TypeError as error:
            raise ValueError(f"the manifest does not describe images of the built-in set: {error}") from None
    with counting("checking images", Console(stderr=True)) as show:
        folder = ContextFolder(data, superclass=superclass, on_bad_image=on_bad_image, on_progress=show)
        bad = split is None and folder.bad_images  # reads every image; with a split each is checked when it is loaded
    if bad:
        typer.echo(printable_lines(describe_bad_images(folder.root, folder.bad_images)), err=True)
    return folder


def _parse_settings(objective: str, settings: list[str]) -> dict[str, dict[str, Any]]:
    """From ``pfdl.weight=0.1`` to a dictionary, checked before anything is read or trained."""
    from pfdl.objectives import make_objective

    parsed: dict[str, dict[str, Any]] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        part, dot, name = key.partition(".")
        if not (equals and dot and name):
            raise ValueError(f"--set is {text!r}; give PART.NAME=VALUE, such as pfdl.weight=0.1.")
        try:
            parsed.setdefault(part, {})[name] = json.loads(value)
        except ValueError:
            parsed.setdefault(part, {})[name] = value
    try:
        make_objective(objective, 2, num_classes=2, num_contexts=2, **parsed)
    except TypeError as error:
        raise ValueError(f"--set does not fit the objective {objective!r}: {error}.") from None
    return parsed


def _load(run: Path) -> TrainedModel:
    from pfdl.vision.checkpoint import load_model

    return load_model(run)


def _evaluate(trained: TrainedModel, source: ContextSource, split: Manifest, device: str) -> Evaluation:
    from pfdl._internal.files import write_json
    from pfdl.vision.evaluation import evaluate as measure

    result = measure(trained, source, split, device=device)
    write_json(trained.folder / EVALUATION, result.to_dict())
    return result


def _export_if_possible(trained: TrainedModel) -> None:
    from pfdl.vision.export import export as write

    try:
        for path in write(trained, trained.folder / "export"):
            typer.echo(path)
    except ImportError as error:
        typer.echo(f"No ONNX file: {error}", err=True)


def _print(result: Evaluation) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def show(title: str, numbers: Mapping[str, float]) -> None:
        table = Table(title=title, title_justify="left")
        for name in numbers:
            table.add_column(Text(printable(name)), justify="right", no_wrap=True)  # as it is, markup or not
        table.add_row(*(f"{100 * value:.1f}" for value in numbers.values()))
        console.print(table)

    console = Console(width=None if sys.stdout.isatty() else 200)
    if result.by_ratio:
        show("Accuracy (%) by dominant ratio of the test set", result.by_ratio)
    show(f"Accuracy (%) by class, all {result.images} test images", result.by_class)
    if result.by_context:
        show("Accuracy (%) by context", result.by_context)
    worst = result.worst_group
    where = printable(f"{worst.class_name} in {worst.context}" if worst.context else worst.class_name)
    console.print(f"Worst group: {where}, {100 * worst.accuracy:.1f} % of {worst.images} images.", markup=False)
    console.print(f"Overall {100 * result.overall:.1f} %; expected calibration error {result.calibration_error:.3f}.")
