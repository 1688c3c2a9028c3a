"""Training and testing as pure functions of the definition and the arrays."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import purestate
from bridge.demo._data import Part
from purestate import Definition, NamedArrays, nn


BATCH_SIZE = 32


@functools.partial(jax.jit, static_argnames="optimizer", donate_argnames=("params", "buffers", "state"))
def train_step(
    optimizer: optax.GradientTransformation,
    definition: Definition,
    params: NamedArrays,
    buffers: NamedArrays,
    state: Any,
    images: jax.Array,
    labels: jax.Array,
    key: jax.Array,
) -> tuple[NamedArrays, NamedArrays, Any, jax.Array]:
    """One step: new parameters, buffers and optimizer state, and the loss before it.

    The old arrays are donated: their memory holds the new ones, so they cannot be used again.
    """

    def loss_of(params: NamedArrays) -> tuple[jax.Array, NamedArrays]:
        logits, after = purestate.apply(definition, params, buffers, images, rng=key)
        return nn.functional.cross_entropy(logits, labels), after

    (loss, buffers), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
    updates, state = optimizer.update(gradients, state, params)
    moved: Any = optax.apply_updates(params, updates)
    return moved, buffers, state, loss


@jax.jit
def correct(definition: Definition, params: NamedArrays, buffers: NamedArrays, part: Part) -> jax.Array:
    """How many images are given their label; the definition is in evaluation mode."""
    logits, _ = purestate.apply(definition, params, buffers, part.images)
    return jnp.sum(jnp.argmax(logits, axis=1) == part.labels)


def batches(part: Part, epoch: int) -> Iterator[Part]:
    """The digits of one epoch in an order of its own, in batches of one size.

    What does not fill a batch is left out: one shape, one compilation.
    """
    order = np.random.default_rng(epoch).permutation(len(part.labels))
    for number in range(batches_per_epoch(part)):
        chosen = order[number * BATCH_SIZE : (number + 1) * BATCH_SIZE]
        yield Part(part.images[chosen], part.labels[chosen])


def batches_per_epoch(part: Part) -> int:
    """How many full batches there are."""
    return len(part.labels) // BATCH_SIZE
