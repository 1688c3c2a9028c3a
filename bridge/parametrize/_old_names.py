"""Files of the functions that torch had before parametrizations, under the names of today.

``torch.nn.utils.weight_norm`` saved ``weight_g`` and ``weight_v``, ``torch.nn.utils.spectral_norm``
``weight_orig``, ``weight_u`` and (since torch 1.0) ``weight_v``. A parametrized module takes both: a
hook renames them before it loads, which torch has for the first of the two.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class OldNames:
    """A hook of the kind ``"load_state_dict_pre"``.

    Attributes:
        name: Of the parametrized parameter.
    """

    name: str

    def __call__(self, module: Any, state_dict: dict[str, Any], prefix: str, *report: Any) -> None:
        """Rename what is under the old names, if all of it is there."""
        del module, report
        self.rename(state_dict, f"{prefix}{self.name}", f"{prefix}parametrizations.{self.name}")

    def rename(self, state_dict: dict[str, Any], old: str, new: str) -> None:
        """Rename; subclasses define it."""


@dataclass(frozen=True)
class OldWeightNorm(OldNames):
    """Of ``torch.nn.utils.weight_norm``."""

    def rename(self, state_dict: dict[str, Any], old: str, new: str) -> None:
        """``weight_g``, ``weight_v``."""
        if f"{old}_g" in state_dict and f"{old}_v" in state_dict:
            state_dict[f"{new}.original0"] = state_dict.pop(f"{old}_g")
            state_dict[f"{new}.original1"] = state_dict.pop(f"{old}_v")


@dataclass(frozen=True)
class OldSpectralNorm(OldNames):
    """Of ``torch.nn.utils.spectral_norm``.

    Attributes:
        position: Of the parametrization in its list.
        dim: The axis of the outputs.
    """

    position: int
    dim: int

    def rename(self, state_dict: dict[str, Any], old: str, new: str) -> None:
        """``weight_orig``, ``weight_u``, and ``weight_v`` or what it follows from."""
        if f"{old}_orig" not in state_dict or f"{old}_u" not in state_dict:
            return
        if f"{old}_v" not in state_dict:
            if old not in state_dict:
                return
            original, weight = (np.asarray(state_dict[key]) for key in (f"{old}_orig", old))
            state_dict[f"{old}_v"] = self.solve(original, weight, np.asarray(state_dict[f"{old}_u"]))
            del state_dict[old]
        state_dict[f"{new}.original"] = state_dict.pop(f"{old}_orig")
        for vector in ("_u", "_v"):
            state_dict[f"{new}.{self.position}.{vector}"] = state_dict.pop(f"{old}{vector}")

    def solve(self, original: np.ndarray, weight: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The ``v`` that files from before torch 1.0 lack: ``W v`` is along ``u``, ``u W v`` is sigma.

        Torch's own upgrade solves the normal equations in the dtype of the file, and loses it.
        """
        matrix = np.moveaxis(original, self.dim, 0).reshape(original.shape[self.dim], -1)
        v = np.linalg.pinv(matrix.astype(np.float64)) @ u
        sigma = (original / weight).mean()
        return (v * (sigma / (u @ matrix @ v))).astype(original.dtype)
