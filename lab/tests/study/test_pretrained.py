"""Features of the packaged network: the ones it gives by hand, for every image, in order."""

import torch
from safetensors.torch import load_file
from tests.vision.tiny_images import TinySource
from typer.testing import CliRunner

from pfdl.cli.main import app
from pfdl.vision.features import attach
from pfdl.vision.pixels import normalise
from pfdl_lab.study import pretrained
from pfdl_lab.study.data import StudyData
from pfdl_lab.study.pretrained import embed, fine_tuned, load_network, write_features


def test_every_image_is_embedded_in_the_order_of_the_paths(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "SIZE", 32)
    monkeypatch.setattr(pretrained, "BATCH", 5)
    source = TinySource()
    source.samples = source.samples[:7]
    write_features(source, tmp_path / "tiny.safetensors", image_size=8)
    features = load_file(tmp_path / "tiny.safetensors")["features"]
    assert features.shape == (7, 1280)
    assert (tmp_path / "tiny.txt").read_text().splitlines() == [sample.path for sample in source.samples]
    network = load_network()
    sample = source.samples[6]
    alone = embed(network, source.load(sample.path, 8, sample.sha256)[None])
    torch.testing.assert_close(features[6:].float(), alone, atol=2e-3, rtol=2e-3)


def test_the_network_knows_pictures():
    """Its own classifier says the same of a picture and of its mirror image; one with random weights does not care."""
    network = load_network()
    picture = torch.zeros(1, 3, 96, 96, dtype=torch.uint8)
    picture[:, :, 20:70, 10:60] = torch.tensor([200, 120, 40], dtype=torch.uint8)[:, None, None]
    first, mirrored = embed(network, picture), embed(network, picture.flip(3))
    other = embed(network, 255 - picture)
    assert torch.dist(first, mirrored) < 0.5 * torch.dist(first, other)


def test_fine_tuning_starts_from_the_same_features_with_a_new_last_layer():
    images = torch.randint(256, (2, 3, 64, 64), generator=torch.Generator().manual_seed(0)).byte()
    model = fine_tuned(3).eval()
    with attach(model) as tap, torch.no_grad():
        assert model(normalise(images)).shape == (2, 3)
        expected = load_network().extract_features((images.float() - 127) / 128).mean((2, 3))
        torch.testing.assert_close(tap.features, expected, rtol=1e-3, atol=1e-4)


def test_the_study_fine_tunes_it():
    dataset = StudyData("shapes", network="efficientnet-lite0")
    assert dataset.name == "shapes, efficientnet-lite0, fine-tuned"
    linear = [part for part in dataset._network(4).modules() if isinstance(part, torch.nn.Linear)]
    assert [part.out_features for part in linear] == [4]


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(pretrained, "ITS_WEIGHTS", "no_such_package")
    (tmp_path / "cat").mkdir()
    result = CliRunner().invoke(app, ["study-features", str(tmp_path), "-o", str(tmp_path / "f.safetensors")])
    assert result.exit_code == 2
    assert "install pfdl[pretrained]" in result.output
    assert not (tmp_path / "f.safetensors").exists()
