"""Attacks on loaders of states, whose moments compiled kernels work on."""

from __future__ import annotations

import atexit
import copy
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import strategies as st
from safetensors.torch import save
from torch.distributed.device_mesh import init_device_mesh

from pfdl import PartialDecorrelation
from pfdl._internal.loading import load_optimizer_state
from pfdl._internal.state import FORMAT as STATE_FORMAT, load_state, save_state
from pfdl.data.manifest import read_manifest
from pfdl.vision import resume
from pfdl.vision.checkpoint import load_model
from pfdl.vision.resume import STATE, load_optimizer, read_state
from pfdl.vision.training import TrainingConfig, train
from tests.hostile.tampering import answered, tampered, target, values, words
from tests.internal.test_optimizer_state import MAKERS, step, trained
from tests.objectives.parts import PARTS, WITHOUT_STATE, batch, call, used
from tests.states import equal
from tests.vision.tiny_images import tiny_data

trees = st.recursive(
    st.none() | st.integers() | st.just({"tensor": "a"}) | words,
    lambda inner: st.sampled_from(["dict", "list", "tuple", "tensor", "float"]).flatmap(
        lambda kind: st.lists(st.lists(inner, max_size=3) | inner, max_size=3).map(
            lambda items: {kind: items}
        )
    ),
    max_leaves=6,
)


@target(
    lambda: (trees | values,),
    lambda: [
        ([],),
        ({"dict": [["finished", True]]},),
        ({"dict": [[{"list": []}, 1]]},),
        ({"dict": [["history", 3], ["finished", True]]},),
        ({"tensor": "a"},),
    ],
)
def trees_of_states(folder: Path, tree: Any) -> None:
    tensors = {"a": torch.ones(2), "b": torch.ones((), dtype=torch.bfloat16)}
    (folder / STATE).write_bytes(
        save(tensors, metadata={"format": STATE_FORMAT, "tree": json.dumps(tree)})
    )
    state = answered(load_state, folder / STATE)
    assert state is None or isinstance(state, dict)
    state = read_state(folder)
    assert state is None or isinstance(state["finished"], bool)


@cache
def one_process() -> Any:
    """Join a group of one process, in which parameters are sharded as in each of several."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return init_device_mesh("cpu", (1,))


def a_step(kind: str, is_sharded: bool = False) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model and its optimiser, which has taken one step."""
    return trained(MAKERS[kind], steps=1, width=128, mesh=one_process() if is_sharded else None)


def short_moments(kind: str) -> dict[str, Any]:
    state = copy.deepcopy(a_step(kind)[1].state_dict())
    for moments in state["state"].values():
        moments.update({name: torch.zeros(1) for name in moments if name != "step"})
    state["param_groups"][0]["fused"] = True
    return state


CASES = [*((kind, False) for kind in MAKERS), ("Adam", True), ("momentum", True)]


@target(
    lambda: (
        st.sampled_from(CASES).flatmap(
            lambda case: st.tuples(st.just(case), tampered(a_step(case[0])[1].state_dict()))
        ),
    ),
    lambda: [((case, short_moments(case[0])),) for case in CASES],
    share=3.0,
)
def states_of_optimisers(folder: Path, attack: tuple[tuple[str, bool], Any]) -> None:
    (kind, is_sharded), state = attack
    model, optimizer = a_step(kind, is_sharded)
    answered(load_optimizer if is_sharded else load_optimizer_state, optimizer, state)
    if (
        len(optimizer.state) == 4
    ):  # with moments for some of its parameters PyTorch's fused SGD refuses to step
        step(model, optimizer)


@cache
def state_of(name: str) -> dict[str, Any]:
    return dict(used(name).state_dict())


@target(
    lambda: (
        st.sampled_from([name for name in PARTS if name not in WITHOUT_STATE]).flatmap(
            lambda name: st.tuples(st.just(name), tampered(state_of(name)))
        ),
    ),
    lambda: [(("PartialDecorrelation", dict(PartialDecorrelation(6, hidden=64).state_dict())),)],
    share=2.0,
)
def states_of_penalties_and_weightings(folder: Path, case: tuple[str, Any]) -> None:
    name, state = case
    part = used(name)
    before = copy.deepcopy(part.state_dict())
    try:
        part.load_state_dict(state)
    except (
        ValueError,
        RuntimeError,
    ):  # torch refuses missing and unknown weights with RuntimeError
        assert equal(before, part.state_dict())
    # Weights that are finite but far too large do load; the call then says so and updates nothing.
    value = answered(call, part, batch(seed=5))
    assert value is None or value.isfinite().all()


TINY = TrainingConfig(backbone="mlp", objective="pfdl", image_size=8, epochs=2, batch_size=16)


@cache
def made_run() -> Path:
    """The folder of a training that was killed after its first epoch."""
    folder = Path(tempfile.mkdtemp()) / "run"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    original = resume.save_state
    saved = []

    def spy(path: Path, state: dict[str, Any]) -> None:
        original(path, state)
        saved.append(path.read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "SAVE_EVERY", 0.0)
        patch.setattr(resume, "save_state", spy)
        train(TINY, *tiny_data(), folder, device="cpu", tensorboard=False)
    (folder / STATE).write_bytes(saved[0])
    return folder


@cache
def made_state() -> dict[str, Any]:
    state = load_state(made_run() / STATE)
    assert state["finished"] is False
    return state


@target(lambda: (tampered(made_state()),), share=0.2)
def resumed_trainings(folder: Path, state: Any) -> None:
    shutil.copytree(made_run(), folder, dirs_exist_ok=True)
    try:
        save_state(folder / STATE, state if isinstance(state, dict) else {"state": state})
    except (TypeError, ValueError, OverflowError):
        return  # nothing that a file can hold
    source, manifest = tiny_data()
    answered(lambda: train(TINY, source, manifest, folder, device="cpu", tensorboard=False))


@target(
    lambda: (
        st.sampled_from(
            sorted(path.relative_to(made_run()).as_posix() for path in files_of(made_run()))
        ),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 255),
    ),
    share=0.4,
)
def run_folders_with_a_byte_changed(folder: Path, name: str, place: float, change: int) -> None:
    """Any byte of any file of a run: the training ends or says what is wrong, and so does the use
    of its model.
    """
    copy_and_change(folder, name, place, change)
    answered(load_model, folder)
    source, manifest = tiny_data()
    if (
        answered(lambda: train(TINY, source, manifest, folder, device="cpu", tensorboard=False))
        is not None
    ):
        answered(load_model, folder)
    answered(read_manifest, folder / "manifest.csv")


def copy_and_change(folder: Path, name: str, place: float, change: int) -> None:
    shutil.copytree(made_run(), folder, dirs_exist_ok=True)
    content = bytearray((folder / name).read_bytes())
    content[int(place * len(content))] ^= change
    (folder / name).write_bytes(content)


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
