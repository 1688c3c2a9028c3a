"""Pruning methods: what makes a mask of the importance of each entry.

A method is a plain object with ``compute_mask(t, default_mask)``, as in ``torch.nn.utils.prune``; users
write their own by subclassing :class:`BasePruningMethod`. It changes no module and holds no weight.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bridge._opened import size
from bridge.prune._amounts import channel_norms, check_amount, check_channels, count
from purestate._abstract import is_undrawn
from purestate._errors import MissingRngError, UninitializedError
from purestate._keys import as_key, fold_name


class BasePruningMethod(ABC):
    """What a way to prune defines. Torch's name: ``torch.nn.utils.prune.BasePruningMethod``.

    Attributes:
        PRUNING_TYPE: Where a second pruning acts: ``"unstructured"``, on the entries that the first
            left; ``"structured"``, on its channels; ``"global"``, on all entries.
    """

    PRUNING_TYPE: str

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask: ones for what stays.

        Args:
            t: The importance of each entry.
            default_mask: The mask so far, of the same shape.
        """

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """An array with its least important entries zero.

        Args:
            t: The array.
            default_mask: The mask so far; ones when None.
            importance_scores: Of each entry; the array itself when None.
        """
        if importance_scores is None:
            importance_scores = t
        elif importance_scores.shape != t.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as tensor t, "
                f"got {size(importance_scores)} vs {size(t)}"
            )
        default_mask = jnp.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(importance_scores, default_mask=default_mask)

    def at(self, place: str) -> "BasePruningMethod":
        """The method to use at one of several places; one that draws draws something else at each."""
        del place
        return self


class PruningContainer(BasePruningMethod):
    """Methods one after the other. Torch's name: ``torch.nn.utils.prune.PruningContainer``.

    Its mask is the last method's, on what the mask so far has left.
    """

    def __init__(self, *methods: Any):
        self._pruning_methods: tuple[Any, ...] = ()
        for method in methods:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method, which is the one to be used."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask so far, with the last method's where that acts."""
        method = self._pruning_methods[-1]
        place = _place(method, len(t.shape), default_mask)
        mask = default_mask[place]
        part = t.update(shape=mask.shape) if is_undrawn(t) else t[place]
        partial = method.compute_mask(part, default_mask=mask)
        mask = jnp.asarray(default_mask).astype(t.dtype)
        return mask.at[place].set(jnp.asarray(partial).astype(mask.dtype))


def _place(method: Any, ndim: int, mask: Any) -> Any:
    """The index of the entries on which a method acts."""
    kind = method.PRUNING_TYPE
    if kind == "unstructured":
        return np.nonzero(np.asarray(mask) == 1)
    if kind == "structured":
        if not hasattr(method, "dim"):
            raise AttributeError(
                'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.'
            )
        dim = method.dim + ndim if method.dim < 0 else method.dim
        if dim < 0:
            raise IndexError(f"Index is out of bounds for tensor with dimensions {ndim}")
        others = tuple(axis for axis in range(ndim) if axis != dim)
        kept = np.nonzero(np.asarray(mask).sum(axis=others) != 0)[0]
        return (*(slice(None) for _ in range(dim)), kept)
    if kind == "global":
        return ...
    raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")


def _values(t: Any) -> Any:
    if is_undrawn(t):
        raise UninitializedError(
            "this pruning method ranks the entries by their values, and they have none yet.\n"
            "    write: model = purestate.init(model, rng) before, or pass importance_scores"
        )
    return t


class _Draws(BasePruningMethod):
    """A method that draws."""

    def __init__(self, amount: Any, rng: Any = None):
        check_amount(amount)
        self.amount = amount
        self.rng = as_key(rng)

    def at(self, place: str) -> "BasePruningMethod":
        """The same method with the key of a place."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), rng=None if self.rng is None else fold_name(self.rng, place))
        return twin

    def draw(self, shape: tuple[int, ...]) -> jax.Array:
        """Uniform numbers.

        Raises:
            MissingRngError: Without a key.
        """
        if self.rng is None:
            raise MissingRngError(
                f"{type(self).__name__} draws, and it was given no key.\n"
                "    write: rng=jax.random.key(0), or an int as its seed"
            )
        return jax.random.uniform(self.rng, shape)


class Identity(BasePruningMethod):
    """Prunes nothing. Torch's name: ``torch.nn.utils.prune.Identity``."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask so far."""
        del t
        return default_mask


class RandomUnstructured(_Draws):
    """Prunes entries at random. Torch's name: ``torch.nn.utils.prune.RandomUnstructured``.

    Args:
        amount: A count, or a fraction.
        rng: A key or an int.
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask so far without ``amount`` of the entries."""
        number = count(self.amount, t.size)
        if number == 0:
            return default_mask
        chosen = jnp.argsort(self.draw((t.size,)))[:number]
        return default_mask.reshape(-1).at[chosen].set(0).reshape(t.shape)


class L1Unstructured(BasePruningMethod):
    """Prunes the smallest entries. Torch's name: ``torch.nn.utils.prune.L1Unstructured``.

    Args:
        amount: A count, or a fraction.
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any):
        check_amount(amount)
        self.amount = amount

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask so far without ``amount`` of the entries."""
        number = count(self.amount, t.size)
        if number == 0:
            return default_mask
        smallest = jnp.argsort(jnp.abs(_values(t)).reshape(-1))[:number]
        return default_mask.reshape(-1).at[smallest].set(0).reshape(t.shape)


class RandomStructured(_Draws):
    """Prunes channels at random. Torch's name: ``torch.nn.utils.prune.RandomStructured``.

    Args:
        amount: A count, or a fraction of the channels.
        dim: The axis of the channels.
        rng: A key or an int.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1, rng: Any = None):
        super().__init__(amount, rng)
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask so far without ``amount`` of the channels."""
        check_channels(t, self.dim)
        total = t.shape[self.dim]
        number = count(self.amount, total)
        if number == 0:
            return default_mask
        kept = jnp.argsort(self.draw((total,)))[number:]
        return default_mask * _channels(t, self.dim, kept).astype(default_mask.dtype)


class LnStructured(BasePruningMethod):
    """Prunes the channels of the smallest norm. Torch's name: ``torch.nn.utils.prune.LnStructured``.

    Args:
        amount: A count, or a fraction of the channels.
        n: Which norm: a number, an infinity, ``"fro"`` or ``"nuc"``.
        dim: The axis of the channels.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, n: Any, dim: int = -1):
        check_amount(amount)
        self.amount = amount
        self.n = n
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask so far without ``amount`` of the channels."""
        check_channels(t, self.dim)
        number = count(self.amount, t.shape[self.dim])
        if number == 0:
            return default_mask
        kept = jnp.argsort(channel_norms(_values(t), self.n, self.dim))[number:]
        return default_mask * _channels(t, self.dim, kept).astype(default_mask.dtype)


def _channels(t: Any, dim: int, kept: jax.Array) -> jax.Array:
    """Ones in some channels."""
    ones = jnp.zeros((t.shape[dim],)).at[kept].set(1)
    shape = [1] * len(t.shape)
    shape[dim] = -1
    return jnp.broadcast_to(ones.reshape(shape), t.shape)


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask that is there. Torch's name: ``torch.nn.utils.prune.CustomFromMask``.

    Args:
        mask: Ones for what stays.
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any):
        self.mask = jnp.asarray(mask)

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask so far and this one."""
        del t
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {size(default_mask)} must match self.mask shape {size(self.mask)}"
            )
        return default_mask * self.mask.astype(default_mask.dtype)
