import pytest
import torch

from pfdl import infer_contexts
from pfdl.data.context_images import HIDDEN_CONTEXT
from pfdl.lightning import ContextDataModule
from tests.vision.tiny_images import tiny_data


def make(**settings):
    data = ContextDataModule(*tiny_data(), image_size=8, batch_size=8, **settings)
    data.setup("fit")
    return data


def drawn(data, epoch):
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return torch.cat([images for images, *_ in loader])


def test_batches_are_bytes_of_one_size_with_contexts_hidden():
    batches = list(make().train_dataloader())
    assert all(images.shape == (8, 3, 8, 8) and images.dtype == torch.uint8 for images, *_ in batches)
    assert all((contexts == HIDDEN_CONTEXT).all() for _, _, contexts in batches)
    revealed = torch.cat([contexts for *_, contexts in make(contexts="known").train_dataloader()])
    assert set(revealed.tolist()) == {0, 1}


def test_contexts_are_inferred_once_from_what_describes_the_images(monkeypatch):
    described = []

    def describe(images):
        described.append(images.shape)
        return images.flatten(1).float()

    data = make(contexts="inferred", describe=describe)
    data.setup("fit")
    images = data.train_set
    assert described == [(len(images), 3, 8, 8)]
    expected = infer_contexts(images.images.flatten(1).float(), images.labels, seed=0)
    assert images.contexts.tolist() == expected.tolist()
    assert all((contexts == HIDDEN_CONTEXT).all() for *_, contexts in data.val_dataloader())
    with pytest.raises(ValueError, match="contexts is 'guessed'"):
        make(contexts="guessed")


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
    validation = {image.numpy().tobytes() for images, *_ in data.val_dataloader() for image in images}
    training = {image.numpy().tobytes() for image in data._sets["train"].images}
    assert validation
    assert not validation & training
    bare = ContextDataModule(*tiny_data(validation_fraction=0), image_size=8)
    bare.setup("fit")
    assert bare.val_dataloader() == []
    assert bare.num_classes == 2
