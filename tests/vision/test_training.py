import json
import re
from dataclasses import replace

import pandas as pd
import pytest
import torch

from pfdl.contexts.finders import get_finder
from pfdl.data import make_split
from pfdl.data.context_images import ContextImages
from pfdl.objectives.weightings import DWR, Balance
from pfdl.runs import INFERRED_CONTEXTS
from pfdl.vision import inferring, training
from pfdl.vision.backbones import make_backbone
from pfdl.vision.checkpoint import WEIGHTS, load_model
from pfdl.vision.classifier import Classifier
from pfdl.vision.features import embed
from pfdl.vision.pixels import normalise
from pfdl.vision.resume import STATE, RunKeeper, TrainingStoppedError
from pfdl.vision.training import TrainingConfig, train
from tests.vision.interrupted import run, stop_at
from tests.vision.tiny_images import TinySource, tiny_data

TINY = TrainingConfig(backbone="mlp", objective="erm", image_size=8, epochs=1, batch_size=8)


def test_a_folder_of_another_run_is_refused_with_what_differs(tmp_path):
    source, manifest = tiny_data()
    train(TINY, source, manifest, tmp_path / "run", device="cpu")
    with pytest.raises(ValueError, match="differs in objective, seed, split"):
        train(
            replace(TINY, objective="pfdl", seed=1), source, tiny_data(seed=1)[1], tmp_path / "run"
        )


def test_without_validation_images_the_last_weights_are_kept_and_nothing_stops_early(tmp_path):
    source, manifest = tiny_data(validation_fraction=0)
    train(replace(TINY, epochs=2), source, manifest, tmp_path / "run", device="cpu")
    assert (tmp_path / "run" / WEIGHTS).exists()
    with pytest.raises(ValueError, match="needs a validation set"):
        train(replace(TINY, patience=1), source, manifest, tmp_path / "other", device="cpu")


@pytest.mark.parametrize(
    ("changes", "asking"),
    [
        ({"objective": "groupdro"}, "the objective 'groupdro'"),
        ({"objective": "irm+pfdl"}, "the objective 'irm[+]pfdl'"),
        ({"sampler": "groups"}, "the sampler 'groups'"),
        ({"select": "worst-group"}, "the selection by 'worst-group'"),
    ],
)
def test_what_needs_contexts_is_refused_where_they_are_hidden(changes, asking, tmp_path):
    with pytest.raises(
        ValueError, match=f"{asking} needs contexts.* give --contexts known or --contexts inferred"
    ):
        train(replace(TINY, **changes), *tiny_data(), tmp_path / "run", device="cpu")
    source = TinySource(contexts=("",))
    manifest = make_split(source, validation_fraction=0.25)
    with pytest.raises(
        ValueError,
        match=f"{asking} needs contexts, and the .* images have none; give --contexts inf",
    ):
        train(replace(TINY, **changes), source, manifest, tmp_path / "run", device="cpu")
    with pytest.raises(ValueError, match="contexts is 'known', but these images have none"):
        train(
            replace(TINY, **changes, contexts="known"),
            source,
            manifest,
            tmp_path / "run",
            device="cpu",
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("contexts", ["known", "inferred"])
def test_objectives_get_the_contexts_that_the_config_allows(contexts, tmp_path):
    config = replace(TINY, objective="groupdro", contexts=contexts, select="worst-group")
    folder = train(config, *tiny_data(), tmp_path / "run", device="cpu")
    table = pd.read_csv(folder / "metrics.csv")
    assert len(table) == TINY.epochs
    assert (table["val_worst_group"] <= table["val_worst_class"]).all()
    assert (table["val_worst_class"] <= table["val_accuracy"]).all()
    assert (folder / INFERRED_CONTEXTS).exists() == (contexts == "inferred")


def test_balance_is_shown_all_training_images_before_the_first_batch(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        Balance, "prepare", lambda self, labels, contexts: seen.append((labels, contexts))
    )
    source, manifest = tiny_data()
    train(
        replace(TINY, objective="balance", contexts="known"),
        source,
        manifest,
        tmp_path / "run",
        device="cpu",
    )
    labels, contexts = seen[0]
    assert [labels.tolist(), contexts.tolist()] == [
        list(numbers) for numbers in manifest.numbers_of("train")
    ]


def test_the_epoch_is_the_x_axis_of_tensorboard_where_it_is_installed(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = train(replace(TINY, epochs=3), *tiny_data(), tmp_path / "run", device="cpu")
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    for name in ("train_loss", "val_accuracy"):
        assert [point.step for point in events.Scalars(name)] == [0, 1, 2]
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    assert not (
        train(TINY, *tiny_data(), tmp_path / "other", device="cpu") / "tensorboard"
    ).exists()


def test_without_a_terminal_progress_is_the_whole_time_and_one_line_per_epoch(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(training, "ESTIMATE_AFTER", 0.0)
    config = replace(TINY, epochs=2, contexts="inferred")
    train(config, *tiny_data(), tmp_path / "run", device="cpu", progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    inferred, advice, estimate, first, second = printed.err.splitlines()
    assert inferred == json.loads((tmp_path / "run" / "contexts.json").read_text())["sentence"]
    assert inferred.startswith("All samples are one context")
    assert advice.startswith("With one context there is nothing to balance:")
    assert "--set confirm=false" in advice
    assert estimate.startswith("The whole training takes about 0 s. Shorter: a GPU, fewer --epochs")
    assert re.fullmatch(
        r"epoch 1/2: loss [\d.]+, accuracy [\d.]+, validation accuracy [\d.]+ \([\d.]+ s\)", first
    )
    assert second.startswith("epoch 2/2: ")


def test_local_weights_are_the_start_and_part_of_the_run(tmp_path):
    torch.manual_seed(3)
    stock = make_backbone("mlp", 5, image_size=8)
    torch.save(stock.state_dict(), tmp_path / "weights.pth")
    config = replace(
        TINY,
        weights=str(tmp_path / "weights.pth"),
        learning_rate=0.0,
        momentum=0.0,
        weight_decay=0.0,
    )
    folder = train(config, *tiny_data(), tmp_path / "run", device="cpu")
    trained = load_model(folder).model
    assert torch.equal(trained[1].weight, stock[1].weight)
    assert trained[-1].out_features == 2
    torch.save(make_backbone("mlp", 5, image_size=8).state_dict(), tmp_path / "weights.pth")
    with pytest.raises(ValueError, match="differs in weights"):
        train(config, *tiny_data(), folder, device="cpu")


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: 0} for name in ("epochs", "patience")),
        {"seed": -1},
        *(
            {name: "other"}
            for name in ("precision", "objective", "backbone", "optimizer", "select")
        ),
        {"objective": "pfdl", "objective_settings": {"pfdl": {"colour": 1}}},
    ],
)
def test_a_wrong_config_is_a_sentence_before_anything_is_written(wrong, tmp_path):
    with pytest.raises(ValueError, match=r"must be|choose|unknown|give|it has"):
        train(replace(TINY, **wrong), *tiny_data(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_inferred_contexts_are_kept_and_damage_is_mended(tmp_path, caplog):
    source, manifest = tiny_data()
    config = replace(TINY, objective="balance", contexts="inferred")
    folder = train(config, source, manifest, tmp_path / "run", device="cpu")
    contexts = pd.read_csv(folder / INFERRED_CONTEXTS)
    assert sorted(contexts["path"]) == sorted(row.path for row in manifest.rows_of("train"))
    found = (folder / INFERRED_CONTEXTS).read_bytes()

    def again():
        (folder / STATE).unlink()  # so that it trains again
        train(config, source, manifest, folder, device="cpu")

    contexts["context"] = 1 - contexts["context"] % 2  # what is there is taken
    contexts.to_csv(folder / INFERRED_CONTEXTS, index=False)
    kept = (folder / INFERRED_CONTEXTS).read_bytes()
    again()
    assert (folder / INFERRED_CONTEXTS).read_bytes() == kept
    for damage in (
        b"path,context\nelsewhere,0\n",
        b"\xff\x00",
        found.replace(b",0\n", b",-7\n").replace(b",1\n", b",x\n"),
    ):
        (folder / INFERRED_CONTEXTS).write_bytes(damage)
        again()
        assert (folder / INFERRED_CONTEXTS).read_bytes() == found
    assert "contexts are inferred again" in caplog.text


def test_contexts_are_inferred_from_a_network_that_has_learnt_something(tmp_path, monkeypatch):
    torch.save(make_backbone("mlp", 2, image_size=8).state_dict(), tmp_path / "weights.pth")
    described = []

    def describe(model, images, device):
        described.append(device)
        return images.flatten(1).float()

    monkeypatch.setattr(inferring, "embed", describe)
    config = replace(TINY, contexts="inferred", weights=str(tmp_path / "weights.pth"))
    train(config, *tiny_data(), tmp_path / "run", device="cpu")
    assert set(described) == {"cpu"}


@pytest.mark.parametrize("method", ["jtt", "spare", "eiil"])
def test_contexts_follow_from_the_logits_of_a_network_that_is_trained_plainly_before(
    tmp_path, method
):
    source, manifest = tiny_data()
    settings = {"jtt": {"upweight": 7}, "eiil": {"steps": 20}}.get(method, {})
    config = replace(
        TINY,
        epochs=2,
        contexts="inferred",
        infer_by=method,
        infer_epochs=2,
        infer_settings=settings,
    )
    train(config, source, manifest, tmp_path / "run", device="cpu")

    plain = replace(TINY, epochs=2, decay_every=1, select="last")
    first = load_model(train(plain, source, manifest, tmp_path / "plain", device="cpu")).model
    images = ContextImages(source, manifest, "train", size=8)
    with torch.no_grad():
        logits = first(normalise(images.images))
    expected = get_finder(method)(logits, images.labels, **settings)
    table = pd.read_csv(tmp_path / "run" / INFERRED_CONTEXTS)
    assert table["context"].tolist() == expected.contexts.tolist()
    assert table["draws"].to_numpy() == pytest.approx(expected.draws)


def test_the_second_training_draws_by_the_methods_own_rule_and_resumes_with_it(
    tmp_path, monkeypatch
):
    config = replace(
        TINY,
        epochs=3,
        contexts="inferred",
        infer_by="jtt",
        infer_settings={"upweight": 1000},
        learning_rate=1e-5,
    )
    whole = train(config, *tiny_data(), tmp_path / "whole", device="cpu")
    drawn = []

    def stop(keeper, row, original=RunKeeper.after_epoch):
        original(keeper, row)
        drawn.extend(keeper.loop.batches.order)
        keeper.stop.set()

    with monkeypatch.context() as patch:
        patch.setattr(RunKeeper, "after_epoch", stop)
        with pytest.raises(TrainingStoppedError):
            train(config, *tiny_data(), tmp_path / "parts", device="cpu")
    found = (tmp_path / "parts" / INFERRED_CONTEXTS).read_bytes()
    wrong = pd.read_csv(tmp_path / "parts" / INFERRED_CONTEXTS)["context"].to_numpy() == 1
    assert 0 < wrong.mean() < 1
    assert wrong[drawn].mean() > 0.9  # each is drawn 1,001 times as often as a right one
    # A second one is not trained
    monkeypatch.setattr(training, "first_logits", lambda *_, **__: pytest.fail("trained"))
    parts = train(config, *tiny_data(), tmp_path / "parts", device="cpu")
    assert (
        (parts / INFERRED_CONTEXTS).read_bytes()
        == found
        == (whole / INFERRED_CONTEXTS).read_bytes()
    )
    assert (parts / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()


def test_a_first_network_that_diverges_is_a_sentence(tmp_path):
    config = replace(TINY, contexts="inferred", infer_by="jtt", learning_rate=1e30)
    with pytest.raises(
        ValueError, match="training of the first network diverged; try a smaller learning rate"
    ):
        train(config, *tiny_data(), tmp_path / "run", device="cpu")


def test_published_dwr_learns_a_weight_for_every_image_before_each_epoch_and_resumes(
    tmp_path, monkeypatch
):
    config = replace(TINY, objective="dwr-samples", epochs=3, augment="none")
    fitted = []
    fit = DWR.fit
    monkeypatch.setattr(
        DWR, "fit", lambda part, features: (fitted.append(features), fit(part, features))[1]
    )
    source, manifest = tiny_data()
    whole = train(config, source, manifest, tmp_path / "whole", device="cpu")
    assert len(fitted) == 3
    torch.manual_seed(config.seed)
    images = ContextImages(source, manifest, "train", size=8)
    expected = embed(Classifier(config, 2).backbone, images.images)
    torch.testing.assert_close(fitted[0], expected)
    sizes = pd.read_csv(whole / "metrics.csv")["effective_sample_size"]
    assert ((sizes > 1) & (sizes < config.batch_size)).all()
    # In the middle of the second epoch
    stop_at("batch_start", 7, tmp_path / "parts", config=config)
    parts = run(tmp_path / "parts", config)
    assert all(
        (parts / name).read_bytes() == (whole / name).read_bytes()
        for name in (WEIGHTS, "metrics.csv")
    )
