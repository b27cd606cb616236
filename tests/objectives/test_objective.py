import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pfdl import PartialDecorrelation
from pfdl.objectives import Objective, list_objectives, make_objective, register_objective, registry
from pfdl.objectives.penalties import CORAL, IRM, Penalty, Quantization, VREx
from pfdl.objectives.weightings import (
    CNBB,
    Balance,
    BatchDWR,
    GroupDRO,
    Product,
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
        Objective()(batch["logits"], batch["labels"]),
        F.cross_entropy(batch["logits"], batch["labels"]),
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
    objective = make_objective("pfdl", 6, **{"pfdl": {"weight": 3.0, "hidden": 4}})
    for _ in range(3):  # g is trained inside, so the second and third calls differ from the first
        expected = F.cross_entropy(batch["logits"], batch["labels"]) + by_hand(batch["features"])
        torch.testing.assert_close(objective(**batch), expected)


def test_a_weighting_gets_what_it_needs_and_carries_no_gradient(batch):
    risks = F.cross_entropy(batch["logits"], batch["labels"], reduction="none")
    expected = (risks.detach() / risks.detach().mean() * risks).mean()
    loss = Objective(weighting=ByRisk())(**batch)
    torch.testing.assert_close(loss, expected)
    ours = torch.autograd.grad(loss, batch["logits"], retain_graph=True)
    torch.testing.assert_close(ours, torch.autograd.grad(expected, batch["logits"]))


def test_everything_is_divided_by_a_weight_above_one_once_it_acts(batch):
    given = (batch["logits"], batch["labels"])
    environments = batch["environments"]
    risk = F.cross_entropy(*given)
    penalty = IRM()(*given, environments)
    objective = Objective([IRM(weight=40.0, anneal=1)])
    assert objective.divisor() == 1
    torch.testing.assert_close(objective(*given, environments=environments), risk + penalty)
    assert objective.divisor() == 40
    loss = objective(*given, environments=environments)
    torch.testing.assert_close(loss, (risk + 40 * penalty) / 40)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("erm", []),
        ("irm", [IRM]),
        ("vrex", [VREx]),
        ("balance", [Balance]),
        ("coral", [CORAL]),
        ("dwr", [BatchDWR]),
        ("vrex+pfdl+irm", [VREx, PartialDecorrelation, IRM]),
        ("cnbb", [CNBB, Quantization]),
        ("stablenet+balance", [Product]),
        ("groupdro+coral", [GroupDRO, CORAL]),
    ],
)
def test_names_compose(name, parts, batch):
    objective = make_objective(name, 6)
    weightings = [part for part in parts if issubclass(part, Weighting)]
    penalties = [part for part in parts if part not in weightings]
    assert [type(part) for part in objective.penalties] == penalties
    assert type(objective.weighting) is (weightings[0] if weightings else Uniform)
    objective(**batch).backward()
    assert torch.isfinite(batch["logits"].grad).all()


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))


@pytest.mark.usefixtures("registered")
class TestRegistering:
    def test_a_class_becomes_available_under_a_name(self, batch):
        register_objective("by-risk", ByRisk)
        objective = make_objective("by-risk+pfdl", 6)
        assert isinstance(objective.weighting, ByRisk)
        assert [type(part) for part in objective.penalties] == [PartialDecorrelation]
        assert objective(**batch).isfinite()

    def test_a_function_gets_the_shape_of_the_data_and_may_return_several_parts(self):
        seen = []

        def both(shape, *, weight=2.0):
            """Weigh by risk, and IRM."""
            seen.append((shape.num_features, shape.num_classes, shape.num_contexts))
            return ByRisk(), IRM(weight)

        register_objective("both", both)
        objective = make_objective("both", 6, num_classes=3, num_contexts=4, both={"weight": 5.0})
        assert seen == [(6, 3, 4)]
        assert [type(part) for part in objective.penalties] == [IRM]
        assert objective.penalties[0].weight == 5.0
        (listed,) = [one for one in list_objectives() if one.name == "both"]
        assert (listed.summary, listed.settings) == ("Weigh by risk, and IRM.", ("weight=2.0",))

    @pytest.mark.parametrize(
        ("name", "message"), [("pfdl", "already"), ("a+b", "letters"), ("", "letters")]
    )
    def test_a_name_that_cannot_be_used_is_refused(self, name, message):
        with pytest.raises(ValueError, match=message):
            register_objective(name, ByRisk)

    def test_what_cannot_be_called_is_refused(self):
        with pytest.raises(TypeError, match="the factory of 'mine' is a int; give a class"):
            register_objective("mine", 3)

    def test_an_entry_point_is_found(self, monkeypatch):
        class Point:
            name = "from-a-package"
            load = staticmethod(lambda: ByRisk)

        registry._load_entry_points.cache_clear()
        monkeypatch.setattr(
            registry, "entry_points", lambda group: [Point] if group == "pfdl.objectives" else []
        )
        assert isinstance(make_objective("from-a-package", 6).weighting, ByRisk)
        registry._load_entry_points.cache_clear()


def test_each_objective_is_described():
    listed = {one.name: one for one in list_objectives()}
    assert listed["pfdl"].needs == ("features",)
    assert listed["irm"].needs == listed["balance"].needs == ("contexts",)
    assert "sharing='strict'" in listed["pfdl"].settings
    assert "weight=1.0" in listed["irm"].settings
    assert listed["cnbb"].reference == "He et al., 2021"
    assert all(one.summary.endswith(".") for one in listed.values())


def test_what_is_no_penalty_is_refused():
    with pytest.raises(TypeError, match="Linear is no penalty"):
        Objective([nn.Linear(2, 2)])
    assert Penalty().metrics() == {}


def test_an_unknown_setting_is_answered_with_the_valid_ones():
    with pytest.raises(ValueError, match=r"'irm' has no setting wait; it has weight, anneal"):
        make_objective("irm", 6, irm={"wait": 3})
    with pytest.raises(ValueError, match=r"'erm' has no setting weight; it has none"):
        make_objective("erm", 6, erm={"weight": 3})


class TestSeveralWeightings:
    @pytest.fixture
    def product(self):
        return make_objective("balance+cnbb", 6, cnbb={"steps": 50}).weighting

    def call(self, weighting, batch):
        return weighting(*(batch[name].detach() for name in weighting.needs))

    def test_their_weights_are_multiplied_and_scaled_to_a_mean_of_1(self, product, batch):
        assert isinstance(product, Product)
        both = self.call(Balance(), batch) * self.call(CNBB(steps=50), batch)
        torch.testing.assert_close(self.call(product, batch), both / both.mean())

    def test_the_effective_sample_size_is_that_of_the_product(self, product, batch):
        weights = self.call(product, batch)
        size = weights.sum() ** 2 / weights.square().sum()
        torch.testing.assert_close(product.effective_sample_size, size)

    def test_what_a_factor_learnt_is_logged(self, batch):
        product = Product([BatchDWR(), Balance()])
        self.call(product, batch)
        assert "mean_weight" in product.metrics()

    def test_all_are_prepared(self, product, batch):
        product.prepare(batch["labels"], batch["environments"])
        self.call(product, batch)
        assert product.factors[0].table.sum() == 8  # the samples are not counted once more


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("dwr", {"dwr": {"steps": -1}}, "steps is -1"),
        ("dwr-samples", {"dwr-samples": {"steps": -1}}, "steps is -1"),
        ("cnbb", {"cnbb": {"steps": -1}}, "steps is -1"),
        ("stablenet", {"stablenet": {"steps": -1}}, "steps is -1"),
        ("stablenet", {"stablenet": {"learning_rate": float("nan")}}, "learning_rate is nan"),
        ("stablenet", {"stablenet": {"decay": 1.5}}, "decay is 1.5; give a number from 0 to 1"),
        ("stablenet", {"stablenet": {"balance": 0.0}}, "balance is 0"),
        ("balance", {"balance": {"smoothing": -1}}, "smoothing is -1"),
        ("groupdro", {"groupdro": {"step_size": -1}}, "step_size is -1"),
        ("cvar", {"cvar": {"share": 0.0}}, "share is 0.0"),
        ("cvar", {"cvar": {"share": 1.5}}, "share is 1.5"),
        ("irm", {"irm": {"weight": float("inf")}}, r"weight is .*give a finite number"),
        (
            "irm",
            {"irm": {"anneal": 1.5}},
            r"a setting of 'irm' cannot be used: anneal is 1\.5; give a whole number",
        ),
        (
            "irm+nothing",
            {},
            r"'nothing' in the objective 'irm\+nothing' is unknown; choose from balance, cnbb,",
        ),
        ("", {}, "'' in the objective '' is unknown"),
        ("irm+irm", {}, "names a part twice"),
        (
            "irm",
            {"pfdl": {"weight": 1.0}},
            "settings for pfdl were given but the objective is 'irm'",
        ),
    ],
)
def test_names_and_settings_that_make_no_sense_are_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        make_objective(name, 6, **settings)


@pytest.mark.parametrize("name", ["erm", "irm", "groupdro", "cvar", "balance"])
def test_a_batch_without_samples_is_refused(name, batch):
    empty = {key: value[:0] for key, value in batch.items()}
    with pytest.raises(ValueError, match="the batch has no samples; give at least one"):
        make_objective(name, 6)(**empty)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("pfdl", "features"), ("balance", "environments"), ("irm", "environments")],
)
def test_what_is_missing_is_named(name, missing, batch):
    del batch[missing]
    with pytest.raises(ValueError, match=f"needs {missing}; pass {missing}=..."):
        make_objective(name, 6)(**batch)
