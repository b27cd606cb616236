from itertools import product
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import pfdl
from pfdl.lightning import ImageClassifier, PFDLCallback
from pfdl.vision import Classifier, TrainingConfig, fit


class Own(LightningModule):
    def __init__(self, output="tensor"):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(5, 4)
        self.head = nn.Linear(4, 3)
        self.output = output

    def forward(self, inputs):
        return self.head(self.body(inputs))

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        return {"tensor": loss, "dict": {"loss": loss, "more": 1}, "none": None}[self.output]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(12, 5, generator=generator)
    return DataLoader(TensorDataset(inputs, torch.arange(12) % 3), batch_size=6)


def trainer(*callbacks):
    """A trainer of Lightning that keeps and shows nothing."""
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    return Trainer(
        max_epochs=1, accelerator="cpu", callbacks=list(callbacks), **dict.fromkeys(quiet, False)
    )


@pytest.mark.parametrize("output", ["tensor", "dict"])
def test_the_callback_trains_as_a_loop_with_the_penalty_would(output):
    model = Own(output)
    callback = PFDLCallback(2.0, hidden=8)
    torch.manual_seed(3)
    run = trainer(callback)
    run.fit(model, loader())

    twin = Own()
    torch.manual_seed(3)
    decorrelate = pfdl.PartialDecorrelation(4, 2.0, hidden=8)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for inputs, labels in loader():
        features = twin.body(inputs)
        loss = F.cross_entropy(twin.head(features), labels) + decorrelate(features)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for here, there in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(here, there)
    assert {"L_g", "L_decorr", "R2"} <= set(run.callback_metrics)
    assert "training_step" not in vars(model)  # it is left as it was
    assert not model.head._forward_pre_hooks
    assert model.state_dict().keys() == twin.state_dict().keys()


def test_a_skipped_batch_stays_skipped():
    callback = PFDLCallback(hidden=8)
    trainer(callback).fit(Own("none"), loader())
    assert callback.decorrelate.completed_fits == 0


def test_g_is_part_of_lightnings_checkpoints(tmp_path):
    first = PFDLCallback(hidden=8)
    run = trainer(first)
    run.fit(Own(), loader())
    run.save_checkpoint(tmp_path / "last.ckpt")
    second = PFDLCallback(hidden=8)
    trainer(second).fit(Own(), loader(), ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert second.decorrelate.completed_fits == first.decorrelate.completed_fits == 2
    for here, there in zip(
        second.decorrelate.parameters(), first.decorrelate.parameters(), strict=True
    ):
        assert torch.equal(here, there)


def test_the_layer_can_be_named():
    callback = PFDLCallback(layer="body", hidden=8)
    trainer(callback).fit(Own(), loader())
    assert callback.decorrelate.decomposition.num_features == 5


def test_what_cannot_work_is_a_sentence():
    manual = Own()
    manual.automatic_optimization = False
    with pytest.raises(ValueError, match="optimises manually"):
        trainer(PFDLCallback()).fit(manual, loader())
    odd = Own()
    odd.body = nn.Sequential(odd.body, nn.ReLU())
    with pytest.raises(ValueError, match="does not tell the width"):
        trainer(PFDLCallback(layer="body.1")).fit(odd, loader())


def test_outside_of_a_fit_nothing_is_watched():
    callback = PFDLCallback()
    model = Own()
    model.validation_step = lambda batch, batch_idx: None
    trainer(callback).validate(model, loader(), verbose=False)
    assert callback.decorrelate is None
    assert callback.state_dict() == {}


def test_a_batch_of_one_keeps_its_loss():
    data = DataLoader(TensorDataset(torch.randn(5, 5), torch.arange(5) % 3), batch_size=4)
    callback = PFDLCallback(hidden=8)
    with pytest.warns(UserWarning, match="a batch of one sample is trained without the penalty"):
        trainer(callback).fit(Own(), data)
    assert callback.decorrelate.completed_fits == 1


def test_the_classifier_trains_in_lightning_as_without_it_and_logs_its_validation():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (16, 3, 8, 8), generator=generator).byte()
    labels, contexts = torch.arange(16) % 2, torch.arange(16) // 2 % 2
    config = TrainingConfig(
        "mlp", "groupdro+pfdl", image_size=8, epochs=1, batch_size=16, augment="none"
    )
    torch.manual_seed(0)
    model = ImageClassifier(config, 2)
    twin = Classifier(config, 2)
    twin.load_state_dict(model.state_dict())
    data = DataLoader(TensorDataset(images, labels, contexts), batch_size=16)
    run = trainer()
    run.fit(model, data, DataLoader(data.dataset, batch_size=5))
    means = fit(twin, images, labels, contexts)
    for here, there in zip(model.backbone.parameters(), twin.backbone.parameters(), strict=True):
        torch.testing.assert_close(here, there)
    logged = {name: value.item() for name, value in run.callback_metrics.items()}
    assert {name: logged[name] for name in means} == pytest.approx(means)
    right = (twin.eval()(images).argmax(1) == labels).float()
    assert logged["val_accuracy"] == pytest.approx(right.mean().item())
    groups = [
        right[(labels == label) & (contexts == context)].mean()
        for label, context in product((0, 1), repeat=2)
    ]
    assert logged["val_worst_group"] == pytest.approx(min(groups).item())
    with pytest.raises(ValueError, match="needs the context of every sample"):
        trainer().fit(model, DataLoader(TensorDataset(images, labels), batch_size=8))


def test_the_classifier_refuses_a_strategy_that_would_shard_g():
    model = ImageClassifier(TrainingConfig("mlp", "pfdl", image_size=8), 2)
    model.trainer = SimpleNamespace(strategy=FSDPStrategy())
    with pytest.raises(ValueError, match="use ModelParallelStrategy"):
        model.setup("fit")
