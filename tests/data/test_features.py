"""Features of images in files: what is written is read, and nothing else is believed."""

import io
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch

from pfdl.data.features import FeatureImages, FeatureTable, read_features, write_features
from tests.vision.tiny_images import TinySource


def table(count=5, width=3):
    matrix = np.arange(count * width, dtype=np.float32).reshape(count, width)
    paths = tuple(f"cat/{number}.png" for number in range(count))
    return FeatureTable(paths, matrix, tuple("ab"[number % 2] * 64 for number in range(count)))


def save_own(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_what_is_written_is_read_again(tmp_path):
    written = FeatureTable(*vars(table()).values())
    written = FeatureTable(written.paths, written.matrix, written.sha256, "lite0", "f" * 64)
    write_features(tmp_path / "features.npz", written)
    found = read_features(tmp_path / "features.npz")
    np.testing.assert_array_equal(found.matrix, written.matrix)
    assert found.matrix.dtype == np.float32
    for name in ("paths", "sha256", "network", "fingerprint", "num_features"):
        assert getattr(found, name) == getattr(written, name)


def test_features_of_ones_own_need_paths_and_numbers_alone(tmp_path):
    matrix = np.random.default_rng(0).normal(size=(4, 2))
    paths = ["a.png", "b.png", "c/ä.png", "d.png"]
    own = read_features(save_own(tmp_path / "own.npz", paths=paths, features=matrix))
    assert own.paths == tuple(paths)
    assert own.sha256 == ("",) * 4
    assert own.network == ""
    frame = pd.DataFrame(matrix, columns=["x", "y"]).assign(file=paths, note="word")
    frame.to_csv(tmp_path / "own.csv", index=False)
    frame.to_parquet(tmp_path / "own.parquet")
    for name in ("own.csv", "own.parquet"):
        found = read_features(tmp_path / name)
        assert found.paths == own.paths
        np.testing.assert_allclose(found.matrix, own.matrix, rtol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"paths": ["a"]}, "no array 'features'"),
        ({"features": np.zeros((1, 2))}, "no array 'paths'"),
        ({"paths": ["a"], "features": np.zeros(2)}, r"the shape \(2,\); give numbers"),
        ({"paths": ["a"], "features": np.zeros((1, 0))}, r"the shape \(1, 0\)"),
        ({"paths": ["a", "b"], "features": np.zeros((1, 2))}, "a word for each of the 1 rows"),
        ({"paths": [7], "features": np.zeros((1, 2))}, "'paths' has the shape"),
        ({"paths": np.array([], "U1"), "features": np.zeros((0, 2))}, "no image in it"),
        ({"paths": ["a", "b", "a"], "features": np.eye(3)}, "the image 'a' is in it twice"),
        ({"paths": ["a"], "features": [[1.0, np.nan]]}, "a feature of 'a' is not a finite number"),
        ({"paths": ["a"], "features": [[1.0, 1e300]]}, "not a finite number"),
        ({"paths": ["a"], "features": [["x", "y"]]}, "give numbers"),
        ({"paths": ["a"], "features": np.array([[1, None]])}, "neither numbers nor words"),
    ],
)
def test_what_cannot_be_features_is_said(arrays, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        read_features(save_own(tmp_path / "own.npz", **arrays))


def test_a_pickle_in_it_is_never_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was run",))

    path = save_own(tmp_path / "evil.npz", paths=np.array([Evil()], dtype=object), features=[[1.0]])
    with pytest.raises(ValueError, match="neither numbers nor words"):
        read_features(path)


def test_a_header_that_asks_for_all_memory_is_refused(tmp_path):
    small = io.BytesIO()
    np.save(small, np.zeros((1, 2)))
    begin = small.getvalue()
    claims = begin.replace(b"(1, 2), }     ", b"(99999999, 2),}", 1)[: len(begin)]
    with zipfile.ZipFile(tmp_path / "lies.npz", "w") as archive:
        archive.writestr("features.npy", claims)
    with pytest.raises(ValueError, match=r"not as large as its shape \(99999999, 2\) says"):
        read_features(tmp_path / "lies.npz")


def test_an_array_beyond_the_limit_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("pfdl.data.features.MOST_BYTES", 1000)
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, paths=["a"], features=np.zeros((1, 500)))
    with pytest.raises(ValueError, match=r"features.npy has 4000 bytes; more than 1000 are not"):
        read_features(path)


def test_a_file_that_is_cut_off_is_a_sentence_wherever_it_ends(tmp_path):
    write_features(tmp_path / "whole.npz", table())
    whole = (tmp_path / "whole.npz").read_bytes()
    for length in range(0, len(whole), 97):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"not a whole file of features|no array"):
            read_features(tmp_path / "cut.npz")


def test_names_that_are_no_files_of_features(tmp_path):
    with pytest.raises(ValueError, match=r"no file of features; give one that ends in \.npz"):
        read_features(tmp_path / "features.pkl")
    with pytest.raises(FileNotFoundError, match="pfdl embed makes one"):
        read_features(tmp_path / "features.npz")
    with pytest.raises(ValueError, match="a name that ends so"):
        write_features(tmp_path / "features.csv", table())
    (tmp_path / "words.csv").write_text("path,word\na,b\n")
    with pytest.raises(ValueError, match="no column of numbers"):
        read_features(tmp_path / "words.csv")
    (tmp_path / "numbers.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="no column 'path'"):
        read_features(tmp_path / "numbers.csv")


def test_images_find_their_features_by_content_or_by_path():
    source = TinySource(per_cell=2)
    samples = source.samples
    matrix = np.random.default_rng(0).normal(size=(len(samples), 4)).astype(np.float32)
    hashes = tuple(sample.sha256 for sample in samples)
    renamed = FeatureTable(tuple(f"other/{n}" for n in range(len(samples))), matrix, hashes)
    of_paths = FeatureTable(tuple(sample.path for sample in samples), matrix, ("",) * len(samples))
    for one in (renamed, of_paths):
        images = FeatureImages(source, one)
        assert images.num_features == 4
        assert images.samples == samples
        vector = images.load(samples[3].path, 64, samples[3].sha256)
        torch.testing.assert_close(vector, torch.from_numpy(matrix[3]))
    fewer = FeatureTable(of_paths.paths[1:], matrix[1:], of_paths.sha256[1:])
    with pytest.raises(ValueError, match=f"no features of 1 of {len(samples)} images, such as"):
        FeatureImages(source, fewer)
    changed = FeatureTable(of_paths.paths, matrix, ("c" * 64,) * len(samples))
    with pytest.raises(ValueError, match="no features of"):  # a hash comes before a path
        FeatureImages(source, changed)


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(tmp_path):
    zeros = np.zeros((1, 1 << 25), dtype=np.float32)
    np.savez_compressed(tmp_path / "own.npz", paths=["a"], features=zeros)
    with pytest.raises(ValueError, match="has 134217728 bytes packed into"):
        read_features(tmp_path / "own.npz")
    honest = np.zeros((4, 1 << 12), dtype=np.float32)
    np.savez_compressed(tmp_path / "own.npz", paths=list("abcd"), features=honest)
    assert read_features(tmp_path / "own.npz").num_features == 1 << 12
