"""PFDL as this library does it by default: balance over scenes that nobody labelled."""

from __future__ import annotations

from pfdl.objectives.weightings.balance import Balance


class SceneBalance(Balance):
    """Weights that make the scene tell nothing about the class, with scenes found by :func:`pfdl.infer_contexts`.

    The weights are those of :class:`Balance`; what differs is where the environments come from. The objective ``pfdl``
    is made of it, and :class:`pfdl.lightning.ContextDataModule` finds the scenes for it before training. In a loop of
    your own, pass as ``environments`` what :func:`pfdl.infer_contexts` found.
    """

    infers_contexts = True
