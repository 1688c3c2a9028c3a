"""What is known of a program's sizes and devices while it is traced, for choices of speed alone."""

import jax


def all_known(*sizes: object) -> bool:
    """Whether all sizes are numbers; those of ``jax.export.symbolic_shape`` are not.

    Which form of a program is the faster one is asked of sizes. Of a symbolic size there is no answer,
    and asking raises: such a program gets the form that is right for all sizes.
    """
    return all(isinstance(size, int) for size in sizes)


def merging_pays() -> bool:
    """Whether axes are merged, so that a product and its derivatives are products of matrices.

    The derivative of a product with more axes sums over two of them at once, for which XLA takes 2.3
    times as long on one CPU device. Everywhere else axes stay as they are: an axis that is sharded
    does not survive being merged into one before it, so that every device would gather the whole batch
    and compute all of it, and a mesh with explicit axes refuses.

    JAX's default backend decides, while tracing, and not ``lax.platform_dependent``, which would leave
    a conditional in the backward pass (docs/design/0013). Either form is right on every platform.
    """
    return jax.default_backend() == "cpu" and jax.device_count() == 1
