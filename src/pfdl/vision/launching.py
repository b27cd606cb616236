"""The processes of a training: one per device, started here, by torchrun or by srun, and
connected.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
from lightning.fabric.strategies.strategy import Strategy
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from pfdl._internal.processes import world_size
from pfdl._internal.validation import check_choice, check_count
from pfdl.vision.config import PRECISIONS

TORCHRUN = "torchrun"
SRUN = "srun"
OURSELVES = "pfdl"


class Launch(NamedTuple):
    """The processes that train together.

    Attributes:
        by: Who starts them: torchrun, srun or pfdl.
        per_node: How many there are on each node.
        nodes: The number of nodes.
    """

    by: str
    per_node: int
    nodes: int

    @property
    def processes(self) -> int:
        """The number of processes."""
        return self.per_node * self.nodes


def make_fabric(
    device: str, devices: int | None = 1, strategy: str = "auto", *, precision: str = "32"
) -> Fabric:
    """Return Lightning Fabric for a training, with its processes connected; ValueError if they
    cannot be.

    The arguments are those of :func:`pfdl.vision.train`; the device may also be one GPU, such as
    ``"cuda:1"``. Unless a launcher has started them, or they are connected already, the other
    processes are started: they run the command of this one from its beginning to this call.
    """
    kind, _, number = device.partition(":")
    launch = choose_devices(kind, devices, strategy)
    processes = launch.processes
    if world_size() > 1 and world_size() != processes:
        raise ValueError(
            f"{world_size()} processes are connected already, and {processes} would train; give as"
            " many devices."
        )
    sharing: Strategy | str = "auto" if processes == 1 else "ddp"
    if strategy == "fsdp":
        sharing = ModelParallelStrategy(
            lambda backbone, mesh: shard(backbone, mesh["data_parallel"]),
            data_parallel_size=processes,
            tensor_parallel_size=1,
        )
    # Else one process in a Slurm job is taken for one of many
    environment: ClusterEnvironment = LightningEnvironment()
    if launch.by == TORCHRUN:
        environment = TorchElasticEnvironment()
    elif launch.by == SRUN:
        # Lightning insists on it
        os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(launch.per_node))
        environment = SLURMEnvironment(auto_requeue=False)  # a run folder resumes by itself
    try:
        with _quiet():
            fabric = Fabric(
                accelerator="gpu" if kind == "cuda" else kind,
                devices=[int(number)] if number else launch.per_node,
                num_nodes=launch.nodes,
                strategy=sharing,
                precision=PRECISIONS[precision],  # type: ignore[arg-type]
                plugins=[environment],
            )
            fabric.launch()
    except (MisconfigurationException, RuntimeError) as error:
        if processes == 1:
            raise
        raise ValueError(f"{processes} processes cannot be started from here: {error}") from error
    return fabric


def shard(backbone: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Let each process keep a part of the weights, of their gradients and of the optimiser's state,
    in place (FSDP).

    The objective stays whole in every process: it is small beside the backbone, and g has an
    optimiser of its own.
    """
    for block in backbone.children():
        # Such blocks are called as a whole, so they can be gathered one by one
        if isinstance(block, nn.Sequential):
            fully_shard(block, mesh=mesh)
    fully_shard(backbone, mesh=mesh)
    return backbone


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the tips of Lightning, and its warning of a command srun that this process does not
    need.
    """
    logger = logging.getLogger("lightning.fabric")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*`srun` command is available.*")
            yield
    finally:
        logger.setLevel(level)


def choose_devices(device: str, devices: int | None = None, strategy: str = "auto") -> Launch:
    """Return who starts the processes that train together, and how many.

    Raises:
        ValueError: If the arguments, those of :func:`pfdl.vision.train`, do not fit together.
    """
    check_choice("device", device, ("auto", "cpu", "cuda"))
    check_choice("strategy", strategy, ("auto", "ddp", "fsdp"))
    if devices is not None:
        check_count("devices", devices, 1)
    launch = Launch(OURSELVES, devices or 1, 1)
    if devices != 1:  # a process that trains alone may live in a job of many tasks
        launch = _launched() or launch
    per_node = launch.per_node
    if devices not in (None, per_node):
        raise ValueError(
            f"devices is {devices}, but {launch.by} started {per_node}; give --devices {per_node}"
            " or leave it out."
        )
    if launch.processes == 1 and strategy == "fsdp":
        raise ValueError(
            "strategy is 'fsdp', which shares a model among several devices, and there is one; give"
            " more."
        )
    gpus = torch.cuda.device_count()
    if per_node > gpus and (device == "cuda" or (device == "auto" and gpus > 0)):
        raise ValueError(
            f"{per_node} processes on this machine need as many GPUs, and each sees {gpus}; give"
            " fewer devices, or let each process see all GPUs (srun --gpu-bind=none)."
        )
    return launch


def _launched() -> Launch | None:
    """Return which launcher started this process, and how many; None without a launcher."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        processes = int(os.environ["WORLD_SIZE"])
        per_node = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
        return Launch(TORCHRUN, per_node, processes // per_node)
    # Of the step, not of the job: a command in a batch script without srun is one process, whatever
    # the job has.
    processes = int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
    if processes == 1 or "SLURM_PROCID" not in os.environ:
        return None
    on_nodes = int(os.environ.get("SLURM_STEP_NUM_NODES", 1))
    if processes % on_nodes:
        raise ValueError(
            f"srun started {processes} tasks on {on_nodes} nodes; give each node as many."
        )
    return Launch(SRUN, processes // on_nodes, on_nodes)
