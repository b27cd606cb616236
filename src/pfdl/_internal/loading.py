"""Modules whose state is loaded whole or not at all."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn


class AtomicLoading(nn.Module):
    """Let ``load_state_dict`` leave the module as it was if it raises.

    PyTorch loads what fits before it reports what does not.
    """

    def load_state_dict(self, state_dict: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:
        """Load a state as PyTorch does, all of it or nothing.

        Raises:
            Exception: Whatever PyTorch or a part of the module raises; nothing has changed then.
        """
        before = copy.deepcopy(self.state_dict())
        try:
            return super().load_state_dict(state_dict, *arguments, **options)
        except BaseException:
            super().load_state_dict(before)
            raise
