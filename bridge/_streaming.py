"""Arrays that are read straight into the leaves of a model.

``load_checkpoint`` first matches names with values that have not been read. What is to become of each
leaf is a :class:`Later`; when nothing is wrong, they are read one after another, so that at no time
there are two copies of more than one array:

- An array that lies in its file as JAX wants it (aligned, row-major, of the right dtype) is used where
  it lies: no copy, and pages are read when they are used.
- Any other is read from the file into memory that JAX takes over, by way of one array's worth of
  memory when the dtype changes.
- With a sharding over several devices, each process reads the slices of its own devices and nothing
  else, each distinct slice once.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from bridge._load_progress import Progress
from bridge._load_state_dict import check_fits, copying_failed
from bridge._torch_cast import cast_into
from bridge.checkpoint._chunks import Chunked, part_of
from bridge.checkpoint._memory import ALIGNMENT
from bridge.checkpoint._parts import aligned
from bridge.checkpoint._source import place_of
from bridge.checkpoint.errors import CheckpointError
from purestate._abstract import AbstractArray, is_undrawn
from purestate._definition import Definition


Choose = Callable[[str, Any], Any]


class Later(AbstractArray):
    """A value for a leaf, not read yet; with the dtype and sharding that it is to have."""

    __slots__ = ("key", "value")

    def __init__(self, key: str, value: Any, dtype: Any, sharding: Any):
        super().__init__(value.shape, dtype, sharding=sharding)
        self.key = key
        self.value = value


class Moved(AbstractArray):
    """An array that the model has already, to be cast or placed unless the file has another value."""

    __slots__ = ("array",)

    def __init__(self, array: jax.Array, dtype: Any, sharding: Any):
        super().__init__(array.shape, dtype, sharding=sharding)
        self.array = array


class Streams:
    """The maker of ``load_checkpoint`` (``bridge._load_state_dict.Maker``).

    Args:
        copy: Never use an array where it lies in its file.
        progress: Whether to show a bar where that makes sense.

    Attributes:
        made: ``{name: leaf}`` of every value that was matched.
        cast: ``{name: (dtype in the file, dtype in the model)}`` where they differ.
        errors: What went wrong in reading, as texts of torch's report.
        bytes: How many bytes of arrays were taken from the files.
    """

    def __init__(self, *, copy: bool, progress: bool):
        self.made: dict[str, int] = {}
        self.cast: dict[str, tuple[str, str]] = {}
        self.errors: list[str] = []
        self.bytes = 0
        self._copy = copy
        self._progress = progress

    def make(self, leaf: int, key: str, value: Any, dtype: Any, place: Any) -> Later:
        """Note what the leaf is going to be."""
        value = value if isinstance(value, Chunked) else np.asarray(value)
        self.made[key] = leaf
        narrowed = np.issubdtype(dtype, np.integer) and dtype == jax.dtypes.canonicalize_dtype(
            value.dtype
        )
        if value.dtype != dtype and not narrowed:
            self.cast[key] = (value.dtype.name, np.dtype(dtype).name)
        return Later(key, value, dtype, None if place is None else fitting(place, value.shape))

    def settle(self, leaves: list[Any]) -> list[Any]:
        """Read what was put off."""
        total = sum(leaf.value.nbytes for leaf in leaves if isinstance(leaf, Later))
        with Progress(total, self._progress) as progress:
            return [self._settle(leaf, progress) for leaf in leaves]

    def _settle(self, leaf: Any, progress: Progress) -> Any:
        if isinstance(leaf, Moved):
            array = leaf.array if leaf.array.dtype == leaf.dtype else leaf.array.astype(leaf.dtype)
            return array if leaf.sharding is None else jax.device_put(array, leaf.sharding)
        if not isinstance(leaf, Later):
            return leaf
        try:
            array = self._sharded(leaf) if _is_spread(leaf.sharding) else self._whole(leaf)
        except (OverflowError, TypeError) as error:
            self.errors.append(copying_failed(leaf.key, leaf, leaf.value, error))
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        except CheckpointError as error:
            raise error.locate(entry=leaf.key) from error.__cause__
        progress.advance(leaf.value.nbytes)
        return array

    def _whole(self, leaf: Later) -> jax.Array:
        value = leaf.value
        lying = value.whole() if isinstance(value, Chunked) else value
        self.bytes += value.nbytes
        if lying is not None and lying.dtype == leaf.dtype and self._usable(lying):
            return jax.device_put(lying, leaf.sharding)
        numbers = part_of(value if lying is None else lying)
        return jax.device_put(_as(numbers, np.dtype(leaf.dtype), leaf.key), leaf.sharding)

    def _usable(self, array: np.ndarray) -> bool:
        """Whether JAX can use an array where it lies, and may."""
        fits = array.flags.c_contiguous and array.__array_interface__["data"][0] % ALIGNMENT == 0
        return fits and not (self._copy and place_of(array) is not None)

    def _sharded(self, leaf: Later) -> jax.Array:
        parts: dict[tuple[tuple[int, int], ...], np.ndarray] = {}

        def part(index: Any) -> np.ndarray:
            # JAX asks once for each device; devices that hold the same slice share it.
            bounds = tuple(
                along.indices(n)[:2] for along, n in zip(index, leaf.value.shape, strict=True)
            )
            if bounds not in parts:
                numbers = part_of(leaf.value, tuple(slice(*along) for along in bounds))
                self.bytes += numbers.nbytes
                parts[bounds] = _as(numbers, np.dtype(leaf.dtype), leaf.key)
            return parts[bounds]

        return jax.make_array_from_callback(leaf.shape, leaf.sharding, part, dtype=leaf.dtype)


def _as(numbers: np.ndarray, dtype: np.dtype, key: str) -> np.ndarray:
    """The numbers in a dtype, aligned; integers must fit."""
    check_fits(numbers, dtype, key)
    if numbers.dtype == dtype:
        return numbers
    result = aligned(numbers.shape, dtype)
    cast_into(result, numbers)
    return result


def _is_spread(place: Any) -> bool:
    """Whether an array lies on several devices, or on one of another process."""
    return place is not None and not (len(place.device_set) == 1 and place.is_fully_addressable)


def fitting(sharding: Any, shape: tuple[int, ...]) -> Any:
    """The sharding without the axes that it does not divide: these are whole on every device.

    A sharding with more axes than the array replicates it: what its axes were meant for is unknown.

    Raises:
        ValueError: From JAX, for a sharding without named axes that does not divide.
    """
    if not isinstance(sharding, jax.sharding.NamedSharding):
        sharding.shard_shape(tuple(shape))
        return sharding
    spec: list[Any] = list(sharding.spec) if len(sharding.spec) <= len(shape) else []
    for axis, names in enumerate(spec):
        names = names if isinstance(names, tuple) else (names,) if isinstance(names, str) else ()
        if shape[axis] % math.prod(sharding.mesh.shape[name] for name in names):
            spec[axis] = None
    if spec == list(sharding.spec):
        return sharding
    return jax.sharding.NamedSharding(
        sharding.mesh, jax.sharding.PartitionSpec(*spec), memory_kind=sharding.memory_kind
    )


def chooser(sharding: Any, definition: Definition) -> Choose:
    """How ``sharding=`` chooses one for each name: one for all, a mapping, or a function.

    Raises:
        TypeError: For what is no sharding: a partition, a mesh, a device.
        ValueError: When a mapping has a name that the model has not.
    """
    kinds = jax.sharding.PartitionSpec | jax.sharding.Mesh | jax.Device
    if isinstance(sharding, kinds):
        raise TypeError(
            f"sharding={sharding!r} does not say where arrays lie\n"
            "    write: sharding=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(...)), "
            "or jax.sharding.SingleDeviceSharding(device)"
        )
    if callable(sharding):
        return sharding
    if not isinstance(sharding, Mapping):
        return lambda name, array: sharding
    leaf_of = {entry.name: entry.leaf for entry in definition.entries}
    unknown = [name for name in sharding if name not in leaf_of]
    if unknown:
        raise ValueError(f"sharding has names that the model has not: {', '.join(unknown[:5])}")
    by_leaf = {leaf_of[name]: chosen for name, chosen in sharding.items()}
    return lambda name, array: by_leaf.get(leaf_of[name])


def targets(
    definition: Definition, leaves: Any, dtype: Any, choose: Choose
) -> tuple[list[Any], set[int]]:
    """What the leaves are to become, before the file gives them values.

    Args:
        definition: The model's.
        leaves: Its arrays.
        dtype: For floating-point arrays, or None.
        choose: The sharding of each, or None.

    Returns:
        The leaves, and which of them are not sharded as asked because it does not divide them.
    """
    result: list[Any] = []
    uneven: set[int] = set()
    for leaf, (name, array) in enumerate(zip(definition.names, leaves, strict=True)):
        cast = dtype is not None and jax.numpy.issubdtype(array.dtype, np.floating)
        changed = {"dtype": dtype if cast else array.dtype}
        if is_undrawn(array):
            array = array.update(**changed)
        sharding = choose(name, array)
        shape = getattr(array, "shape", None) if not _is_lazy(array) else None
        if sharding is not None and shape is not None:
            fitted = fitting(sharding, shape)
            if fitted is not sharding:
                uneven.add(leaf)
            sharding = fitted
        if is_undrawn(array):
            array = array if sharding is None else array.update(sharding=sharding)
        elif sharding is not None or changed["dtype"] != array.dtype:
            kept = array.sharding if getattr(array, "committed", False) else None
            array = Moved(array, changed["dtype"], kept if sharding is None else sharding)
        result.append(array)
    return result, uneven


def _is_lazy(array: Any) -> bool:
    return is_undrawn(array) and not isinstance(array, jax.ShapeDtypeStruct)
