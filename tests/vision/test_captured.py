"""Recorded steps against the same steps launch by launch; the numbers need a GPU."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pfdl._internal.cuda_graphs import CALLS_BEFORE
from pfdl._internal.interleaving import run_interleaved
from pfdl.objectives import Objective
from pfdl.objectives.penalties import Penalty
from pfdl.vision import Classifier, TrainingConfig, fit
from pfdl.vision.launching import make_fabric
from pfdl.vision.loading import EpochSampler, TensorBatches
from pfdl.vision.loop import Loop

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")

IMAGES, CLASSES, CONTEXTS = 72, 3, 4
RECORDED = [
    "erm",
    "pfdl",
    "covariance",
    "irm",
    "vrex",
    "coral",
    "groupdro",
    "balance",
    "cvar",
    "cnbb",
    "dwr",
    "dwr-samples",
    "irm+pfdl",
    "balance+cvar+pfdl",
]


@pytest.fixture
def deterministic():
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    yield
    torch.backends.cudnn.deterministic = before
    torch.use_deterministic_algorithms(False)


class Dropping(nn.Module):
    """A classifier whose steps draw random numbers on the GPU."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, CLASSES)

    def forward(self, images):
        return self.head(F.dropout(self.body(images).mean((2, 3)), 0.3, self.training))


class Looking(Dropping):
    """A classifier whose steps wait for a value."""

    def forward(self, images):
        logits = super().forward(images)
        return logits if float(logits.detach().abs().max()) < 1e9 else logits * 0


class Counting(Penalty):
    """A penalty of somebody else, which counts in Python."""

    calls = 0

    def forward(self, features):
        self.calls += 1
        return features.square().mean() * 1e-3


def samples(seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (IMAGES, 3, 16, 16), generator=generator).byte()
    labels = torch.arange(IMAGES) % CLASSES
    contexts = torch.randint(CONTEXTS, (IMAGES,), generator=generator)
    return images, labels, contexts


def make_loop(objective="erm", *, capture="auto", backbone=None, own=None, **changes):
    settings = {"epochs": 2, "batch_size": 8, "image_size": 16, **changes}
    config = TrainingConfig("small", objective, capture=capture, **settings)
    torch.manual_seed(0)
    model = Classifier(config, CLASSES, backbone=backbone, objective=own)
    fabric = make_fabric("cuda", precision=config.precision)
    images, labels, contexts = samples()
    parts = [images, labels, contexts, torch.arange(IMAGES)]
    on_gpu = [part.to(fabric.device) for part in parts]
    batches = TensorBatches(on_gpu, config.batch_size, EpochSampler(config, labels, contexts))
    loop = Loop(model, batches, fabric)
    model.prepare(on_gpu[1], on_gpu[2])
    return loop


def finish(loop):
    """Train to the end; return the means of each epoch."""
    means = []
    while loop.epoch < loop.model.config.epochs:
        for _ in loop.train_epoch():
            pass
        means.append(loop.end_epoch())
    return means


def take_waiting(steps):
    """Take the steps that are left, and wait for the GPU after each."""
    for _ in steps:
        torch.cuda.synchronize()


def state_of(loop):
    state = loop.model.state_dict()
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    for number, moments in loop.optimizer.state_dict()["state"].items():
        tensors |= {
            f"{number} {name}": value for name, value in moments.items() if value is not None
        }
    return tensors


def assert_equal_states(mine, other):
    mine = state_of(mine)
    other = state_of(other)
    assert mine.keys() == other.keys()
    different = [name for name, value in mine.items() if not torch.equal(value, other[name])]
    assert different == []


def train_both_ways(objective="erm", **changes):
    """Train with and without recordings, assert that nothing differs, and return the former."""
    backbone = changes.pop("backbone", None)
    recorded = make_loop(objective, backbone=copy.deepcopy(backbone), **changes)
    means = finish(recorded)
    plain = make_loop(objective, capture="never", backbone=backbone, **changes)
    assert finish(plain) == means
    assert "capture is 'never'" in plain.pace
    assert_equal_states(recorded, plain)
    return recorded


@needs_gpu
@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("objective", RECORDED)
def test_a_recorded_training_is_the_same_bit_for_bit(objective):
    assert "recorded and replayed" in train_both_ways(objective).pace


@needs_gpu
@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "adamw", "schedule": "cosine", "learning_rate": 1e-3},
        {"schedule": "step", "decay_every": 1},
        {"precision": "bf16"},
        {"augment": "none"},
        {"sampler": "groups"},
    ],
    ids=str,
)
def test_schedules_and_settings_reach_a_recorded_step(changes):
    assert "recorded and replayed" in train_both_ways("pfdl", **changes).pace


@needs_gpu
@pytest.mark.usefixtures("deterministic")
def test_a_recorded_step_draws_what_its_seed_says():
    torch.manual_seed(1)
    assert "recorded and replayed" in train_both_ways(backbone=Dropping()).pace


@needs_gpu
@pytest.mark.usefixtures("deterministic")
def test_a_weight_that_changes_is_recorded_again():
    settings = {"irm": {"weight": 10.0, "anneal": 7}}
    loop = train_both_ways("irm", objective_settings=settings)
    (irm,) = loop.model.objective.penalties
    assert irm.completed_calls == 2 * (IMAGES // 8)


@needs_gpu
@pytest.mark.usefixtures("deterministic")
def test_a_training_goes_on_from_its_state_in_the_middle_of_an_epoch():
    whole = make_loop("pfdl")
    finish(whole)
    stopped = make_loop("pfdl")
    for _ in stopped.train_epoch():
        if stopped.step == CALLS_BEFORE + 3:
            break
    resumed = make_loop("pfdl")
    resumed.model.load_state_dict(stopped.model.state_dict())
    resumed.model.means.load_state_dict(stopped.model.means.state_dict())
    resumed.optimizer.load_state_dict(copy.deepcopy(stopped.optimizer.state_dict()))
    resumed.step = stopped.step
    finish(resumed)
    assert_equal_states(resumed, whole)


@needs_gpu
def test_what_python_does_in_a_step_keeps_it_from_being_recorded():
    own = Objective([Counting()])
    loop = make_loop(own=own)
    finish(loop)
    assert "needs Python in every step" in loop.pace
    assert own.penalties[0].calls == 2 * (IMAGES // 8)


@needs_gpu
def test_a_backbone_that_waits_for_values_is_never_recorded():
    loop = make_loop(backbone=Looking())
    finish(loop)
    assert "waits for values" in loop.pace


@needs_gpu
def test_features_of_no_use_are_reported_by_one_of_the_next_steps():
    loop = make_loop("pfdl", epochs=20)
    steps = loop.train_epoch()
    for _ in range(CALLS_BEFORE + 2):
        next(steps)
    next(loop.model.backbone.parameters()).data.fill_(math.inf)
    with pytest.raises(ValueError, match="an earlier batch had a NaN"):
        take_waiting(steps)


class Refusing(Dropping):
    """A classifier that lets no step be recorded, and draws."""

    def forward(self, images):
        logits = super().forward(images)
        if images.is_cuda and torch.cuda.is_current_stream_capturing():
            float(logits.detach().sum())
        return logits


@needs_gpu
@pytest.mark.usefixtures("deterministic")
def test_a_recording_that_fails_leaves_the_training_as_it_was():
    torch.manual_seed(1)
    assert "recording one failed" in train_both_ways("pfdl", backbone=Refusing()).pace


@needs_gpu
@pytest.mark.usefixtures("deterministic")
def test_trainings_side_by_side_are_those_that_run_alone():
    def train(seed):
        config = TrainingConfig("small", "pfdl", epochs=2, batch_size=8, image_size=16, seed=seed)
        torch.manual_seed(seed)
        model = Classifier(config, CLASSES)
        means = fit(model, *samples(seed), device="cuda")
        torch.cuda.synchronize()
        return means, {name: value.cpu() for name, value in model.backbone.state_dict().items()}

    alone = {seed: train(seed) for seed in range(3)}
    tasks = [(seed, partial(train, seed)) for seed in range(3)]
    for seed, (means, weights) in run_interleaved(tasks, 3, "cuda"):
        means_alone, weights_alone = alone[seed]
        assert means == means_alone
        for name, value in weights.items():
            assert torch.equal(value, weights_alone[name])


def test_without_a_gpu_nothing_is_recorded():
    config = TrainingConfig("small", batch_size=8, image_size=16)
    model = Classifier(config, CLASSES)
    images, labels, contexts = samples()
    batches = TensorBatches([images, labels, contexts], 8, EpochSampler(config, labels, contexts))
    loop = Loop(model, batches, make_fabric("cpu"))
    for _ in loop.train_epoch():
        pass
    assert "there is no GPU" in loop.pace
