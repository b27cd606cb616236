"""A model that was trained anywhere, diagnosed by a table of its answers."""

import numpy as np
import pandas as pd
import pytest

from pfdl.data.features import FeatureTable, write_features
from tests.cli.typing_commands import draw, typed

EVIL = "<script>window.hacked = 1</script>"


def make_table(train=(45, 5), test=(30, 30), contexts=True):
    """Answers of a model that looks at nothing but the context; training is mixed 9:1."""
    lines = []
    for split, (usual, rare) in (("train", train), ("test", test)):
        for label, name in enumerate(("cat", "dog")):
            for context, place in enumerate(("red", EVIL)):
                for number in range(usual if label == context else rare):
                    path = f"{split}/{name}/{('red', 'blue')[context]}/{number}.png"
                    answer = ("cat", "dog")[context] if split == "test" else ""
                    lines.append((path, name, answer, place, split))
    table = pd.DataFrame(lines, columns=["path", "label", "prediction", "context", "split"])
    return table if contexts else table.drop(columns="context")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for folder, frame in make_table().groupby(make_table()["path"].str.rpartition("/")[0]):
        draw(root / folder, len(frame), seed=len(folder) + 7 * len(frame), channel=0)
    return root


def diagnosed(table, tmp_path, *words, fails=False):
    path, page = tmp_path / "answers.csv", tmp_path / "page.html"
    table.to_csv(path, index=False)
    line = f"diagnose --predictions {path} {' '.join(map(str, words))} -o {page}"
    result = typed(line, fails=fails)
    return result.output, page.read_text() if page.exists() else ""


def test_the_verdict_and_the_page_need_no_run_and_no_images(tmp_path):
    words, page = diagnosed(make_table(), tmp_path)
    assert "Does answers.csv rely on the context? YES" in words
    assert "100 % right in a class's usual context, 0 % elsewhere" in words
    assert "expect 90.0 ± " in words
    assert "Accuracy if the contexts shift" in page
    assert EVIL not in page
    assert "&lt;script&gt;window.hacked" in page


def test_with_a_folder_the_page_shows_the_pictures(photos, tmp_path):
    words, page = diagnosed(make_table(), tmp_path, photos)
    assert "YES" in words
    assert page.count('<img src="data:image/png;base64,') >= 16


def test_without_training_images_nobody_knows_what_is_usual(tmp_path):
    table = make_table(test=(10, 50))
    words, _ = diagnosed(table[table["split"] == "test"], tmp_path)
    assert "CANNOT TELL" in words
    assert "if it was mixed the other way round, 100 % and 0 %" in words
    assert "Add the training images to the table" in words


def test_validation_images_give_the_gap(tmp_path):
    table = make_table()
    held_out = table[table["split"] == "test"].assign(split="val")
    held_out["path"] = "val" + held_out["path"].str.removeprefix("test")
    held_out["prediction"] = held_out["label"]
    words, _ = diagnosed(pd.concat([table, held_out]), tmp_path)
    assert "Test accuracy is 50.0 ± " in words
    assert "points below validation accuracy" in words


def test_contexts_are_inferred_from_features_where_the_table_names_none(tmp_path):
    rng = np.random.default_rng(0)
    table = make_table(train=(450, 50), test=(100, 100))
    features = rng.normal(size=(len(table), 12))
    features[:, :6] += 3.0 * (table["context"] == "red").to_numpy()[:, None]
    features[:, 6:] += 0.7 * (table["label"] == "cat").to_numpy()[:, None]
    paths = tuple(table["path"])
    write_features(
        tmp_path / "f.npz", FeatureTable(paths, features.astype(np.float32), ("",) * len(paths))
    )
    unnamed = table.drop(columns="context")
    words, _ = diagnosed(unnamed, tmp_path, "--features", tmp_path / "f.npz")
    assert "The contexts are not known: 2 were inferred." in words
    assert "YES" in words
    assert "expect" not in words
    words, _ = diagnosed(unnamed, tmp_path)
    assert "the images have no contexts, and none could be inferred" in words


def test_several_models_on_the_same_images_are_compared(tmp_path):
    better, best, plain = (make_table(test=(80, 80)) for _ in range(3))
    half = better.index % 2 == 0
    better.loc[half, "prediction"] = better.loc[half, "label"]
    best["prediction"] = best["label"]
    better.to_csv(tmp_path / "better.csv", index=False)
    best.to_csv(tmp_path / "best.csv", index=False)
    others = ["--compare", tmp_path / "better.csv", "--compare", tmp_path / "best.csv"]
    words, page = diagnosed(plain, tmp_path, *others)
    assert "answers.csv relies more on the context than better.csv" in words
    assert "answers.csv relies more on the context than best.csv" in words
    assert "Does best.csv rely on the context? NO" in words
    assert "What was found about best.csv" in page


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda table: table.drop(columns="prediction"), "no column 'prediction'"),
        (
            lambda table: table.replace({"prediction": {"cat": "0", "dog": "1"}}),
            "call the classes alike in both columns: a prediction is '0', a label 'cat'",
        ),
        (lambda table: table.assign(split="holdout"), "has the split 'holdout'; give train, val"),
        (lambda table: table.assign(split="train"), "no image to test on"),
        (lambda table: table.assign(prediction=""), "has no prediction in line"),
        (lambda table: table.assign(label=""), "has no label in line 2"),
        (lambda table: table.assign(path="a.png"), "has 'a.png' twice"),
        (lambda table: table.assign(path="../" + table["path"]), "give paths below the folder"),
        (lambda table: table.assign(path="/etc/" + table["path"]), "give paths below the folder"),
    ],
)
def test_what_is_wrong_with_a_table_is_a_sentence(change, sentence, tmp_path):
    assert sentence in diagnosed(change(make_table()), tmp_path, fails=True)[0]


def test_what_does_not_fit_together_is_a_sentence(photos, tmp_path):
    table = make_table()
    table.loc[0, "path"] = "train/cat/red/none.png"
    assert "the image 'train/cat/red/none.png'" in diagnosed(table, tmp_path, photos, fails=True)[0]
    assert "no folder of images" in diagnosed(table, tmp_path, tmp_path / "no", fails=True)[0]
    two = diagnosed(table, tmp_path, photos, photos, fails=True)[0]
    assert "takes one folder" in two or "takes a folder" in two
    assert "no table of predictions" in typed("diagnose --predictions no.csv", fails=True).output
    assert "name a run" in typed("diagnose", fails=True).output
    (tmp_path / "noise.csv").write_bytes(np.random.default_rng(0).bytes(4000))
    assert "not a table" in typed(f"diagnose --predictions {tmp_path}/noise.csv", fails=True).output
