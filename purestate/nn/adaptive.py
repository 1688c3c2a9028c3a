"""A softmax over many classes whose rare ones come in clusters.

The head scores the frequent classes and each cluster as a whole; a cluster's tail scores its classes
from a narrower projection. Torch runs a tail on the rows whose target it has. Their number depends on
values, which no shape can, so here each tail runs on all rows and a mask picks what counts.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purestate._module import Module
from purestate.nn._construction import draws_again
from purestate.nn.container import ModuleList, Sequential
from purestate.nn.functional._known import known
from purestate.nn.functional._options import axis
from purestate.nn.functional._shapes import shown
from purestate.nn.functional._softmax import log_softmax
from purestate.nn.linear import Linear


__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: jax.Array
    loss: jax.Array


class AdaptiveLogSoftmaxWithLoss(Module):
    """Adaptive softmax (Grave et al., 2017). Torch's name: ``torch.nn.AdaptiveLogSoftmaxWithLoss``.

    Classes are numbered by frequency, the most frequent first. A call returns the named tuple
    ``(output, loss)``: the log-probability of each target, and the mean of its negative.

    Args:
        in_features: Size of the last axis of the input.
        n_classes: The number of classes.
        cutoffs: Where each cluster begins, in rising order; the classes before the first are in the
            head.
        div_value: Cluster ``i`` (from 1) projects to ``in_features // div_value**i``.
        head_bias: Whether the head adds a bias.
        dtype: Dtype of the weights; JAX's default float when None.

    Attributes:
        head: :class:`Linear` to the first classes and one score for each cluster.
        tail: For each cluster, two :class:`Linear` without bias in a :class:`Sequential`.

    Shape:
        ``(N, in_features)`` and classes ``(N,)``, or ``(in_features,)`` and ``()``, to an output
        like the classes and a scalar loss.

    Raises:
        ValueError: For cutoffs that are not unique, rising and between 1 and ``n_classes - 1``.
        TypeError: For cutoffs that are no ints.
        RuntimeError: In a call, for shapes that do not fit or, where it is known, a target that is
            not a class; its output is NaN where it is not known.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        dtype: Any = None,
    ):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        rises = all(low < high for low, high in pairwise([0, *cutoffs, n_classes]))
        if not rises or any(int(cutoff) != cutoff for cutoff in cutoffs):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        for cutoff in (*cutoffs, n_classes):
            if not hasattr(cutoff, "__index__"):
                raise TypeError(
                    "empty(): argument 'size' (position 1) must be tuple of ints, but found element of "
                    f"type {type(cutoff).__name__} at pos 0"
                )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, dtype=dtype)
        self.tail = ModuleList()
        for cluster, (low, high) in enumerate(pairwise(self.cutoffs)):
            hidden = int(in_features // (div_value ** (cluster + 1)))
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, dtype=dtype),
                    Linear(hidden, high - low, bias=False, dtype=dtype),
                )
            )

    @draws_again
    def reset_parameters(self) -> None:
        """Set how the weights are drawn."""
        self.head.reset_parameters()
        for project, score in self.tail:
            project.reset_parameters()
            score.reset_parameters()

    def forward(self, input_: jax.Array, target_: jax.Array) -> _ASMoutput:
        """The log-probability of each target, and the loss."""
        self._check(input_, target_)
        is_batch = target_.ndim == 1
        input, target = (input_, target_) if is_batch else (input_[None], target_[None])
        index = jnp.where(target < self.shortlist_size, target, self.head_size)
        output = jnp.zeros(target.shape, input.dtype)
        for cluster, (low, high) in enumerate(pairwise(self.cutoffs)):
            is_here = (target >= low) & (target < high)
            # Other rows are zeros: whatever they hold, it gives this tail no gradient.
            scores = log_softmax(self.tail[cluster](jnp.where(is_here[:, None], input, 0)), 1)
            here = jnp.where(is_here, target - low, 0)
            output = jnp.where(is_here, _picked(scores, here), output)
            index = jnp.where(is_here, self.shortlist_size + cluster, index)
        output = output + _picked(log_softmax(self.head(input), 1), index)
        return _ASMoutput(output if is_batch else output[0], (-output).mean())

    def _check(self, input: jax.Array, target: jax.Array) -> None:
        if target.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if target.ndim == 1 and input.shape[0] != target.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input.ndim != target.ndim + 1:
            raise RuntimeError(
                f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, "
                f"but found inputs with size {shown(input.shape)}"
            )
        if known(target):
            values = np.asarray(target)
            low, high = values.min(), values.max()
            if low < 0 or high >= self.n_classes:
                raise RuntimeError(
                    f"Target values should be in [0, {self.n_classes - 1}], "
                    f"but values in range [{low}, {high}] were found. "
                )

    def log_prob(self, input: jax.Array) -> jax.Array:
        """The log-probabilities of all classes, ``(N, in_features)`` to ``(N, n_classes)``."""
        return self._all_log_probs(input, self.head(input))

    def _all_log_probs(self, input: jax.Array, head_output: jax.Array) -> jax.Array:
        head = log_softmax(head_output, 1)
        parts = [head[:, : self.shortlist_size]]
        for cluster in range(self.n_clusters):
            of_cluster = head[:, self.shortlist_size + cluster, None]
            parts.append(log_softmax(self.tail[cluster](input), 1) + of_cluster)
        return jnp.concatenate(parts, 1)

    def predict(self, input: jax.Array) -> jax.Array:
        """The most probable class of each row, ``(N, in_features)`` to ``(N,)``.

        A row whose head prefers a class of its own gets that class, as in torch.
        """
        head_output = self.head(input)
        first = head_output.argmax(axis(1, head_output.ndim))
        best = self._all_log_probs(input, head_output).argmax(1)
        return jnp.where(first < self.shortlist_size, first, best)


def _picked(values: jax.Array, index: jax.Array) -> jax.Array:
    """``(N, C)`` at ``(N,)``; NaN at what is not an index."""
    rows = jnp.arange(values.shape[0])
    return values.at[rows, index].get(mode="fill", wrap_negative_indices=False)
