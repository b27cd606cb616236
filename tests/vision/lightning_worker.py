"""A LightningModule that carries the penalty, trained with two CPU processes; started by test_distributed.py."""

import sys

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import lightning
from tests.decorrelation.distributed_worker import model, penalty


class Module(lightning.LightningModule):
    """The user's own module: its training step knows nothing of processes."""

    def __init__(self):
        super().__init__()
        self.model, self.penalty = model(), penalty({})

    def training_step(self, batch, _):
        return self.penalty(self.model(batch[0]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self):
        """Eight rows at a time, in order, whoever has them."""
        x = torch.randn(24, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        world, rank = self.trainer.world_size, self.trainer.global_rank
        sampler = DistributedSampler(x, world, rank, shuffle=False)
        return DataLoader(TensorDataset(x), batch_size=8 // world, sampler=sampler)


def trainer(**options):
    return lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, **options,
    )  # fmt: skip


def main():
    torch.set_num_threads(1)
    module = Module()
    fit = trainer(strategy="ddp", devices=2)
    fit.fit(module)
    if fit.global_rank == 0:
        torch.save(module.state_dict(), sys.argv[1])


if __name__ == "__main__":
    main()
