"""Attacks on what reads files that others wrote: how they are run, hostile values to make them
with, a full disk.
"""

from __future__ import annotations

import copy
import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from pfdl.runs import LOCK

CASES = int(os.environ.get("PFDL_CASES", "25"))
"""For a target of share 1; SECURITY.md says how to run many more."""
SEED = int(os.environ.get("PFDL_SEED", "0"))
"""Other cases for each."""
MEMORY = 4 << 30
"""Bytes that a case may take."""


class Target(NamedTuple):
    """A loader to attack, by a function that returns if the loader did, or said in a sentence what
    is wrong.

    Attributes:
        check: Called with a folder of its own and what was drawn.
        strategies: One for each further argument, made when first needed.
        examples: Arguments that are tried first, with which something else came out once.
        share: How many of the cases asked for are run; slow targets get fewer.
    """

    check: Callable[..., None]
    strategies: Callable[[], Sequence[st.SearchStrategy[Any]]]
    examples: Callable[[], Sequence[tuple[Any, ...]]]
    share: float


def target(
    strategies: Callable[[], Sequence[st.SearchStrategy[Any]]],
    examples: Callable[[], Sequence[tuple[Any, ...]]] = list,
    share: float = 1.0,
) -> Callable[[Callable[..., None]], Target]:
    """Make a target of a function."""
    return lambda check: Target(check, strategies, examples, share)


def targets_in(*modules: ModuleType) -> list[Any]:
    """Return the targets of modules, for a test that is run with each."""
    return [
        pytest.param(value, id=name)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Target)
    ]


def attack(target: Target, scratch: Path) -> None:
    """Call a target with its examples and with many other arguments."""

    def check(drawn: tuple[Any, ...]) -> None:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            target.check(Path(folder), *drawn)

    how = settings(
        max_examples=max(1, round(CASES * target.share)),
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    try:
        with bounded_memory():
            for example in target.examples():
                check(example)
            seed(SEED)(how(given(st.tuples(*target.strategies()))(check)))()
    finally:
        if dist.is_initialized():  # a group of one process, in which parameters are sharded
            dist.destroy_process_group()


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Let a bomb be a MemoryError instead of the end of the machine."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    in_use = Path("/proc/self/statm")
    if in_use.exists():
        pages = int(in_use.read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def answered(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a loader returns, or None if it refused with a sentence."""
    try:
        return function(*arguments)
    except (ValueError, OSError) as error:
        return check_sentence(error)


def check_sentence(error: Exception) -> None:
    assert str(error).strip()


words = st.text(max_size=8) | st.sampled_from(
    ["", "train", "test", "cat", "/", "..", "0" * 64, "5:1", "test-1:0"]
)
numbers = st.sampled_from(
    [0, -1, 1, 0.5, 1e30, -1e30, 10**9, 2**31, 2**63, 2**200, float("nan"), float("inf"), True]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64)
WHOLE = (torch.int64, torch.int8, torch.uint8, torch.bool)
SHAPES = ((), (0,), (1,), (3,), (1, 1), (0, 5), (2, 3), (7, 1, 2), (64,), (100_000,))


def files(folder: Path) -> dict[str, bytes]:
    """The content of a folder, without the lock of a run."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


class Damage(NamedTuple):
    """Bytes put in the place of others, and how many are lost at the end."""

    changes: Sequence[tuple[int, bytes]]
    cut: int


UNDAMAGED = Damage((), 0)
changes_of_bytes = st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=4)), max_size=4)
damages = st.just(UNDAMAGED) | st.builds(Damage, changes_of_bytes, st.integers(0, 60))


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def damaged(content: bytes, damage: Damage) -> bytes:
    changed = bytearray(content)
    for place, new in damage.changes:
        start = place % max(1, len(content))
        changed[start : start + len(new)] = new
    return bytes(changed[: max(1, len(changed) - damage.cut)])


SPECIAL = ("pipe", "folder", "loop", "zero", "null")


def make_special(path: Path, kind: str) -> None:
    """Put something there that is no regular file: to read it would fail, wait for ever or never
    end.
    """
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.name if kind == "loop" else f"/dev/{kind}")


@contextmanager
def full_disk(fits: int = 0) -> Iterator[None]:
    """Let the disk be full after so many files."""
    synchronise = os.fsync
    written = []

    def full(descriptor: int) -> None:
        if len(written) == fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(descriptor)
        synchronise(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        yield


def records(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Dictionaries with some of these entries right, some wrong and some missing."""
    return st.fixed_dictionaries({}, optional={name: part | values for name, part in parts.items()})


@st.composite
def tensors(draw: st.DrawFn, like: torch.Tensor | None = None) -> torch.Tensor:
    """Tensors of odd shapes and kinds; of the right shape too where there is one."""
    shapes = list(SHAPES)
    dtypes = [*FLOATS, *WHOLE]
    if like is not None:
        shapes += [tuple(like.shape), tuple(like.shape[::-1])]
        dtypes += [like.dtype] * 3
    shape = draw(st.sampled_from(shapes))
    dtype = draw(st.sampled_from(dtypes))
    fill = draw(st.sampled_from([0, 1, -1, 1e30, float("nan"), float("inf")]))
    return torch.full(shape, fill if dtype.is_floating_point else 0, dtype=torch.float64).to(dtype)


ADDED = ("fused", "foreach", "capturable", "amsgrad", "params")
"""What would choose how a step is taken."""


@st.composite
def tampered(draw: st.DrawFn, original: Any) -> Any:
    """A state of nested dictionaries and lists with one to three of its parts exchanged, lost,
    added or swapped.
    """
    state = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(state))
        if not places:
            return state
        container, key = places[draw(st.integers(0, len(places) - 1))]
        part = container[key]
        action = draw(st.sampled_from(["value", "tensor", "tensor", "lose", "add", "swap"]))
        if action == "value":
            container[key] = draw(values)
        elif action == "tensor":
            container[key] = draw(tensors(part if isinstance(part, torch.Tensor) else None))
        elif action == "lose":
            del container[key]
        elif action == "add" and isinstance(container, dict):
            container[draw(words | st.sampled_from(ADDED))] = draw(
                values | tensors() | st.just(True)
            )
        elif action == "swap":
            other, name = places[draw(st.integers(0, len(places) - 1))]
            container[key] = copy.deepcopy(other[name])
    return state


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a tree with every key or index in it."""
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(item, (dict, list)):
            yield from _places(item)
