"""Fractional maximum pooling: windows at random distances.

The distances are drawn in every call, in evaluation too, from the call's ``rng``; only a module that
was given its random numbers needs none.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax

from purestate._module import Module
from purestate.nn._construction import repeated
from purestate.nn.functional._fractional_pool import (
    Ratio,
    fractional_max_pool2d,
    fractional_max_pool3d,
)
from purestate.nn.functional._options import IntOrInts


__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d"]


class _FractionalMaxPoolNd(Module):
    _axes: ClassVar[int]
    _pool: ClassVar[Callable[..., Any]]

    _random_samples: Any

    def __init__(
        self,
        kernel_size: IntOrInts,
        output_size: IntOrInts | None = None,
        output_ratio: Ratio | None = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ):
        super().__init__()
        self.kernel_size = repeated(kernel_size, self._axes)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else repeated(output_size, self._axes)
        self.output_ratio = None if output_ratio is None else repeated(output_ratio, self._axes)
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{type(self).__name__} requires specifying either an output size, or a pooling ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < part < 1 for part in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: jax.Array) -> Any:
        """The maxima; with ``return_indices``, the pair of them and their positions."""
        return type(self)._pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self._random_samples,
            rng=self.next_key() if self._random_samples is None else None,
        )


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """The maxima of windows at random distances. Torch's name: ``torch.nn.FractionalMaxPool2d``.

    Args:
        kernel_size: Size of the window, one int or one per axis.
        output_size: Number of windows, one int or one per axis.
        output_ratio: The same as a part of the input's size, one number or one per axis.
        return_indices: Return positions too.
        _random_samples: ``(N, C, 2)`` numbers in ``[0, 1)`` to use instead of drawn ones.

    Attributes:
        _random_samples: These numbers, a buffer, or None.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, *output_size)``, or both without ``N``; in the input's dtype.

    Raises:
        ValueError: Unless there is one of size and ratio, and a ratio is between 0 and 1.
        RuntimeError: In a call, when the windows do not fit.
        MissingRngError: In a call without ``rng``, in evaluation too.
    """

    _axes = 2
    _pool = fractional_max_pool2d


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """The maxima of windows at random distances. Torch's name: ``torch.nn.FractionalMaxPool3d``.

    Arguments, attributes and errors as :class:`FractionalMaxPool2d`; ``_random_samples`` are
    ``(N, C, 3)``.

    Shape:
        ``(N, C, D, H, W)`` to ``(N, C, *output_size)``, or both without ``N``; in the input's dtype.

    Raises:
        ValueError: As there, and for a window that is not positive.
    """

    _axes = 3
    _pool = fractional_max_pool3d

    def __init__(
        self,
        kernel_size: IntOrInts,
        output_size: IntOrInts | None = None,
        output_ratio: Ratio | None = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ):
        sizes = kernel_size if isinstance(kernel_size, Sequence) else (kernel_size,)
        if not all(size > 0 for size in sizes):
            raise ValueError(f"kernel_size must be greater than 0, but got {kernel_size}")
        super().__init__(kernel_size, output_size, output_ratio, return_indices, _random_samples)
