import threading
import time
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from pfdl import context_sampler, infer_contexts
from pfdl.contexts import InferredContexts, find_contexts
from pfdl.data import context_images
from pfdl.data.context_images import HIDDEN_CONTEXT
from pfdl.vision import training_data
from pfdl.vision.config import TrainingConfig
from pfdl.vision.inferring import keep_contexts
from pfdl.vision.loading import EpochLoader, EpochSampler
from pfdl.vision.training_data import TrainingData
from tests.vision.tiny_images import tiny_data


def make(*, num_workers=0, describe=None, **settings):
    config = TrainingConfig(image_size=8, batch_size=8, **settings)
    return TrainingData(config, *tiny_data(), num_workers=num_workers, describe=describe)


def drawn(data, epoch):
    return torch.cat([images for images, *_ in data.train_loader().read(epoch)])


def test_batches_are_bytes_of_one_size_with_contexts_hidden():
    batches = list(make().train_loader())
    assert all(
        images.shape == (8, 3, 8, 8) and images.dtype == torch.uint8 for images, *_ in batches
    )
    assert all((contexts == HIDDEN_CONTEXT).all() for _, _, contexts, _ in batches)
    revealed = torch.cat([contexts for _, _, contexts, _ in make(contexts="known").train_loader()])
    assert set(revealed.tolist()) == {0, 1}


def test_batches_of_images_in_memory_are_those_that_are_read_one_by_one(monkeypatch):
    kept = list(make(contexts="known").train_loader())
    monkeypatch.setattr(context_images, "CACHE_LIMIT", 0)
    read = list(make(contexts="known").train_loader())
    samples = {
        image.numpy().tobytes(): numbers for image, *numbers in make(contexts="known").train_set
    }
    for one, other in zip(kept, read, strict=True):
        assert all(torch.equal(part, same) for part, same in zip(one, other, strict=True))
        for image, *numbers in zip(*one[:3], strict=True):
            assert [int(number) for number in numbers] == samples[image.numpy().tobytes()]


def test_contexts_are_inferred_from_what_describes_the_images():
    data = make(contexts="inferred", describe=lambda images: images.flatten(1).float())
    images = data.train_set
    expected = find_contexts(
        images.images, images.labels, describe=lambda batch: batch.flatten(1).float(), seed=0
    )
    assert images.contexts.tolist() == expected.contexts.tolist()
    assert data.inferred.sentence == expected.sentence
    assert "by colours and textures of the images" in expected.sentence
    assert all((contexts == HIDDEN_CONTEXT).all() for _, _, contexts, _ in data.validation_loader())
    assert make().inferred is None
    with pytest.raises(ValueError, match="contexts is 'guessed'"):
        make(contexts="guessed")


def test_kept_contexts_belong_to_paths_whatever_these_look_like(tmp_path):
    (tmp_path / "contexts.csv").write_text("path,context\n007,0\nNA,1\n")
    (tmp_path / "contexts.json").write_text('{"method": "pooled", "sentence": "Two contexts."}')
    kept = training_data._read_contexts(tmp_path, [SimpleNamespace(paths=["007", "NA"])])
    assert kept.contexts.tolist() == [0, 1]


def test_the_way_of_inferring_can_be_chosen(monkeypatch):
    asked = []

    def find(images, labels, *, method, describe, seed, confirmation=0.8):
        asked.append((method, confirmation))
        return InferredContexts(np.zeros(len(labels), dtype=np.intp), method, "One context.", ())

    monkeypatch.setattr(training_data, "find_contexts", find)
    make(contexts="inferred", infer_by="early")
    make(contexts="inferred", infer_by="pooled", confirm=False)
    assert asked == [("early", 0.8), ("pooled", 0.0)]
    with pytest.raises(ValueError, match="method is 'guess'"):
        make(infer_by="guess")
    with pytest.raises(ValueError, match="set contexts to 'inferred'"):
        TrainingConfig(infer_by="early")
    with pytest.raises(ValueError, match=r"confirm is False.* set contexts to 'inferred'"):
        TrainingConfig(confirm=False)
    with pytest.raises(ValueError, match=r"sampler_power is 0\.5, but sampler is 'shuffle'"):
        make(sampler_power=0.5)


def test_contexts_of_validation_images_are_inferred_together_with_those_of_training():
    data = make(contexts="inferred", select="worst-group")
    held_out = [contexts for _, _, contexts, _ in data.validation_loader()]
    contexts = torch.cat([data.train_set.contexts, *held_out])
    sets = [data.train_set, data._sets["validation"]]
    images = torch.cat([one.images for one in sets])
    labels = torch.cat([one.labels for one in sets])
    assert contexts.tolist() == infer_contexts(images, labels, seed=0).tolist()


def test_the_sampler_of_groups_is_that_of_the_library():
    data = make(sampler="groups", contexts="known", seed=2, sampler_power=0.5)
    loader = data.train_loader()
    loader.sampler.epoch = 3
    expected = context_sampler(data.train_set.labels, data.train_set.contexts, seed=2, power=0.5)
    expected.set_epoch(3)
    drawn = list(loader.sampler)
    assert drawn == list(expected)[: len(loader) * 8]
    assert len(data.train_set) - 8 < len(drawn) <= len(data.train_set)


def test_an_epoch_can_begin_in_its_middle():
    loader = make(seed=1).train_loader()
    expected = list(loader.read(2))
    found = list(loader.read(2, first=3))
    assert len(found) == len(expected) - 3
    for here, there in zip(found, expected[3:], strict=True):
        assert all(map(torch.equal, here, there))
    assert list(loader.read(2, first=len(loader))) == []
    assert torch.equal(next(iter(loader.read(2)))[0], expected[0][0])


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_processes_have_as_many_samples_each_however_they_come_out(processes):
    for size in range(1, 12):
        labels = torch.zeros(size, dtype=torch.long)
        config = TrainingConfig(batch_size=64)
        parts = [
            list(EpochSampler(config, labels, labels, processes=processes, rank=rank))
            for rank in range(processes)
        ]
        assert {len(part) for part in parts} == {-(-size // processes)}
        assert set(chain.from_iterable(parts)) == set(range(size))


@pytest.mark.parametrize("sampler", ["shuffle", "groups"])
def test_the_batches_of_processes_together_are_those_of_one(sampler, monkeypatch):
    def batches(processes, rank):
        data = make(seed=1, sampler=sampler, contexts="known")
        monkeypatch.setattr(training_data, "world_size", lambda: processes)
        monkeypatch.setattr(training_data, "rank", lambda: rank)
        return [sorted(images.sum((1, 2, 3)).tolist()) for images, *_ in data.train_loader()]

    alone, *parts = batches(1, 0), batches(2, 0), batches(2, 1)
    assert [sorted(here + there) for here, there in zip(*parts, strict=True)] == alone


def test_the_order_follows_from_seed_and_epoch_alone():
    first = drawn(make(seed=1), epoch=3)
    torch.manual_seed(99)
    assert torch.equal(drawn(make(seed=1), epoch=3), first)
    assert not torch.equal(drawn(make(seed=1), epoch=4), first)
    assert not torch.equal(drawn(make(seed=2), epoch=3), first)


def test_workers_give_the_same_batches_and_loading_draws_no_chance():
    torch.manual_seed(5)
    here = drawn(make(), epoch=0)
    state = torch.get_rng_state()
    assert torch.equal(drawn(make(num_workers=2), epoch=0), here)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_validation_set_is_held_out_of_training_and_may_be_absent():
    data = make()
    held_out = torch.cat([images for images, *_ in data.validation_loader()])
    validation = {image.numpy().tobytes() for image in held_out}
    training = {image.numpy().tobytes() for image in data._sets["train"].images}
    assert validation
    assert not validation & training
    bare = TrainingData(TrainingConfig(image_size=8), *tiny_data(validation_fraction=0))
    assert bare.validation_loader() is None


def test_a_set_too_large_for_memory_is_decoded_ahead_in_the_same_order(monkeypatch):
    kept = make(contexts="known").train_loader()
    monkeypatch.setattr(context_images, "CACHE_LIMIT", 0)
    read = make(contexts="known").train_loader()
    assert read.reads_ahead
    assert not kept.reads_ahead
    for epoch, first in ((0, 0), (1, 2), (2, len(kept))):
        expected = list(kept.read(epoch, first))
        batches = list(read.read(epoch, first))
        assert len(batches) == len(expected)
        for one, other in zip(batches, expected, strict=True):
            assert all(map(torch.equal, one, other))


def test_an_image_that_went_bad_is_named_and_a_reader_can_stop_early(monkeypatch):
    monkeypatch.setattr(context_images, "CACHE_LIMIT", 0)
    data = make()
    batches = data.train_loader().read(0)
    next(batches)
    batches.close()

    def gone(*_):
        raise FileNotFoundError("it is gone")

    monkeypatch.setattr(data.train_set._source, "load", gone)
    with pytest.raises(FileNotFoundError, match="it is gone"):
        list(data.train_loader().read(0))


class Slow(Dataset):
    """Numbers that take a moment to load, and the threads that load them."""

    def __init__(self):
        self.threads = set()

    def __len__(self):
        return 12

    def __getitems__(self, rows):
        time.sleep(0.01)
        self.threads.add(threading.get_ident())
        return torch.tensor(rows)


def test_one_other_thread_reads_ahead():
    labels = torch.zeros(12, dtype=torch.long)
    sampler = EpochSampler(TrainingConfig(batch_size=2), labels, labels)
    data = Slow()
    loader = EpochLoader(data, 2, sampler=sampler, reads_ahead=True, collate_fn=torch.clone)
    assert torch.cat(list(loader.read(0))).tolist() == list(sampler)
    assert len(data.threads - {threading.get_ident()}) == len(data.threads) == 1


@pytest.mark.parametrize(
    ("contexts", "draws", "is_kept"),
    [
        ([0, 1], None, True),
        ([0, 1], [0.5, 2.0], True),
        ([-1, 1], None, False),
        ([0, 1], [0.0, 2.0], False),
        ([0, 1], [-0.5, 2.0], False),
        ([0, 1], [float("inf"), 2.0], False),
        ([0, 1], [float("nan"), 2.0], False),
    ],
)
def test_kept_contexts_are_read_again_unless_they_are_impossible(
    contexts, draws, is_kept, tmp_path, monkeypatch
):
    paths = make().train_set.paths
    each = np.arange(len(paths)) % 2
    anew = InferredContexts(each, "early", "Inferred anew.")
    monkeypatch.setattr(training_data, "_infer", lambda *_: anew)
    kept = InferredContexts(
        np.array(contexts)[each],
        "early",
        "Found by hand.",
        draws=None if draws is None else np.array(draws)[each],
    )
    keep_contexts(tmp_path, paths, kept)
    config = TrainingConfig(image_size=8, batch_size=8, contexts="inferred")
    data = TrainingData(config, *tiny_data(), folder=tmp_path)
    assert data.inferred.sentence == ("Found by hand." if is_kept else "Inferred anew.")
    assert any(tmp_path.glob("*.damaged")) != is_kept
    if is_kept:
        assert data.train_set.contexts.tolist() == each.tolist()


def test_no_two_seeds_share_the_order_of_an_epoch():
    labels = torch.zeros(12, dtype=torch.long)
    orders = set()
    for seed in range(12):
        sampler = EpochSampler(TrainingConfig(seed=seed, batch_size=12), labels, labels)
        for epoch in range(12):
            sampler.epoch = epoch
            orders.add(tuple(sampler))
    assert len(orders) == 12 * 12


CLASSES = torch.tensor([0] * 10 + [1] * 2)


def drawn_by(draws=None, labels=CLASSES, **settings):
    """The indices of an epoch of twelve samples in one context."""
    contexts = torch.zeros(12, dtype=torch.long)
    config = TrainingConfig(batch_size=12, **settings)
    return list(EpochSampler(config, labels, contexts, draws))


def test_shuffling_takes_every_sample_once_whatever_its_class():
    assert sorted(drawn_by()) == list(range(12))


def test_draws_say_how_often_shuffling_takes_a_sample():
    assert drawn_by(torch.eye(12)[7]) == [7] * 12


def test_another_sampler_ignores_draws():
    assert len(set(drawn_by(torch.eye(12)[7], sampler="classes"))) > 1


def test_the_sampler_of_classes_draws_them_alike():
    counts = torch.zeros(2)
    for seed in range(40):
        counts += CLASSES[drawn_by(sampler="classes", seed=seed)].bincount(minlength=2)
    assert 0.45 < counts[1] / counts.sum() < 0.55


@pytest.mark.parametrize("sampler", ["classes", "groups"])
def test_with_one_class_and_context_there_is_nothing_to_balance(sampler):
    alike = torch.zeros(12, dtype=torch.long)
    assert sorted(drawn_by(labels=alike, sampler=sampler)) == list(range(12))


def test_images_lie_on_a_gpu_only_while_one_process_trains_and_there_is_room(monkeypatch):
    data = make()
    gpu = torch.device("cuda", 0)
    needed = sum(len(images) for images in data._sets.values()) * 3 * 8 * 8
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 * needed, 10**12))
    assert data.lies_on(gpu)
    assert not data.lies_on(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 * needed - 4, 10**12))
    assert not data.lies_on(gpu)
