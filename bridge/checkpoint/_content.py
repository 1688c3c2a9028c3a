"""What a checkpoint file holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Content:
    """What a file holds.

    Attributes:
        format: "torch zip", "torch legacy", "torch tar", "TorchScript", "exported program",
            "safetensors", or what a folder holds.
        value: The object.
        file_metadata: The ``__metadata__`` of a safetensors file.
        placeholders: The classes and functions that the file mentions and that were not read.
        files: The paths of the files it was read from.
        notes: Sentences about what is odd and does no harm.
    """

    format: str
    value: Any
    file_metadata: dict[str, str] = field(default_factory=dict)
    placeholders: set[str] = field(default_factory=set)
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
