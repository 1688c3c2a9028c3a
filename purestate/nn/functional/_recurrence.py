"""One layer in one direction: a scan whose derivative is written for the backward pass.

Inside, the batch is the last axis: a step is ``(features, N)``, a sequence ``(L, features, N)``. Then
torch's weights multiply from the left as they are stored, and a gate is a contiguous block of rows.

Left to JAX, the derivative of a scan adds each step's share of the weights' gradient to an array as
large as the weight, one narrow product a step. The rule here moves what a change of the weights and of
the input contributes out of the loop: it is one wide product over all steps, before a scan that
carries only the change of the state. Its transpose, which is what ``jax.grad`` runs, is a scan back in
time and then one wide product for the gradient of each weight. A rule for tangents, and not one for
the backward pass alone, so that every mode and every order of differentiation keeps working.

Figures, and what else was tried: ``docs/design/0011-recurrent-layers-on-the-cpu.md``.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dtypes import plus
from purestate.nn.functional._forms import all_known, merging_pays
from purestate.nn.functional._gates import Arrays, Gates
from purestate.nn.functional._tangents import moves


BLOCK = 4
"""How many steps a CPU takes at a time."""


class Weights(NamedTuple):
    """The weights of one layer in one direction, as torch stores them; None where there is none."""

    w_ih: jax.Array
    w_hh: jax.Array
    b_ih: jax.Array | None
    b_hh: jax.Array | None
    w_hr: jax.Array | None = None

    def from_input(self, x: jax.Array) -> jax.Array:
        """``(in, N)`` to its part of the gates, ``(blocks H, N)``."""
        return _plus(self.w_ih @ x, self.b_ih)

    def from_state(self, h: jax.Array) -> jax.Array:
        """``(P, N)`` to its part of the gates, ``(blocks H, N)``."""
        return _plus(self.w_hh @ h, self.b_hh)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def recurrence(
    gates: Gates,
    is_reverse: bool,
    xs: jax.Array,
    start: Arrays,
    weights: Weights,
    kept: jax.Array | None,
) -> tuple[jax.Array, Arrays]:
    """Run one layer in one direction.

    Args:
        gates: What a step computes.
        is_reverse: Whether to run from the last step to the first.
        xs: ``(L, in, N)``.
        start: The state before the first step, arrays of ``(features, N)``.
        weights: The weights.
        kept: ``(L, 1, N)`` or None: where it is False, a step leaves the state as it was.

    Returns:
        The hidden state after each step, ``(L, features, N)``, and the last state.
    """
    ys, last, _ = _run(gates, is_reverse, xs, start, weights, kept)
    return ys, last


def _run(
    gates: Gates,
    is_reverse: bool,
    xs: jax.Array,
    start: Arrays,
    weights: Weights,
    kept: jax.Array | None,
) -> tuple[jax.Array, Arrays, Any]:
    """The outputs, the last state, and for each step ``(what a projection read, slopes)``."""
    operands = xs, start, weights, kept
    if not all_known(xs.shape[0]):
        return _block(gates, is_reverse, 1, *operands)
    return lax.platform_dependent(
        *operands,
        cpu=functools.partial(_in_blocks, gates, is_reverse),
        default=functools.partial(_block, gates, is_reverse, 1),
    )


def _block(
    gates: Gates,
    is_reverse: bool,
    unroll: int,
    xs: jax.Array,
    start: Arrays,
    weights: Weights,
    kept: jax.Array | None,
) -> tuple[jax.Array, Arrays, Any]:
    """Multiply all inputs by their weight in one product, then go through the steps."""

    def step(state: Arrays, inputs: Any) -> tuple[Arrays, Any]:
        from_input, kept = inputs
        joined = gates.join(from_input, weights.from_state(state[0]))
        (h, *rest), slopes = gates.advance(joined, state)
        after = (h if weights.w_hr is None else weights.w_hr @ h, *rest)
        if kept is not None:
            after = _chosen(kept, after, state)
        return after, (after[0], h, slopes)

    from_inputs = _plus(_product(weights.w_ih, xs), weights.b_ih)
    steps = from_inputs, kept
    last, (ys, unprojected, slopes) = lax.scan(step, start, steps, reverse=is_reverse, unroll=unroll)
    return ys, last, (unprojected, slopes)


def _in_blocks(
    gates: Gates,
    is_reverse: bool,
    xs: jax.Array,
    start: Arrays,
    weights: Weights,
    kept: jax.Array | None,
) -> tuple[jax.Array, Arrays, Any]:
    """The same, ``BLOCK`` steps at a time, without a loop inside a block.

    What a block makes of its inputs stays in the cache, where all of it at once would be written to
    memory and read again; and two threads share its product better than narrow ones.
    """
    if xs.shape[0] < BLOCK:
        return _block(gates, is_reverse, BLOCK, xs, start, weights, kept)
    whole, rest = divmod(xs.shape[0], BLOCK)
    at = rest if is_reverse else whole * BLOCK
    parts = [jax.tree.map(lambda steps: steps[:at], (xs, kept))]
    parts.append(jax.tree.map(lambda steps: steps[at:], (xs, kept)))
    blocks, remainder = reversed(parts) if is_reverse else parts

    def block(state: Arrays, inputs: Any) -> tuple[Arrays, Any]:
        xs, kept = inputs
        ys, last, saved = _block(gates, is_reverse, BLOCK, xs, state, weights, kept)
        return last, (ys, saved)

    split = jax.tree.map(lambda steps: steps.reshape(whole, BLOCK, *steps.shape[1:]), blocks)
    last, made = lax.scan(block, start, split, reverse=is_reverse)
    made = jax.tree.map(lambda steps: steps.reshape(whole * BLOCK, *steps.shape[2:]), made)
    if rest:
        last, of_remainder = block(last, remainder)
        made = jax.tree.map(
            lambda *both: jnp.concatenate(both[::-1] if is_reverse else both), made, of_remainder
        )
    ys, saved = made
    return ys, last, saved


@functools.partial(recurrence.defjvp, symbolic_zeros=True)
def _rule(gates: Gates, is_reverse: bool, primals: Any, tangents: Any) -> tuple[Any, Any]:
    xs, start, weights, kept = primals
    d_xs, d_start, d_weights, _ = tangents
    ys, last, (unprojected, slopes) = _run(gates, is_reverse, xs, start, weights, kept)
    _, w_hh, *_, w_hr = weights
    before = (
        jnp.concatenate([ys[1:], start[0][None]])
        if is_reverse
        else jnp.concatenate([start[0][None], ys[:-1]])
    )

    # The shares of the input, the weights and the biases, for all steps at once.
    nothing = jnp.zeros_like(ys, shape=(ys.shape[0], *w_hh.shape[:1], ys.shape[2]))
    from_input = _change(nothing, d_weights.w_ih, xs, d_weights.b_ih)
    if moves(d_xs):
        from_input = from_input + _at_once(_fast_transposed(weights.w_ih), d_xs)
    from_state = _change(nothing, d_weights.w_hh, before, d_weights.b_hh)
    shares = gates.join(from_input, from_state)
    projected = _product(d_weights.w_hr, unprojected) if moves(d_weights.w_hr) else None

    times_w_hh = _fast_transposed(w_hh)
    times_w_hr = None if w_hr is None else _fast_transposed(w_hr)

    def step(state: Arrays, inputs: Any) -> tuple[Arrays, jax.Array]:
        shares, projected, slopes, kept = inputs
        recurrent = times_w_hh(state[0])
        joined = gates.join(jnp.zeros_like(recurrent), recurrent)
        joined = tuple(map(jnp.add, shares, joined))
        (h, *rest) = gates.tangent(slopes, joined, state)
        h = h if times_w_hr is None else times_w_hr(h)
        after = (h if projected is None else projected + h, *rest)
        if kept is not None:
            after = _chosen(kept, after, state)
        return after, after[0]

    # Zeros of the primal's type, which says over what it varies; the tangent's shape does not.
    d_start = tuple(d if moves(d) else jnp.zeros_like(p) for d, p in zip(d_start, start, strict=True))
    d_last, d_ys = lax.scan(step, d_start, (shares, projected, slopes, kept), reverse=is_reverse)
    return (ys, last), (d_ys, d_last)


def _chosen(kept: jax.Array, after: Arrays, before: Arrays) -> Arrays:
    return tuple(jnp.where(kept, new, old) for new, old in zip(after, before, strict=True))


def _plus(values: jax.Array, bias: jax.Array | None) -> jax.Array:
    return values if bias is None else plus(values, bias[:, None])


def _columns(steps: jax.Array) -> jax.Array:
    """``(L, features, N)`` to ``(features, L N)``: what one wide product multiplies."""
    length, features, batch = steps.shape
    return steps.swapaxes(0, 1).reshape(features, length * batch)


def _steps(columns: jax.Array, like: jax.Array) -> jax.Array:
    """``(features, L N)`` to ``(L, features, N)``, with ``L`` and ``N`` as in another sequence."""
    length, _, batch = like.shape
    return columns.reshape(columns.shape[0], length, batch).swapaxes(0, 1)


def _at_once(product: Callable[[jax.Array], jax.Array], steps: jax.Array) -> jax.Array:
    """A product of the features, ``(L, features, N)`` to ``(L, rows, N)``, for all steps at once.

    What multiplies takes features from the last axis but one and puts rows first.
    """
    if merging_pays():
        return _steps(product(_columns(steps)), steps)
    return product(steps).swapaxes(0, 1)


def _product(weight: jax.Array, steps: jax.Array) -> jax.Array:
    """A weight, or the change of one, times every step."""
    return _at_once(lambda x: lax.dot_general(weight, x, (((1,), (x.ndim - 2,)), ((), ()))), steps)


def _change(nothing: jax.Array, weight: Any, steps: jax.Array, bias: Any) -> jax.Array:
    """What the changes of a weight and of a bias, if any, make of every step."""
    total = _product(weight, steps) if moves(weight) else nothing
    return _plus(total, bias if moves(bias) else None)


def _fast_transposed(weight: jax.Array) -> Any:
    """``weight @ x`` as a function of ``x`` whose transpose multiplies by a stored transpose.

    XLA's CPU compiler has no fast product with a transposed left operand. The backward pass, which
    needs it in each step, gets an array that was transposed once, before the loop.
    """
    stored = weight.T
    return lambda x: lax.dot_general(stored, x, (((0,), (x.ndim - 2,)), ((), ())))
