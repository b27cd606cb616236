"""PFDL in a LightningModule of your own: one entry in the trainer's list of callbacks.

Run: python examples/lightning_callback.py
"""

import logging
import warnings

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from pfdl.lightning import PFDLCallback


class YourModule(LightningModule):
    """Any module; nothing in it knows of PFDL."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss, as you would write it without PFDL."""
        inputs, labels = batch
        return F.cross_entropy(self.head(self.body(inputs)), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser, as you would without PFDL."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(256, 20), torch.randint(0, 3, (256,)))
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[
            PFDLCallback()
        ],  # the features are what enters the last linear layer, here `head`
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(YourModule(), DataLoader(data, batch_size=64))
    for name in ("L_g", "L_decorr", "R2"):
        print(f"{name}: {float(trainer.callback_metrics[name]):.4f}")


if __name__ == "__main__":
    main()
