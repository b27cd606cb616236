"""What a user passes in, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]


def as_array(values: Any) -> NDArray[Any]:
    """Return an array, also of a tensor that is sparse, on a GPU, with gradients or in bfloat16,
    which NumPy lacks.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values if values.layout is torch.strided else values.to_dense()
        return np.asarray(values.float() if values.dtype == torch.bfloat16 else values)
    if hasattr(values, "toarray"):  # a sparse matrix of SciPy
        return np.asarray(values.toarray())
    return np.asarray(values)


def as_numbers(name: str, values: Any) -> NDArray[np.int64]:
    """Number labels of any kind from 0 in sorted order; rows of a one-hot matrix count as the
    column that is 1.

    Raises:
        ValueError: If there is not one label per sample.
    """
    if np.ma.is_masked(values):
        raise ValueError(
            f"{name} are masked in places; leave these samples out, or give them a label."
        )
    given = as_array(values)
    if given.dtype == object and any(map(_is_missing, given.ravel())):
        raise ValueError(f"{name} have None or NaN among them; give every sample a label.")
    if given.ndim == 2 and given.shape[1] > 1 and _is_one_hot(given):
        given = given.argmax(axis=1)
    given = _as_vector(given)
    if given.ndim != 1:
        raise ValueError(
            f"{name} have shape {given.shape}; give one per sample, shape (n,), or one-hot rows."
        )
    if given.dtype.kind == "f" and np.isnan(given).any():
        raise ValueError(f"{name} have NaN among them; give every sample a label.")
    return np.unique(given, return_inverse=True)[1].reshape(-1).astype(np.int64)


def as_equally_many(**columns: Any) -> list[NDArray[np.int64]]:
    """Number labels and contexts from 0 each, of which there must be as many.

    Raises:
        ValueError: If the shapes differ or there are no samples.
    """
    numbers = [as_numbers(name, values) for name, values in columns.items()]
    if len({column.shape for column in numbers}) > 1:
        shapes = ", ".join(
            f"{name} {column.shape}" for name, column in zip(columns, numbers, strict=True)
        )
        raise ValueError(f"the shapes differ: {shapes}; all must be (n,).")
    if not len(numbers[0]):
        raise ValueError("there are no samples; give at least one.")
    return numbers


def _is_missing(label: Any) -> bool:
    return label is None or bool(label != label)


def _as_vector(values: NDArray[Any]) -> NDArray[Any]:
    """Return a single column as a vector, anything else as it is."""
    is_column = values.ndim == 2 and values.shape[1] == 1
    return values[:, 0] if is_column else values


def _are_names(values: NDArray[Any]) -> bool:
    """Return whether labels are words; of objects, as NumPy would read them."""
    if values.dtype == object:
        values = np.asarray(values.tolist())
    return values.dtype.kind in "SU"


def as_classes(predictions: Any, truth: NDArray[Any]) -> NDArray[Any]:
    """Return predicted classes, shape (n,), or those with the highest of scores (n, classes), to
    compare with the true.

    Raises:
        ValueError: If they could never be equal, which would count as wrong.
    """
    given = as_array(predictions)
    if given.dtype.kind == "f" and np.isnan(given).any():
        raise ValueError(
            f"{int(np.isnan(given).sum())} predictions are NaN; give every sample a predicted"
            " class."
        )
    if given.ndim == 2 and given.shape[1] > 1:
        if truth.dtype.kind in "iuf" and truth.max(initial=0) >= given.shape[1]:
            raise ValueError(
                f"labels go up to {truth.max()}; scores of {given.shape[1]} classes number these"
                " from 0."
            )
        given = given.argmax(axis=1)
    given = _as_vector(given)
    if given.shape != truth.shape:
        raise ValueError(
            f"predictions have shape {given.shape} and labels {truth.shape}; give one of each per"
            " sample, shape (n,)."
        )
    if given.dtype.kind == "f" and len(between := given[given != np.round(given)]):
        raise ValueError(
            f"predictions hold {between[0]}; give classes, or scores of all classes, (n, classes)."
        )
    if _are_names(given) != _are_names(truth):
        raise ValueError(
            f"predictions are {given.dtype} and labels {truth.dtype}; give both as numbers or as"
            " names."
        )
    return given


def group_table(y: NDArray[Any], context: NDArray[Any]) -> NDArray[np.int64]:
    """Count the samples of each class in each context, both numbered from 0: shape (classes,
    contexts).
    """
    classes = int(y.max()) + 1
    number = int(context.max()) + 1
    return np.bincount(y * number + context, minlength=classes * number).reshape(classes, number)


def _is_one_hot(given: NDArray[Any]) -> bool:
    return given.dtype.kind in "biuf" and bool(
        ((given == 0) | (given == 1)).all() and (given.sum(axis=1) == 1).all()
    )
