import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pfdl.objectives import objective as objective_module
from pfdl.objectives.objective import Objective, make_objective
from pfdl.objectives.penalties import CORAL, IRM, PartialDecorrelation, Quantization, VREx
from pfdl.objectives.weightings import (
    CNBB,
    DWR,
    Balance,
    GroupDRO,
    Product,
    SceneBalance,
    StableNet,
    Uniform,
    Weighting,
)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return {
        "logits": torch.randn(8, 3, generator=generator, requires_grad=True),
        "labels": torch.randint(3, (8,), generator=generator),
        "features": torch.randn(8, 6, generator=generator, requires_grad=True),
        "environments": torch.arange(8) % 2,
    }


class ByRisk(Weighting):
    """Weighs each sample by its risk."""

    needs = ("risks", "environments")

    def forward(self, risks, environments):
        assert not risks.requires_grad
        assert environments.tolist() == [0, 1] * 4
        return risks / risks.mean()


def test_without_parts_it_is_the_mean_risk(batch):
    torch.testing.assert_close(
        Objective()(batch["logits"], batch["labels"]), F.cross_entropy(batch["logits"], batch["labels"])
    )


def test_the_penalties_are_added(batch):
    parts = [IRM(weight=0.5), VREx(weight=0.25)]
    expected = F.cross_entropy(batch["logits"], batch["labels"])
    for part in parts:
        expected = expected + part(batch["logits"], batch["labels"], batch["environments"])
    torch.testing.assert_close(Objective(parts)(**batch), expected)


def test_the_published_penalty_in_an_objective_is_the_same_as_by_hand(batch):
    torch.manual_seed(0)
    by_hand = PartialDecorrelation(6, weight=3.0, hidden=4, sharing="strict")
    torch.manual_seed(0)
    objective = make_objective("pfdl-paper", 6, **{"pfdl-paper": {"weight": 3.0, "hidden": 4}})
    for _ in range(3):  # g is trained inside, so the second and third calls differ from the first
        expected = F.cross_entropy(batch["logits"], batch["labels"]) + by_hand(batch["features"])
        torch.testing.assert_close(objective(**batch), expected)


def test_a_weighting_gets_what_it_needs_and_carries_no_gradient(batch):
    risks = F.cross_entropy(batch["logits"], batch["labels"], reduction="none")
    expected = (risks.detach() / risks.detach().mean() * risks).mean()
    loss = Objective(weighting=ByRisk())(**batch)
    torch.testing.assert_close(loss, expected)
    ours, theirs = (torch.autograd.grad(value, batch["logits"], retain_graph=True)[0] for value in (loss, expected))
    torch.testing.assert_close(ours, theirs)


def test_everything_is_divided_by_a_weight_above_one_once_it_acts(batch):
    environments, logits, labels = batch["environments"], batch["logits"], batch["labels"]
    risk, penalty = F.cross_entropy(logits, labels), IRM()(logits, labels, environments)
    objective = Objective([IRM(weight=40.0, anneal=1)])
    assert objective.divisor() == 1
    torch.testing.assert_close(objective(logits, labels, environments=environments), risk + penalty)
    assert objective.divisor() == 40
    torch.testing.assert_close(objective(logits, labels, environments=environments), (risk + 40 * penalty) / 40)


def test_the_weight_of_pfdl_does_not_divide(batch):
    assert make_objective("pfdl-paper", 6, **{"pfdl-paper": {"weight": 100.0}}).divisor() == 1


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("erm", []),
        ("irm", [IRM]),
        ("vrex", [VREx]),
        ("pfdl", [SceneBalance]),
        ("pfdl-paper", [PartialDecorrelation]),
        ("irm+pfdl", [IRM, SceneBalance]),
        ("erm+pfdl-paper", [PartialDecorrelation]),
        ("vrex+pfdl-paper+irm", [VREx, PartialDecorrelation, IRM]),
        ("pfdl+pfdl-paper", [SceneBalance, PartialDecorrelation]),
        ("coral", [CORAL]),
        ("dwr", [DWR]),
        ("cnbb", [CNBB, Quantization]),
        ("stablenet+pfdl-paper", [StableNet, PartialDecorrelation]),
        ("stablenet+pfdl", [Product]),
        ("groupdro+coral", [GroupDRO, CORAL]),
    ],
)
def test_names_compose(name, parts, batch):
    settings = {"groupdro": {"num_environments": 4}} if "groupdro" in name else {}
    objective = make_objective(name, 6, **settings)
    weightings = [part for part in parts if issubclass(part, Weighting)]
    assert [type(part) for part in objective.penalties] == [part for part in parts if part not in weightings]
    assert isinstance(objective.weighting, *(weightings or [Uniform]))
    objective(**batch).backward()
    assert torch.isfinite(batch["logits"].grad).all()


def test_a_weighting_becomes_available_with_one_line(monkeypatch, batch):
    monkeypatch.setitem(objective_module.RECIPES, "by-risk", lambda num_features: (ByRisk(), IRM()))
    objective = make_objective("by-risk+pfdl-paper", 6)
    assert isinstance(objective.weighting, ByRisk)
    assert [type(part) for part in objective.penalties] == [IRM, PartialDecorrelation]


def test_weightings_multiply(batch):
    objective = make_objective("balance+pfdl", 6)
    assert objective.needs == {"labels", "environments"}
    weights = objective.weighting(batch["labels"], batch["environments"])
    once = Balance()(batch["labels"], batch["environments"])
    torch.testing.assert_close(weights, once**2 / (once**2).mean())
    assert float(objective.weighting.effective_sample_size) == pytest.approx(
        float(weights.sum() ** 2 / weights.square().sum()), rel=1e-5
    )
    objective.weighting.prepare(batch["labels"], batch["environments"])
    torch.testing.assert_close(objective.weighting(batch["labels"], batch["environments"]), weights)


def test_only_with_pfdl_are_contexts_inferred():
    inferred = [name for name in ("erm", "irm", "balance", "pfdl", "irm+pfdl", "stablenet+pfdl", "pfdl-paper")
                if make_objective(name, 6).infers_contexts]  # fmt: skip
    assert inferred == ["pfdl", "irm+pfdl", "stablenet+pfdl"]


def test_it_says_what_it_reads():
    assert make_objective("erm", 6).needs == set()
    assert make_objective("pfdl", 6).needs == {"labels", "environments"}
    assert make_objective("pfdl-paper", 6).needs == {"features"}
    assert make_objective("irm", 6).needs == {"logits", "labels", "environments"}


@pytest.mark.parametrize(
    ("name", "missing"), [("pfdl-paper", "features"), ("pfdl", "environments"), ("irm", "environments")]
)
def test_what_is_missing_is_named(name, missing, batch):
    del batch[missing]
    with pytest.raises(ValueError, match=f"needs {missing}; pass {missing}=..."):
        make_objective(name, 6)(**batch)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "irm+nothing",
            {},
            "'nothing' in the objective 'irm\\+nothing' is unknown; choose from balance, cnbb, coral, dwr, erm,",
        ),
        ("", {}, "'' in the objective '' is unknown"),
        ("irm+irm", {}, "names a part twice"),
        ("irm", {"pfdl": {"weight": 1.0}}, "settings for pfdl were given but the objective is 'irm'"),
    ],
)
def test_a_name_that_makes_no_sense_is_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        make_objective(name, 6, **settings)


def test_its_state_holds_that_of_its_parts(batch):
    objective = make_objective("irm+pfdl+pfdl-paper", 6, irm={"anneal": 1, "weight": 9.0})
    objective(**batch)
    resumed = make_objective("irm+pfdl+pfdl-paper", 6, irm={"anneal": 1, "weight": 9.0})
    resumed.load_state_dict(objective.state_dict())
    assert resumed.divisor() == 9
    torch.testing.assert_close(resumed(**batch), objective(**batch))


def test_it_is_a_module_without_a_say_in_the_models_gradients(batch):
    head = nn.Linear(6, 3)
    objective = Objective([PartialDecorrelation(6)])
    objective(head(batch["features"]), batch["labels"], features=batch["features"]).backward()
    assert all(parameter.grad is None for parameter in objective.parameters())
