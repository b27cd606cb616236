"""What docs/how-to/loop.md says on layers, accumulation, torch.compile and Hugging Face's Trainer,
in numbers.
"""

import copy
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pfdl

PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "loop.md").read_text(encoding="utf-8")


def run_section(title, namespace):
    """Run the code below a heading of the page."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(
        r"^```python(?: notest)?\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE
    )
    exec(compile(code, title, "exec"), namespace)
    return SimpleNamespace(**namespace)


@pytest.fixture
def start():
    """What the sections go on with: a model with a tap, data, an optimiser and a penalty."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))
    tap = pfdl.attach(model)
    x = torch.randn(64, 20)
    y = torch.randint(3, (64,))
    decorrelate = pfdl.PartialDecorrelation(16, hidden=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = {
        "model": model,
        "tap": tap,
        "x": x,
        "y": y,
        "decorrelate": decorrelate,
        "optimizer": optimizer,
    }
    return {"torch": torch, "F": F, "pfdl": pfdl, **names}


def loss_by_hand(model, x, y, decorrelate):
    """Return the loss of a model of two linear layers, without a tap."""
    features = F.relu(F.linear(x, model[0].weight, model[0].bias))
    return F.cross_entropy(F.linear(features, model[2].weight, model[2].bias), y) + decorrelate(
        features
    )


def gradients(model):
    return [parameter.grad for parameter in model.parameters()]


def test_several_layers_have_a_penalty_each(start):
    made = []

    def make(width):
        penalty = pfdl.PartialDecorrelation(width, hidden=8)
        made.append(copy.deepcopy(penalty))
        return penalty

    start["pfdl"] = SimpleNamespace(attach=pfdl.attach, PartialDecorrelation=make)
    found = run_section("Several layers", start)
    deep = copy.deepcopy(found.deep)
    deep.zero_grad()
    first = F.relu(F.linear(found.x, deep[0].weight, deep[0].bias))
    second = F.relu(F.linear(first, deep[2].weight, deep[2].bias))
    expected = F.cross_entropy(F.linear(second, deep[4].weight, deep[4].bias), found.y)
    expected = expected + made[0](first) + made[1](second)
    expected.backward()
    torch.testing.assert_close(found.loss, expected)
    torch.testing.assert_close(gradients(found.deep), gradients(deep))


def test_accumulated_gradients_are_the_mean_of_those_of_the_parts(start):
    model, decorrelate = copy.deepcopy(start["model"]), copy.deepcopy(start["decorrelate"])
    found = run_section("Gradient accumulation", start)
    total = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for rows in torch.arange(64).chunk(4):
        loss = loss_by_hand(model, start["x"][rows], start["y"][rows], decorrelate)
        for sum_, part in zip(
            total, torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            sum_ += part / 4
    torch.testing.assert_close(gradients(found.model), total)
    for parameter, gradient, after in zip(
        model.parameters(), total, found.model.parameters(), strict=True
    ):
        torch.testing.assert_close(after, parameter - 0.1 * gradient)
    torch.testing.assert_close(found.decorrelate.state_dict(), decorrelate.state_dict())


def test_a_compiled_model_has_the_eager_loss_and_gradients(start, monkeypatch):
    model, decorrelate = copy.deepcopy(start["model"]), copy.deepcopy(start["decorrelate"])
    expected = loss_by_hand(model, start["x"], start["y"], decorrelate)
    expected.backward()
    real = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda module: real(module, backend="aot_eager", fullgraph=True)
    )
    start["tap"].detach()
    found = run_section("torch.compile", start)
    torch.testing.assert_close(found.loss, expected)
    torch.testing.assert_close(gradients(found.model), gradients(model))


class StandIn:
    """Have what the page needs of Hugging Face's Trainer, for models that return logits."""

    def __init__(self, model, args):
        self.model, self.args = model, args

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits = model(inputs["pixel_values"])
        loss = F.cross_entropy(logits, inputs["labels"])
        return (loss, {"logits": logits}) if return_outputs else loss


def test_hugging_faces_trainer_adds_the_penalty_in_training_alone(start, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(Trainer=StandIn))
    start["tap"].detach()
    model = start["model"]
    inputs = {"pixel_values": start["x"], "labels": start["y"]}
    trainer = run_section("Hugging Face's Trainer", start).DecorrelatingTrainer(
        model, args=SimpleNamespace(device="cpu")
    )
    decorrelate = copy.deepcopy(trainer.decorrelate)
    for _ in range(3):
        expected = loss_by_hand(model, start["x"], start["y"], decorrelate)
        torch.testing.assert_close(
            trainer.compute_loss(model.train(), inputs, num_items_in_batch=64), expected
        )
    before = copy.deepcopy(trainer.decorrelate.state_dict())
    loss, outputs = trainer.compute_loss(model.eval(), inputs, return_outputs=True)
    torch.testing.assert_close(loss, F.cross_entropy(outputs["logits"], start["y"]))
    torch.testing.assert_close(trainer.decorrelate.state_dict(), before)
