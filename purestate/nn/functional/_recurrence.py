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
from jax.custom_derivatives import SymbolicZero

from purestate.nn.functional._gates import Arrays, Gates, added


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
    run = functools.partial(_scan, gates, is_reverse)
    return lax.platform_dependent(
        *operands,
        cpu=functools.partial(run, False),
        default=functools.partial(run, True),
    )


def _scan(
    gates: Gates,
    is_reverse: bool,
    at_once: bool,
    xs: jax.Array,
    start: Arrays,
    weights: Weights,
    kept: jax.Array | None,
) -> tuple[jax.Array, Arrays, Any]:
    """``at_once``: multiply all inputs by their weight before the loop, and not step by step.

    It saves a kernel a step where a product is one kernel. On the CPU a narrow product is as fast as a
    wide one, and all that is added is an array of ``(L, gates, N)`` that is written and read once.
    """
    products = _products(gates, weights, at_once)

    def step(state: Arrays, inputs: Any) -> tuple[Arrays, Any]:
        x, kept = inputs
        (h, *rest), slopes = gates.advance(products(x, state[0]), state)
        after = (h if weights.w_hr is None else weights.w_hr @ h, *rest)
        if kept is not None:
            after = _chosen(kept, after, state)
        return after, (after[0], h, slopes)

    if at_once:
        xs = _steps(weights.from_input(_columns(xs)), xs)
    last, (ys, unprojected, slopes) = lax.scan(step, start, (xs, kept), reverse=is_reverse)
    return ys, last, (unprojected, slopes)


def _products(
    gates: Gates, weights: Weights, at_once: bool
) -> Callable[[jax.Array, jax.Array], Arrays]:
    """From the input of a step, or what was made of it at once, and the state to the joined gates."""
    if at_once:
        return lambda x, h: gates.join(x, weights.from_state(h))
    if gates.join is not added:
        return lambda x, h: gates.join(weights.from_input(x), weights.from_state(h))
    # Two products that are added are one product, which two threads share better.
    w = jnp.concatenate([weights.w_ih, weights.w_hh], axis=1)
    b = None if weights.b_ih is None or weights.b_hh is None else weights.b_ih + weights.b_hh
    return lambda x, h: (_plus(w @ jnp.concatenate([x, h]), b),)


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
    from_input = _plus(_product(d_weights.w_ih, xs), _known(d_weights.b_ih))
    if not isinstance(d_xs, SymbolicZero):
        from_input = from_input + _steps(_fast_transposed(weights.w_ih)(_columns(d_xs)), xs)
    from_state = _plus(_product(d_weights.w_hh, before), _known(d_weights.b_hh))
    shares = gates.join(from_input, from_state)
    projected = None if w_hr is None else _product(d_weights.w_hr, unprojected)

    times_w_hh = _fast_transposed(w_hh)
    times_w_hr = None if w_hr is None else _fast_transposed(w_hr)

    def step(state: Arrays, inputs: Any) -> tuple[Arrays, jax.Array]:
        shares, projected, slopes, kept = inputs
        recurrent = times_w_hh(state[0])
        joined = gates.join(jnp.zeros_like(recurrent), recurrent)
        joined = tuple(map(jnp.add, shares, joined))
        (h, *rest) = gates.tangent(slopes, joined, state)
        after = (h if times_w_hr is None else projected + times_w_hr(h), *rest)
        if kept is not None:
            after = _chosen(kept, after, state)
        return after, after[0]

    d_start = tuple(map(_known, d_start))
    d_last, d_ys = lax.scan(step, d_start, (shares, projected, slopes, kept), reverse=is_reverse)
    return (ys, last), (d_ys, d_last)


def _chosen(kept: jax.Array, after: Arrays, before: Arrays) -> Arrays:
    return tuple(jnp.where(kept, new, old) for new, old in zip(after, before, strict=True))


def _plus(values: jax.Array, bias: jax.Array | None) -> jax.Array:
    return values if bias is None else values + bias[:, None]


def _known(tangent: Any) -> Any:
    """A tangent with its zeros written out."""
    if isinstance(tangent, SymbolicZero):
        zero: Any = tangent.aval
        return jnp.zeros(zero.shape, zero.dtype)
    return tangent


def _columns(steps: jax.Array) -> jax.Array:
    """``(L, features, N)`` to ``(features, L N)``: what one wide product multiplies."""
    length, features, batch = steps.shape
    return steps.swapaxes(0, 1).reshape(features, length * batch)


def _steps(columns: jax.Array, like: jax.Array) -> jax.Array:
    """``(features, L N)`` to ``(L, features, N)``, with ``L`` and ``N`` as in another sequence."""
    length, _, batch = like.shape
    return columns.reshape(columns.shape[0], length, batch).swapaxes(0, 1)


def _product(tangent: Any, steps: jax.Array) -> jax.Array:
    """The change of a weight times every step."""
    return _steps(_known(tangent) @ _columns(steps), steps)


def _fast_transposed(weight: jax.Array) -> Any:
    """``weight @ x`` as a function of ``x`` whose transpose multiplies by a stored transpose.

    XLA's CPU compiler has no fast product with a transposed left operand. The backward pass, which
    needs it in each step, gets an array that was transposed once, before the loop.
    """
    stored = weight.T
    return lambda x: lax.dot_general(stored, x, (((0,), (0,)), ((), ())))
