"""PFDL for any LightningModule, as one entry in the list of a trainer's callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from pfdl.decorrelation import PartialDecorrelation
from pfdl.vision.features import FeatureTap, attach


class PFDLCallback(Callback):
    """Adds L_decorr to the loss of your own module, which stays as it is.

    ::

        Trainer(callbacks=[PFDLCallback()]).fit(your_module, your_data)

    The features are the input of the module's last linear layer, or of the layer you name. In each training step g is
    fitted to them and λ·L_decorr is added to the loss that ``training_step`` returned. ``L_g``, ``L_decorr`` and
    ``R2`` are logged. The state of g is part of Lightning's checkpoints; the weights of your module do not contain g.

    Args:
        weight: λ.
        layer: The layer whose input are the features, as in :func:`pfdl.attach`: ``"model.fc"``.
        **settings: Of :class:`pfdl.PartialDecorrelation`.

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
        """Bring g to where the module is."""
        if self.decorrelate is not None:
            self.decorrelate.to(pl_module.device)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the module as it was."""
        if self._tap is not None:
            self._tap.detach()
            self._tap = None
            del pl_module.training_step

    def state_dict(self) -> dict[str, Any]:
        """The state of g, for Lightning's checkpoints."""
        return {} if self.decorrelate is None else dict(self.decorrelate.state_dict())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` gave."""
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
        penalty: Tensor = self.decorrelate(features)
        last = self.decorrelate.last
        values = {"L_g": last.decomposition_loss, "L_decorr": last.decorrelation_loss}
        if pl_module.trainer.is_last_batch:  # the one number that waits for the device, once an epoch
            values["R2"] = features.new_tensor(last.summary()["r2"])
        for name, value in values.items():
            if value is not None:
                pl_module.log(name, value, on_step=False, on_epoch=True, batch_size=len(features))
        return penalty
