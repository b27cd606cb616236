"""Modules that load a state whole or not at all."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn


class AtomicModule(nn.Module):
    """A module whose ``load_state_dict`` leaves it as it was if it raises.

    PyTorch alone loads what fits before it reports what does not.
    """

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state, all of it or nothing; arguments and result are those of ``nn.Module.load_state_dict``.

        Raises:
            RuntimeError, ValueError: If the state does not fit this module; nothing has changed then.
        """
        if not isinstance(state_dict, Mapping):
            raise ValueError(f"the state is a {type(state_dict).__name__}; give what state_dict() returned.")
        if not all(isinstance(key, str) for key in state_dict):
            raise ValueError("the state has keys that are not strings; give what state_dict() returned.")
        before = copy.deepcopy(self.state_dict())
        try:
            return super().load_state_dict(state_dict, strict=strict, assign=assign)
        except BaseException as error:
            super().load_state_dict(before)
            if isinstance(error, (TypeError, LookupError, AttributeError)):  # nonsense that a part did not expect
                raise ValueError(f"the state does not fit {type(self).__name__}: {error}.") from error
            raise
