import numpy as np
import pandas as pd
import pytest
import torch

from pfdl.data.images import to_tensor
from pfdl.vision import prediction
from pfdl.vision.backbones import make_backbone
from pfdl.vision.checkpoint import ModelConfig, TrainedModel
from pfdl.vision.pixels import normalise
from pfdl.vision.prediction import predict
from tests.data.image_files import encoded, make_folder, noise


@pytest.fixture
def trained(tmp_path):
    torch.manual_seed(0)
    return TrainedModel(
        make_backbone("mlp", 2, image_size=6).eval(),
        ModelConfig("mlp", ("cat", "dog"), 6),
        tmp_path,
    )


def probabilities(table):
    return torch.tensor(table.filter(like="probability of").to_numpy())


def test_answers_are_those_of_the_model(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction, "BATCH", 2)
    root = make_folder(tmp_path / "photos", {"a/b": 3, "c": 2})
    (root / ".hidden.png").write_bytes(encoded(noise(9)))
    found, _ = predict(trained, [root, root / "c", root / "c" / "000.png"])  # files are taken once
    names = ["a/b/000.png", "a/b/001.png", "a/b/002.png", "c/000.png", "c/001.png"]
    assert [path.removeprefix(f"{root}/") for path in found["path"]] == names
    pixels = np.stack([np.asarray(noise(n).crop((1, 0, 7, 6))) for n in range(1, 6)])
    images = torch.tensor(pixels).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = trained.model(normalise(images)).softmax(1)
    torch.testing.assert_close(probabilities(found), expected)
    assert list(found) == [
        "path",
        "prediction",
        "confidence",
        "probability of cat",
        "probability of dog",
    ]
    for (_, row), shares in zip(found.iterrows(), expected.tolist(), strict=True):
        assert row["prediction"] == ("cat" if shares[0] > shares[1] else "dog")
        assert row["confidence"] == pytest.approx(max(shares), abs=1e-5)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_of_images_needs_their_paths_alone(trained, tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet files are read by pyarrow")
    root = make_folder(tmp_path / "photos", {"c": 3})
    table = pd.DataFrame({"picture": ["c/002.png", "c\\000.png"], "weather": ["rain", "sun"]})
    path = root / f"list.{ending}"
    (table.to_parquet if ending == "parquet" else table.to_csv)(path, index=False)
    found, _ = predict(trained, path, path_column="picture")
    assert found["path"].tolist() == [str(root / "c/002.png"), str(root / "c/000.png")]
    assert torch.equal(
        probabilities(found), probabilities(predict(trained, [root / "c"])[0])[[2, 0]]
    )
    with pytest.raises(
        ValueError, match=r"say which of 'picture', 'weather' is the path .*--columns path=NAME"
    ):
        predict(trained, [path])
    pd.DataFrame({"path": ["../secret.png"]}).to_csv(root / "bad.csv")
    with pytest.raises(ValueError, match="is not a path inside the data folder"):
        predict(trained, root / "bad.csv")


def test_a_dataset_is_classified_too(trained):
    pictures = [noise(number) for number in range(3)]
    found, _ = predict(trained, [(picture, 0) for picture in pictures])
    assert found["path"].tolist() == ["all/00000000", "all/00000001", "all/00000002"]
    images = torch.stack([to_tensor(picture, 6) for picture in pictures])
    with torch.no_grad():
        torch.testing.assert_close(
            probabilities(found), trained.model(normalise(images)).softmax(1)
        )


def test_bad_images_are_named_or_left_out(trained, tmp_path):
    root = make_folder(tmp_path / "photos", {"c": 2})
    (root / "c" / "note.txt").write_text("no image")
    with pytest.raises(ValueError, match="is not an image"):
        predict(trained, [root])
    found, bad = predict(trained, [root], on_bad_image="skip")
    assert len(found) == 2
    assert bad[0].path.endswith("note.txt")
    with pytest.raises(ValueError, match="is not an image"):
        predict(trained, [root / "c" / "note.txt"], on_bad_image="skip")
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        predict(trained, [root / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="there is no image in"):
        predict(trained, [tmp_path / "empty"])


def test_links_out_of_a_folder_are_not_followed(trained, tmp_path):
    root = make_folder(tmp_path / "photos", {"c": 2})
    make_folder(tmp_path / "elsewhere", {"secret": 1})
    (root / "out.png").symlink_to(tmp_path / "elsewhere" / "secret" / "000.png")
    (root / "in.png").symlink_to(root / "c" / "000.png")
    (root / "folder").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="symbolic link to a place outside the data folder"):
        predict(trained, [root])
    found, bad = predict(trained, [root], on_bad_image="skip")
    assert [path.removeprefix(f"{root}/") for path in found["path"]] == [
        "in.png",
        "c/000.png",
        "c/001.png",
    ]
    reasons = {one.path.removeprefix(f"{root}/"): one.reason for one in bad}
    assert "outside the data folder" in reasons["out.png"]
    assert "link to a folder" in reasons["folder"]
    # A folder that the user names may itself be a link
    (tmp_path / "linked").symlink_to(root / "c")
    assert len(predict(trained, [tmp_path / "linked"])[0]) == 2
