"""A bilinear map whose reverse is written by hand, without giving up any other derivative.

JAX derives the backward pass of a linear map by transposing it. Where the derived program is slow,
``jax.custom_vjp`` would let us write another, and would forbid forward mode. Here the *tangent* is
defined instead, as the transpose of the backward program we want: transposing it once more, which is
what reverse mode does, gives that very program back. Everything stays ordinary JAX, so forward mode,
vmap and derivatives of any order keep working.
"""

from collections.abc import Callable

import jax

from purestate.nn.functional._tangents import moves
from purestate.nn.functional._varying import varying_alike


Product = Callable[[jax.Array, jax.Array], jax.Array]
Cotangent = Callable[[jax.Array, jax.Array], jax.Array]


def with_cotangents(product: Product, of_left: Cotangent, of_right: Cotangent) -> Product:
    """A bilinear ``product(left, right)`` that is differentiated in reverse by the given programs.

    Args:
        product: Bilinear in its two arrays.
        of_left: ``(cotangent of the output, right)`` to the cotangent of ``left``.
        of_right: ``(cotangent of the output, left)`` to the cotangent of ``right``.
    """

    @jax.custom_jvp
    def function(left: jax.Array, right: jax.Array) -> jax.Array:
        return product(left, right)

    def jvp(primals, tangents):
        left, right = primals
        output = product(left, right)
        terms = [
            jax.linear_transpose(lambda ct, fixed=fixed, back=back: back(ct, fixed), output)(tangent)[0]
            for tangent, fixed, back in zip(tangents, (right, left), (of_left, of_right), strict=True)
            if moves(tangent)
        ]
        return output, sum(terms[1:], start=terms[0]) if terms else jax.numpy.zeros_like(output)

    function.defjvp(jvp, symbolic_zeros=True)
    return lambda left, right: function(*varying_alike((left, right)))
