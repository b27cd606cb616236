"""What ``pfdl diagnose`` says of models that rely on a real shortcut, and of models that do not.

    python -m pfdl_lab.shortcuts.verdicts --leaves leaves/ --pacs pacs/ --out verdicts.csv

Each set of real photographs has a training mixture of 10:1, a usual test of the same mixture and a
broken one of the reversed mixture; its control has no association. A model is trained and diagnosed
on the command line, without a word on contexts; how well it does where the shortcut is broken is
measured and not shown to it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from pfdl.cli.main import app
from pfdl.vision import read_evaluations

LEAST_LOSS = 0.10
"""A model relies on the shortcut if its accuracy falls by so much where the shortcut is broken."""

RATIO = 10
BACKBONES = ("readout", "mlp")
TWO_CONTEXTS = {
    "styles": {
        "dog": ("cartoon", "art_painting"),
        "elephant": ("cartoon", "art_painting"),
        "giraffe": ("art_painting", "cartoon"),
        "horse": ("art_painting", "cartoon"),
    },
    "photos": {
        "dog": ("photo", "art_painting"),
        "horse": ("photo", "art_painting"),
        "giraffe": ("art_painting", "photo"),
        "elephant": ("art_painting", "photo"),
    },
}
"""Sets of PACS: of each class the usual context and the other one."""


@dataclass(frozen=True)
class RealSet:
    """Tables of one set, each with path, label and context.

    Attributes:
        name: Of the set; a control's ends in ``-control``.
        root: The folder of the images.
        train: The training images.
        usual: The test images of the same mixture.
        broken: The test images of the reversed mixture.
    """

    name: str
    root: Path
    train: pd.DataFrame
    usual: pd.DataFrame
    broken: pd.DataFrame


def leaves(root: Path) -> Iterator[RealSet]:
    """Yield healthy and sick leaves, photographed in a laboratory or in the field, and the
    control.
    """
    for prefix, name in (("", "leaves"), ("control_", "leaves-control")):
        parts = [
            pd.read_csv(root / f"{prefix}{part}_true.csv") for part in ("train", "usual", "broken")
        ]
        yield RealSet(name, root, *parts)


def two_contexts(
    name: str, root: Path, contexts: Mapping[str, tuple[str, str]], seed: int
) -> Iterator[RealSet]:
    """Yield a set of some classes, each with its usual and its other context, and the control.

    Three quarters of what the smallest group allows are trained on, the rest is tested on; both
    tests have the same number of images.
    """
    pools = {
        (label, place): sorted((root / label / place).glob("*.jpg"))
        for label, places in contexts.items()
        for place in places
    }
    most = min(map(len, pools.values()))
    trained, tested = int(0.75 * most), most - int(0.75 * most)
    for suffix, share in (("", RATIO / (RATIO + 1)), ("-control", 0.5)):
        chance = np.random.default_rng(seed)
        tables: dict[str, list[tuple[str, str, str]]] = {"train": [], "usual": [], "broken": []}
        for (label, place), files in pools.items():
            own = share if place == contexts[label][0] else 1 - share
            order = chance.permutation(len(files))
            sizes = {"train": own * trained, "usual": own * tested, "broken": (1 - own) * tested}
            offsets = {"train": 0, "usual": trained, "broken": trained}
            for part, size in sizes.items():
                chosen = order[offsets[part] : offsets[part] + max(1, round(size))]
                tables[part] += [
                    (files[number].relative_to(root).as_posix(), label, place)
                    for number in chosen.tolist()
                ]
        columns = ["path", "label", "context"]
        parts = [pd.DataFrame(rows, columns=columns) for rows in tables.values()]
        yield RealSet(f"{name}{suffix}", root, *parts)


def judge(one: RealSet, backbone: str, folder: Path, options: Sequence[str] = ()) -> dict[str, str]:
    """Train a model on a set, measure it, and return what it does and what is said of it."""
    folder.mkdir(parents=True, exist_ok=True)
    own, known, broken = (folder / f"{name}.csv" for name in ("own", "known", "broken"))
    both = pd.concat([one.train.assign(split="train"), one.usual.assign(split="test")])
    both.drop(columns="context").to_csv(own, index=False)
    both.to_csv(known, index=False)
    one.broken[["path", "label"]].to_csv(broken, index=False)
    run, where = folder / "run", f"--set image_root={one.root}"
    settings = " ".join(options) or f"--features lite0 --backbone {backbone} --set select=last"
    _type(f"train {own} {where} {settings} --no-export --device cpu -o {run}")
    _type(f"evaluate {run} {broken} {where} --name broken --device cpu")
    measured = read_evaluations(run)
    usual, reversed_ = measured["test"].overall, measured["broken"].overall
    said = {}
    for name, table in (("own test", own), ("broken test", broken), ("true contexts", known)):
        page = folder / f"{name.replace(' ', '-')}.html"
        words = _type(f"diagnose {run} {table} {where} --device cpu -o {page}")
        (answer,) = re.findall(r"rely on the context\? (YES|NO|CANNOT TELL)", words)
        forecast = re.search(r"([0-9.]+) ± ([0-9.]+) % if the mixture is reversed", words)
        said[name] = answer
        said[f"forecast, {name}"] = " ± ".join(forecast.groups()) if forecast else "none"
    figures = {"usual": f"{100 * usual:.1f}", "broken": f"{100 * reversed_:.1f}"}
    relies = "yes" if usual - reversed_ >= LEAST_LOSS else "no"
    return {"set": one.name, "backbone": backbone, "relies": relies, **figures, **said}


def summarise(rows: pd.DataFrame) -> list[str]:
    """Return what the verdicts come to, in sentences."""
    relies = rows["relies"] == "yes"
    lines = []
    for name in ("own test", "broken test", "true contexts"):
        right, wrong = (int((rows[name][side] == "YES").sum()) for side in (relies, ~relies))
        false_comfort = int((rows[name][relies] == "NO").sum())
        lines.append(
            f"{name}: YES on {right} of {int(relies.sum())} models that rely and on {wrong} of"
            f" {int((~relies).sum())} that do not; NO on {false_comfort} that rely."
        )
    return lines


def main() -> None:
    """Judge the models, write a table and print what it comes to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--leaves", type=Path)
    parser.add_argument("--pacs", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backbones", nargs="+", default=list(BACKBONES))
    parser.add_argument("--work", type=Path, default=Path("runs/verdicts"))
    parser.add_argument("--out", type=Path, default=Path("verdicts.csv"))
    asked = parser.parse_args()
    sets = [] if asked.leaves is None else list(leaves(asked.leaves))
    if asked.pacs is not None:
        for name, contexts in TWO_CONTEXTS.items():
            sets += two_contexts(name, asked.pacs, contexts, asked.seed)
    rows = []
    for one in sets:
        for backbone in asked.backbones:
            folder = asked.work / f"{one.name}-{backbone}-{asked.seed}"
            rows.append(judge(one, backbone, folder))
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(asked.out, index=False)
    print(*summarise(pd.DataFrame(rows)), sep="\n")


def _type(line: str) -> str:
    result = CliRunner().invoke(app, line.split())
    if result.exit_code:
        raise RuntimeError(f"pfdl {line}\n{result.output}")
    return result.output


if __name__ == "__main__":
    main()
