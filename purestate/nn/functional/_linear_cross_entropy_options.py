"""How many rows of logits ``linear_cross_entropy`` holds at once, under torch's names for it.

The class is torch's: the same fields, defaults, checks and ``repr``. What counts here is the size of
a chunk. The rest settles in torch where buffers live and in which dtype they are summed; here the
compiler decides the first, and sums of halves are always in float32.
"""

import dataclasses

import jax.numpy as jnp
from jax.typing import DTypeLike

from purestate.nn.functional._dtypes import is_half


@dataclasses.dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """How ``linear_cross_entropy`` goes through its batch.

    Torch's name: ``torch.nn.LinearCrossEntropyOptions``. With options the loss is computed chunk by
    chunk, and each chunk's logits are made again for its gradient: at no time are there more than
    ``batch_chunk_size`` rows of ``num_classes`` logits. Every derivative works, of any order and as
    often as wanted.

    Args:
        allow_retain_graph: Accepted for torch's sake; there is nothing to retain here.
        batch_chunk_size: The rows of a chunk; all rows when None and no method gives it.
        chunking_method: ``'aspect_ratio'``: as many rows as make the logits about as large as the
            input. ``'aspect_ratio:N'``: an ``N``-th of that. ``'auto'``: ``'aspect_ratio:2'``, or
            nothing when ``batch_chunk_size`` is given. None: nothing.
        acc_policy: ``'auto'``, ``'accurate'``, ``'balanced'`` or ``'compact'``; no effect here.
        acc_dtype: The dtype that sums are taken in. Here it is float32 for halves and the input's
            own for others, and naming another is an error in a call.

    Raises:
        ValueError: For a policy, method, size or dtype that torch refuses; in a call, when
            ``batch_chunk_size`` and ``chunking_method`` disagree.
        RuntimeError: In a call, for an ``acc_dtype`` that does not go with the input's.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: DTypeLike | None = None

    def __post_init__(self):
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto"):
            _parts_per_chunk(self.chunking_method)
        rows = self.batch_chunk_size
        if not (rows is None or (isinstance(rows, int) and rows > 0)):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {rows!r}")
        if self.acc_dtype is not None and jnp.dtype(self.acc_dtype) not in _ACCUMULATORS:
            raise ValueError(
                "acc_dtype must be one of {None, torch.float16, torch.bfloat16, torch.float32, "
                f"torch.float64}}, got {self.acc_dtype!r}. Pass acc_dtype=None to let the op pick "
                "automatically."
            )

    def rows(self, batch: int, features: int, classes: int) -> int:
        """The rows of a chunk of a given call.

        Raises:
            ValueError: ``batch_chunk_size`` and ``chunking_method`` give different sizes.
        """
        given, method = self.batch_chunk_size, self.chunking_method
        if method == "auto":
            method = "aspect_ratio:2" if given is None else None
        if method is None:
            return max(1, batch if given is None else min(given, batch))
        wanted = -(-batch // -(-classes // features))
        power = 1 << (wanted - 1).bit_length()  # The next power of 2.
        rows = min(power // _parts_per_chunk(method), batch)
        if given is not None and given != rows:
            raise ValueError(
                f"batch_chunk_size (={given}) and chunking_method ('{method}') give different chunk "
                f"sizes ({given} vs {rows}); pass only one."
            )
        return max(1, rows)

    def check_dtype(self, dtype: DTypeLike) -> None:
        """Whether sums of this dtype can be taken in ``acc_dtype``.

        Raises:
            RuntimeError: They cannot.
        """
        wider = self.acc_dtype
        if wider is None or jnp.dtype(wider) == jnp.dtype(dtype):
            return
        if not is_half(dtype) or jnp.dtype(wider) != jnp.float32:
            raise RuntimeError(
                "linear_cross_entropy supports float32 acc_dtype with float16/bfloat16 inputs, but got "
                f"torch.{jnp.dtype(wider).name} acc_dtype and torch.{jnp.dtype(dtype).name} inputs."
            )


_ACCUMULATORS = tuple(map(jnp.dtype, (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64)))


def _parts_per_chunk(method: str | None) -> int:
    """The ``N`` of ``'aspect_ratio:N'``, 1 without one."""
    name, colon, parts = str(method).partition(":")
    if not colon:
        parts = "1"
    if not (name == "aspect_ratio" and parts.isdigit() and int(parts) > 0):
        raise ValueError(f"invalid chunking_method: {method!r}")
    return int(parts)
