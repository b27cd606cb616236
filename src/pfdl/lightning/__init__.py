"""PFDL in a Lightning module of your own, by a callback."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from pfdl._internal.processes import world_size
from pfdl.decorrelation import PartialDecorrelation

try:
    from lightning.pytorch import Callback, LightningModule, Trainer

    from pfdl.vision.features import FeatureTap, attach
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"pfdl.lightning needs the package {error.name}, which is not installed: pip install 'pfdl[images]' brings all "
        "that images need."
    ) from error

__all__ = ["PFDLCallback"]


class PFDLCallback(Callback):
    """Add L_decorr to the loss of your own module, which stays as it is.

    ::

        Trainer(callbacks=[PFDLCallback()]).fit(your_module, your_data)

    The features are the input of the module's last linear layer, or of the layer you name. In each training step g is
    fitted to them and λ·L_decorr is added to the loss that ``training_step`` returned. ``L_g``, ``L_decorr`` and
    ``R2`` are logged. A batch of one sample, where no other process has more, has no correlation: its loss stays as it
    is, with a warning. The state of g is part of Lightning's checkpoints; the weights of your module do not contain g.

    Args:
        weight: λ.
        layer: The layer whose input are the features, as in :func:`pfdl.attach`: ``"model.fc"``.
        **settings: Settings of :class:`pfdl.PartialDecorrelation`.

    Attributes:
        decorrelate: The :class:`pfdl.PartialDecorrelation`, once a fit has begun.
    """

    def __init__(self, weight: float = 1.0, *, layer: str | None = None, **settings: Any) -> None:
        self.weight = weight
        self.layer = layer
        self.settings = settings
        self.decorrelate: PartialDecorrelation | None = None
        self._tap: FeatureTap | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Watch the features and wrap ``training_step``."""
        if stage != "fit":
            return
        if not pl_module.automatic_optimization:
            raise ValueError(
                f"{type(pl_module).__name__} optimises manually, so there is no loss that this callback could add to; "
                "call pfdl.PartialDecorrelation in its training_step instead."
            )
        self._tap = attach(pl_module, self.layer)
        if self._tap.num_features is None:
            raise ValueError(f"the layer {self.layer!r} does not tell the width of its input; name a linear layer.")
        if self.decorrelate is None:
            self.decorrelate = PartialDecorrelation(self._tap.num_features, self.weight, **self.settings)
        pl_module.training_step = self._with_penalty(pl_module)  # type: ignore[method-assign]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move g to the module's device."""
        if self.decorrelate is not None:
            self.decorrelate.to(pl_module.device)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the module as it was."""
        if self._tap is not None:
            self._tap.detach()
            self._tap = None
            del pl_module.training_step

    def state_dict(self) -> dict[str, Any]:
        """Return the state of g, for Lightning's checkpoints."""
        return {} if self.decorrelate is None else dict(self.decorrelate.state_dict())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take what :meth:`state_dict` returned."""
        if self.decorrelate is not None:
            self.decorrelate.load_state_dict(dict(state_dict))

    def _with_penalty(self, pl_module: LightningModule) -> Callable[..., Any]:
        original = pl_module.training_step

        def training_step(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            if output is None:  # the module's way to skip a batch
                return None
            if isinstance(output, Tensor):
                return output + self._penalty(pl_module)
            return {**output, "loss": output["loss"] + self._penalty(pl_module)}

        return training_step

    def _penalty(self, pl_module: LightningModule) -> Tensor:
        if self.decorrelate is None or self._tap is None:
            raise AssertionError("setup() makes both before it wraps training_step")
        features = self._tap.features
        if len(features) < 2 and world_size() == 1:
            warnings.warn("a batch of one sample is trained without the penalty of PFDL.", stacklevel=1)
            return features.new_zeros(())
        penalty: Tensor = self.decorrelate(features)
        for name, value in self.decorrelate.metrics().items():
            pl_module.log(name, value, on_step=False, on_epoch=True, batch_size=len(features))
        return penalty
