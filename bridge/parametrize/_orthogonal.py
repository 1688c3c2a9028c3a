"""Orthogonal weights: a matrix with orthonormal columns (or rows) as a function of any matrix."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import expm

from bridge._opened import changed
from bridge._places import in_its_module
from bridge.parametrize._registration import key_at, register
from bridge.parametrize._spectral_norm import remember_made, weight_of
from purestate._module import Module
from purestate._select import Selector


MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    def __init__(self, weight: Any, orthogonal_map: str, *, use_trivialization: bool = True):
        super().__init__()
        if jnp.issubdtype(weight.dtype, jnp.complexfloating) and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = tuple(weight.shape)
        self.orthogonal_map = orthogonal_map
        self.use_trivialization = use_trivialization
        if use_trivialization:
            *batch, rows, columns = self.shape
            size = max(rows, columns)
            identity = jnp.eye(size, dtype=weight.dtype)
            self.register_buffer("base", jnp.broadcast_to(identity, (*batch, size, size)))

    def forward(self, X: jax.Array) -> jax.Array:
        transposed = X.shape[-2] < X.shape[-1]
        X = X.mT if transposed else X
        Q = _reflected(X) if self.orthogonal_map == "householder" else _mapped(X, self.orthogonal_map)
        if self.use_trivialization:
            Q = self.base @ Q
        return Q.mT if transposed else Q

    def right_inverse(self, Q: jax.Array) -> jax.Array:
        if tuple(Q.shape) != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape torch.Size({list(self.shape)}). "
                f"Got a tensor of shape torch.Size({list(Q.shape)})."
            )
        like = Q
        transposed = Q.shape[-2] < Q.shape[-1]
        Q = Q.mT if transposed else Q
        n, k = Q.shape[-2:]
        if not self.use_trivialization:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential "
                    "or the Cayley parametrizations when use_trivialization=False."
                )
            A = _reflectors(Q)
            return A.mT if transposed else A
        if n == k:
            self.base = jnp.where(_is_orthogonal(Q), Q, _made_orthogonal(Q))
        else:
            completion = jax.random.normal(self.next_key(), (*Q.shape[:-1], n - k), Q.dtype)
            self.base = _made_orthogonal(jnp.concatenate([Q, completion], axis=-1))
        # Minus the identity: its diagonal is the sign by which householder(0) is the identity.
        return jnp.broadcast_to(-jnp.eye(*like.shape[-2:], dtype=like.dtype), like.shape)


def _mapped(X: jax.Array, orthogonal_map: str) -> jax.Array:
    """The first columns of the exponential, or the Cayley map, of a skew-symmetric matrix."""
    n, k = X.shape[-2:]
    X = jnp.tril(X)
    X = jnp.concatenate([X, jnp.zeros((*X.shape[:-1], n - k), X.dtype)], axis=-1)
    A = X - X.mT.conj()
    if orthogonal_map == "matrix_exp":
        return expm(A)[..., :k]
    identity = jnp.eye(n, dtype=A.dtype)
    return jnp.linalg.solve(identity - 0.5 * A, identity + 0.5 * A)[..., :k]


def _reflected(X: jax.Array) -> jax.Array:
    """The first columns of a product of Householder reflections, one below each diagonal entry."""
    n, k = X.shape[-2:]
    A = jnp.tril(X, -1)
    V = A + jnp.eye(n, k, dtype=X.dtype)
    # The product as I - V T V', where the inverse of the triangular T is known.
    inverse = jnp.triu(V.mT @ V, 1) + 0.5 * (1 + jnp.sum(A * A, axis=-2))[..., None] * jnp.eye(k)
    Q = jnp.eye(n, k, dtype=X.dtype) - V @ jax.scipy.linalg.solve_triangular(
        inverse.astype(X.dtype), V[..., :k, :].mT
    )
    # The diagonal of X holds signs; it is not differentiated.
    return Q * jnp.diagonal(X, axis1=-2, axis2=-1).astype(jnp.int32)[..., None, :].astype(X.dtype)


def _reflectors(Q: jax.Array) -> jax.Array:
    """The matrix that ``_reflected`` makes an orthogonal one of, near to ``Q``."""
    raw, tau = jnp.linalg.qr(Q, mode="raw")
    A = raw.mT
    diagonal = jnp.sign(jnp.diagonal(A, axis1=-2, axis2=-1))
    diagonal = jnp.where(tau == 0, -diagonal, diagonal)
    here = jnp.eye(*A.shape[-2:], dtype=bool)
    return jnp.where(here, diagonal[..., None, :], A)


def _is_orthogonal(Q: jax.Array) -> jax.Array:
    n, k = Q.shape[-2:]
    eps = 10.0 * n * float(jnp.finfo(Q.dtype).eps)
    return jnp.allclose(Q.mT.conj() @ Q, jnp.eye(k, dtype=Q.dtype), atol=eps)


def _made_orthogonal(A: jax.Array) -> jax.Array:
    """The orthogonal factor of a QR decomposition whose triangular one has a positive diagonal."""
    Q, R = jnp.linalg.qr(A)
    return Q * jnp.sign(jnp.diagonal(R, axis1=-2, axis2=-1))[..., None, :]


@in_its_module
def orthogonal(
    model: Any,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
    at: Selector = "",
    rng: Any = 0,
) -> Any:
    """The model with an orthogonal weight (``torch.nn.utils.parametrizations.orthogonal``).

    The columns of the weight are orthonormal, or its rows where it has fewer of them; more than two
    axes are a batch of matrices.

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter.
        orthogonal_map: ``"matrix_exp"``, ``"cayley"`` or ``"householder"``. The first when None for a
            square or complex weight, the last for others.
        use_trivialization: Multiply by a fixed orthogonal matrix, ``parametrizations.weight.0.base``,
            which starts as the weight; then any value can be assigned.
        at: Which modules; the root by default.
        rng: A key or an int, for the columns that complete a weight that is not square; not used for
            a weight without values.

    Raises:
        ValueError: When there is no such parameter or buffer, it is no matrix, or the map is unknown.
    """

    def change(module: Any, path: str) -> None:
        weight = weight_of(module, name)
        if len(weight.shape) < 2:
            raise ValueError(
                "Expected a matrix or batch of matrices. "
                f"Got a tensor of {len(weight.shape)} dimensions."
            )
        chosen = orthogonal_map
        if chosen is None:
            square = weight.shape[-2] == weight.shape[-1]
            square = square or jnp.issubdtype(weight.dtype, jnp.complexfloating)
            chosen = "matrix_exp" if square else "householder"
        if chosen not in MAPS:
            raise ValueError(
                f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {chosen}'
            )
        made = _Orthogonal(weight, chosen, use_trivialization=use_trivialization)
        register(module, name, made, True, key_at(rng, path, name))
        remember_made(made, module, name, weight)

    return changed(model, change, at)
