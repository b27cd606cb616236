"""Parts that have seen the whole training set, and do not look at values, compute what they did
before: so they compute in a recorded step.
"""

import copy

import pytest
import torch

from pfdl._internal.cuda_graphs import without_looking
from pfdl.objectives import Objective, make_objective
from pfdl.objectives.penalties import Penalty

N, P, CLASSES, CONTEXTS = 24, 6, 3, 5
NAMES = [
    "erm",
    "irm",
    "vrex",
    "coral",
    "groupdro",
    "balance",
    "cvar",
    "cnbb",
    "dwr",
    "balance+cvar",
    "irm+groupdro",
]


def training_set(seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (200,), generator=generator)
    contexts = torch.randint(CONTEXTS, (200,), generator=generator)
    return labels, contexts


def batch(seed):
    """A batch without the fourth context, and with one sample of the third."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(N, P, generator=generator)
    logits = torch.randn(N, CLASSES, generator=generator)
    labels = torch.randint(CLASSES, (N,), generator=generator)
    contexts = torch.tensor([0, 1, 4])[torch.randint(3, (N,), generator=generator)]
    contexts[5] = 2
    return logits.requires_grad_(), labels, features.requires_grad_(), contexts


def loss_and_gradients(objective, seed):
    logits, labels, features, contexts = batch(seed)
    loss = objective(logits, labels, features=features, environments=contexts)
    loss.backward()
    return [loss.detach(), logits.grad, features.grad]


def assert_same(mine, others):
    for value, other in zip(mine, others, strict=True):
        assert (value is None) == (other is None)
        if value is not None:
            torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["irm", "vrex", "coral"])
def test_knowing_all_environments_changes_no_value(name):
    known = make_objective(name, P, num_classes=CLASSES)
    unknown = copy.deepcopy(known)
    known.prepare(*training_set())
    for seed in range(20):
        assert_same(loss_and_gradients(known, seed), loss_and_gradients(unknown, seed))


@pytest.mark.parametrize("name", NAMES)
def test_a_part_that_does_not_look_computes_the_same_to_the_bit(name):
    looking = make_objective(name, P, num_classes=CLASSES)
    looking.prepare(*training_set())
    unseeing = copy.deepcopy(looking)
    for seed in range(5):
        expected = loss_and_gradients(looking, seed)
        assert unseeing.recording_key() is not None
        with without_looking():
            found = loss_and_gradients(unseeing, seed)
        for value, other in zip(found, expected, strict=True):
            assert (value is None) == (other is None)
            assert value is None or torch.equal(value, other)
    state = unseeing.state_dict()
    for name, value in looking.state_dict().items():
        assert not isinstance(value, torch.Tensor) or torch.equal(value, state[name])


@pytest.mark.parametrize("name", ["groupdro", "balance"])
def test_buffers_stay_where_a_recording_finds_them(name):
    objective = make_objective(name, P, num_classes=CLASSES)
    assert objective.recording_key() is None  # the groups are not known yet
    objective.prepare(*training_set())
    key = objective.recording_key()
    loss_and_gradients(objective, 0)
    assert objective.recording_key() == key


def test_a_weight_that_rises_is_part_of_the_key_and_replays_are_counted():
    objective = make_objective("irm", P, irm={"weight": 100.0, "anneal": 2})
    objective.prepare(*training_set())
    before = objective.recording_key()
    objective.note_replay()
    assert objective.recording_key() == before
    objective.note_replay()
    assert objective.recording_key() != before
    assert objective.penalties[0].completed_calls == 2


def test_penalties_of_others_and_changed_objectives_are_not_recorded():
    class Own(Penalty):
        def forward(self, features):
            return features.square().mean()

    class Changed(Objective):
        def forward(self, *batch, **parts):
            return super().forward(*batch, **parts)

    hooked = Objective()
    hooked.register_forward_pre_hook(lambda *_: None)
    for objective in (Objective([Own()]), Changed(), hooked):
        assert objective.recording_key() is None
    assert Objective().recording_key() is not None


def test_pfdl_reports_at_once_on_a_cpu_and_is_not_recorded_there():
    assert make_objective("pfdl", P).recording_key() is None
