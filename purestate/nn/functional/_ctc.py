"""Connectionist temporal classification: the likelihood of a target over all its alignments.

A target of ``S`` labels is read along ``2 S + 1`` states: blank, label, blank, label, ..., blank. An
alignment starts in one of the first two states, ends in one of the last two, and at each step stays,
moves on by one, or skips the blank between two different labels. The sum over alignments is a scan
over time in logarithms (Graves et al., 2006), for the whole batch at once: what is past an example's
own lengths is computed and not used.

The gradient is torch's, which takes ``log_probs`` for the result of a ``log_softmax``: it returns
``exp(log_probs) - posterior`` where the derivative of the loss is ``-posterior``. The two are equal
once they went through a ``log_softmax``. So the loss is grafted onto itself plus the sum of the
probabilities, whose derivative is the first term; no rule of its own is needed, and every
transformation of JAX sees the same thing.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from purestate.nn.functional._dtypes import scalar_type
from purestate.nn.functional._graft import graft
from purestate.nn.functional._known import known
from purestate.nn.functional._reduction import reduced, settled


__all__ = ["ctc_loss"]

_CHECKED_IN = "(while checking arguments for ctc_loss_allocate_outputs)"


def ctc_loss(
    log_probs: jax.Array,
    targets: jax.Array,
    input_lengths: jax.Array | Sequence[int],
    target_lengths: jax.Array | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> jax.Array:
    """The negative log-likelihood of targets that are not aligned to their inputs.

    The counterpart of ``torch.nn.functional.ctc_loss``. The gradient is torch's: that of the loss
    for ``log_probs`` that come out of a ``log_softmax``.

    Lengths are checked where their values are known. A target outside the classes gives NaN, where
    torch reads what lies beyond its array. A class of probability zero gets a gradient of zero,
    where torch's is NaN.

    Args:
        log_probs: Logarithms of probabilities ``(T, N, C)``, or ``(T, C)`` for one example; float32
            or float64.
        targets: Labels, none of them the blank: padded ``(N, S)``, or all in one ``(sum of
            target_lengths,)``.
        input_lengths: ``(N,)``, or ``()`` for one example; an array or a sequence of ints.
        target_lengths: Likewise.
        blank: The class that stands for no label.
        reduction: ``'none'``, ``'sum'``, or ``'mean'``: each loss over its target's length, and the
            mean of these.
        zero_infinity: Whether the loss and the gradient of a target that is too long for its input
            are zero; infinity and NaN otherwise.

    Returns:
        A scalar, or with ``'none'`` ``(N,)``, and ``()`` for one example; in the dtype of
        ``log_probs``.

    Raises:
        ValueError: An unknown reduction.
        RuntimeError: Shapes or lengths that do not fit, or an array that is empty.
        NotImplementedError: Another dtype of ``log_probs``.
    """
    reduction = settled(reduction)
    lengths = _lengths("input", input_lengths), _lengths("target", target_lengths)
    is_batch = log_probs.ndim == 3
    if log_probs.size == 0:
        raise RuntimeError("log_probs tensor must not be empty")
    if log_probs.dtype not in (jnp.float32, jnp.float64):
        raise NotImplementedError(
            f"\"ctc_loss_cpu\" not implemented for '{scalar_type(log_probs.dtype)}'"
        )
    batch = log_probs if is_batch else jnp.expand_dims(log_probs, 1)
    longest = _check(batch, targets, *lengths, blank)
    result = _ctc(batch, targets, *map(jnp.asarray, lengths), longest, blank, reduction, zero_infinity)
    return result if is_batch or reduction != "none" else result[0]


def _lengths(name: str, lengths: jax.Array | Sequence[int]) -> jax.Array | np.ndarray:
    """Lengths as an array of one axis, a numpy one where they are known."""
    values = lengths if isinstance(lengths, jax.Array) and not known(lengths) else np.asarray(lengths)
    if values.size and not jnp.issubdtype(values.dtype, jnp.integer):
        raise RuntimeError(f"{name}_lengths must be integral")
    return values.reshape(-1).astype(jnp.int32)


def _check(log_probs, targets, input_lengths, target_lengths, blank: int) -> int:
    """Torch's checks, in its order; returns a bound on the targets' lengths."""
    if log_probs.ndim != 3:
        raise RuntimeError(
            f"Expected 3-dimensional tensor, but got {log_probs.ndim}-dimensional tensor for "
            f"argument #1 'log_probs' {_CHECKED_IN}"
        )
    if targets.ndim not in (1, 2):
        raise RuntimeError(
            f"Expected 1 to 2 dimensions, but got {targets.ndim}-dimensional tensor for argument #2 "
            f"'targets' {_CHECKED_IN}"
        )
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    for name, lengths in (("input", input_lengths), ("target", target_lengths)):
        if lengths.shape != (batch,):
            raise RuntimeError(f"{name}_lengths must be of size batch_size")
    longest = targets.shape[-1]
    if known(target_lengths):
        _check_least("target", target_lengths)
        longest = int(target_lengths.max())
    _check_targets(targets, target_lengths, batch, longest)
    if known(input_lengths):
        _check_least("input", input_lengths)
        for length in input_lengths[input_lengths > steps]:
            raise RuntimeError(
                f"Expected input_lengths to have value at most {steps}, but got value {length} "
                f"{_CHECKED_IN}"
            )
    return longest if targets.ndim == 1 else targets.shape[1]


def _check_least(name: str, lengths: np.ndarray) -> None:
    for length in lengths[lengths < 0]:
        raise RuntimeError(
            f"Expected {name}_lengths to have value at least 0, but got value {length} {_CHECKED_IN}"
        )


def _check_targets(targets, target_lengths, batch: int, longest: int) -> None:
    expected = batch
    if targets.ndim == 1:
        expected = int(target_lengths.sum()) if known(target_lengths) else targets.shape[0]
    if targets.shape[0] != expected:
        raise RuntimeError(
            f"Expected tensor to have size {expected} at dimension 0, but got size "
            f"{targets.shape[0]} for argument #2 'targets' {_CHECKED_IN}"
        )
    if targets.ndim == 2 and targets.shape[1] < longest:
        raise RuntimeError(
            f"Expected tensor to have size at least {longest} at dimension 1, but got size "
            f"{targets.shape[1]} for argument #2 'targets' {_CHECKED_IN}"
        )


@functools.partial(jax.jit, static_argnames=("longest", "blank", "reduction", "zero_infinity"))
def _ctc(
    log_probs: jax.Array,
    targets: jax.Array,
    input_lengths: jax.Array,
    target_lengths: jax.Array,
    longest: int,
    blank: int,
    reduction: str,
    zero_infinity: bool,
) -> jax.Array:
    states = _states(targets, target_lengths, longest, blank)
    losses = -_log_likelihood(log_probs, states, input_lengths, target_lengths)  # (N,)
    counts = jnp.arange(log_probs.shape[0])[:, None] < input_lengths  # (T, N)
    if zero_infinity:
        is_possible = losses != jnp.inf
        losses = jnp.where(is_possible, losses, 0)
        counts = counts & is_possible
    total = jnp.exp(jnp.where(counts[..., None], log_probs, -jnp.inf)).sum((0, 2))
    # One, and NaN where the loss is not finite, as all of torch's gradient is there.
    value = lax.stop_gradient(losses)
    losses = graft(value, losses + total * (1 + 0 * value))
    if reduction == "mean":
        losses = losses / jnp.maximum(target_lengths, 1).astype(losses.dtype)
    return reduced(losses, reduction)


def _states(targets: jax.Array, lengths: jax.Array, longest: int, blank: int) -> jax.Array:
    """The class of each state, ``(N, 2 longest + 1)``: labels with blanks around them."""
    place = jnp.arange(longest)
    targets = targets.astype(jnp.int32)
    if targets.ndim == 1:
        start = jnp.cumsum(lengths) - lengths
        targets = targets.at[start[:, None] + place].get(mode="fill", fill_value=blank)
    labels = jnp.where(place < lengths[:, None], targets, blank)  # (N, longest)
    blanks = jnp.full_like(labels, blank)
    pairs = jnp.stack([blanks, labels], axis=-1).reshape(len(lengths), 2 * longest)
    return jnp.pad(pairs, ((0, 0), (0, 1)), constant_values=blank)


def _log_likelihood(
    log_probs: jax.Array, states: jax.Array, input_lengths: jax.Array, target_lengths: jax.Array
) -> jax.Array:
    """The logarithm of the summed probability of all alignments, ``(N,)``."""
    steps, batch, _ = log_probs.shape
    example = jnp.arange(batch)[:, None]
    emitted = log_probs.at[:, example, states].get(mode="fill", wrap_negative_indices=False)
    may_skip = states != _moved(states, 2, -1)

    def step(alpha: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        time, here = now
        skipped = jnp.where(may_skip, _moved(alpha, 2, -jnp.inf), -jnp.inf)
        reached = here + _log_sum(alpha, _moved(alpha, 1, -jnp.inf), skipped)
        return jnp.where(time < input_lengths[:, None], reached, alpha), None

    first = jnp.where(jnp.arange(states.shape[1]) < 2, emitted[0], -jnp.inf)  # (N, states)
    alpha, _ = lax.scan(step, first, (jnp.arange(1, steps), emitted[1:]))
    last = 2 * target_lengths[:, None]
    on_blank = jnp.take_along_axis(alpha, last, 1)
    on_label = jnp.take_along_axis(alpha, jnp.maximum(last - 1, 0), 1)
    result = _log_sum(on_blank, jnp.where(last > 0, on_label, -jnp.inf))[:, 0]
    # Nothing is certain to be read from nothing.
    empty = jnp.where(target_lengths > 0, -jnp.inf, 0).astype(result.dtype)
    return jnp.where(input_lengths > 0, result, empty)


def _moved(values: jax.Array, by: int, fill: float) -> jax.Array:
    """The values ``by`` states further on, ``fill`` before them."""
    return jnp.pad(values, ((0, 0), (by, 0)), constant_values=fill)[:, : values.shape[1]]


def _log_sum(*terms: jax.Array) -> jax.Array:
    """``log(sum(exp(terms)))`` whose derivatives are zero where every term is minus infinity."""
    stacked = jnp.stack(terms)
    highest = lax.stop_gradient(stacked.max(0))
    highest = jnp.where(highest == -jnp.inf, 0, highest)
    total = jnp.exp(stacked - highest).sum(0)
    is_zero = total == 0
    return jnp.where(is_zero, -jnp.inf, jnp.log(jnp.where(is_zero, 1, total)) + highest)
