"""Load damaged states at random and use what was loaded; run in a process of its own, which a crash would end.

python -m tests.decorrelation.hostile_states 100000     # prints how many were refused and how many were taken
"""

import copy
import random
import sys

import torch

import pfdl
from pfdl.objectives.weightings import Balance, GroupDRO, StableNet
from tests.internal.test_optimizer_state import equal

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int8, torch.int64, torch.bool, torch.complex64),
]


def makers():
    sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, fused=True)  # noqa: E731
    adagrad = lambda parameters: torch.optim.Adagrad(parameters, lr=0.01)  # noqa: E731
    return [
        lambda: pfdl.PartialDecorrelation(5, hidden=4),
        lambda: pfdl.PartialDecorrelation(5, hidden=(4, 3), sharing="indexed"),
        lambda: pfdl.PartialDecorrelation(5, hidden=4, optimizer=sgd),
        lambda: pfdl.PartialDecorrelation(5, hidden=4, optimizer=adagrad),
        StableNet,
        Balance,
        GroupDRO,
    ]


def use(part):
    generator = torch.Generator().manual_seed(0)
    batch = {
        "features": torch.randn(6, 5, generator=generator),
        "risks": torch.rand(6, generator=generator),
        "labels": torch.arange(6) % 3,
        "environments": torch.arange(6) % 2,
    }
    return part(*(batch[name] for name in part.needs))


def any_tensor(rng):
    shape = [rng.choice([0, 1, 2, 4, 5, 7]) for _ in range(rng.randrange(4))]
    tensor = torch.zeros(shape).to(rng.choice(DTYPES))
    kind = rng.randrange(6)
    if kind == 0 and tensor.is_floating_point():
        tensor = tensor + rng.choice([torch.nan, torch.inf, 1e30, -1.0])
    elif kind == 1:
        tensor = torch.zeros(1).expand(4, 4)
    elif kind == 2:
        tensor = tensor.to("meta")
    elif kind == 3 and tensor.dim() == 2 and tensor.is_floating_point():
        tensor = tensor.to_sparse()
    return tensor


NO_TENSORS = [
    *(None, True, -1, 0, 3, 10**30, -(10**30), 0.5, float("nan"), float("inf")),
    *("", "word", [], [1], {}, {"a": 1}, (1, 2)),
]
STRANGE_KEYS = ["fused", "capturable", "foreach", "differentiable", "momentum_buffer", 7]


def anything(rng):
    return any_tensor(rng) if rng.random() < 0.4 else copy.deepcopy(rng.choice(NO_TENSORS))


def places(tree, path=()):
    """All places of a nested state that can be damaged."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def damage(state, rng):
    """Return the state with one to three places replaced, removed or added."""
    for _ in range(rng.randint(1, 3)):
        somewhere = [place for place in places(state) if place]
        if not somewhere:
            break
        *path, last = rng.choice(somewhere)
        inner = state
        for key in path:
            inner = inner[key]
        if isinstance(inner, tuple):
            continue
        kind = rng.randrange(8)
        if kind == 0:
            del inner[last]
        elif kind == 1 and isinstance(inner, dict):
            inner[rng.choice(["fused", "capturable", "foreach", "differentiable", "momentum_buffer", 7])] = anything(
                rng
            )
        else:
            inner[last] = anything(rng)
    return state


def use_what_was_taken(part):
    """Use a part whose state may be nonsense, such as a learning rate of 1e30, but must do no worse than be refused."""
    for _ in range(3):
        try:
            use(part)
        except ValueError as error:
            if "nothing was updated" not in str(error).lower():
                raise
        assert not any(value.isnan().any() for value in part.state_dict().values() if isinstance(value, torch.Tensor))


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    rng, kinds = random.Random(seed), makers()
    refused = taken = 0
    sources = []
    for make in kinds:
        torch.manual_seed(0)
        sources.append(make())
        use(sources[-1])
    for _ in range(count):
        number = rng.randrange(len(kinds))
        target = kinds[number]()
        if rng.random() < 0.5:
            use(target)
        state = damage(copy.deepcopy(dict(sources[number].state_dict())), rng)
        before = copy.deepcopy(target.state_dict())
        try:
            target.load_state_dict(state)
        except (ValueError, TypeError, RuntimeError):
            refused += 1
            assert equal(before, target.state_dict()), "a refused state has changed something"
            assert torch.isfinite(use(target)).all(), "a refused state has spoilt the part"
        else:
            taken += 1
            use_what_was_taken(target)
    print(f"{refused} refused, {taken} taken")


if __name__ == "__main__":
    main()
