"""load_state_dict: PyTorch's order, checks and report, as a pure function.

It follows torch node by node (each module loads its own entries, then its children) and collects
every problem before it decides; the model it was given stays as it was, so a load is all or nothing. A
tied parameter is one array under several names: as in torch's copying load, the last name in order
wins. ``assign=True`` keeps the checkpoint's dtypes, and ties with them (torch breaks them and writes
into the caller's metadata; neither happens here).

How an array is made of a value is a :class:`Maker`'s business: here it is a copy, made at once;
``load_checkpoint`` first matches all names and reads the numbers when nothing is wrong.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from bridge._names import check_names
from bridge._state_dict_type import EXTRA_STATE
from bridge._torch_cast import cast_into
from bridge.checkpoint._chunks import Chunked
from bridge.checkpoint._records import is_uninitialized
from purestate import Module
from purestate._abstract import AbstractArray, UninitializedArray, is_undrawn
from purestate._computed import class_name
from purestate._definition import Definition, Node, intern
from purestate._edit import edit
from purestate._freeze import narrow
from purestate._lives import flatten, unflatten


_NOTHING = object()


class IncompatibleKeys(NamedTuple):
    """What a load left over: names of the model without a value, names of the file without a place."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )

    __str__ = __repr__


def load_state_dict(
    model: Any,
    sd: Mapping[str, Any],
    *,
    strict: bool = True,
    assign: bool = False,
    on_mismatch: str = "raise",
) -> tuple[Any, IncompatibleKeys]:
    """The model with the values of a ``state_dict`` (``torch.nn.Module.load_state_dict``).

    Args:
        model: A model; arrays without a value yet are filled as well.
        sd: ``{name: array}``, numpy or JAX arrays. A :class:`StateDict` also has versions.
        strict: Whether a missing or unexpected name is an error.
        assign: Keep the dtype of each value instead of casting to the model's.
        on_mismatch: ``"raise"`` for another shape, as torch does even when not strict; ``"skip"``
            leaves that array as it is and reports its name as missing.

    Returns:
        ``(model, IncompatibleKeys(missing_keys, unexpected_keys))``.

    Raises:
        TypeError: When ``sd`` is not a mapping of names.
        RuntimeError: With torch's text, naming every problem.
    """
    if on_mismatch not in ("raise", "skip"):
        raise ValueError(f'on_mismatch is "raise" or "skip", got {on_mismatch!r}')
    leaves, definition = flatten(model)
    load = Load(definition, leaves, Copies(), assign=assign, on_mismatch=on_mismatch)
    load.match(model, sd)
    load.check(model, strict)
    return load.model(), IncompatibleKeys(load.missing, load.unexpected)


class Maker(Protocol):
    """How arrays are made of the values that match."""

    def make(self, leaf: int, key: str, value: Any, dtype: Any, place: Any) -> Any:
        """What to put in a leaf for now.

        Args:
            leaf: Which leaf.
            key: The value's name.
            value: A NumPy array or scalar, or an array in pieces; its shape is the leaf's.
            dtype: The leaf's new dtype.
            place: Its sharding, or None where JAX decides.

        Raises:
            OverflowError: When integers do not fit.
        """
        ...

    def settle(self, leaves: list[Any]) -> list[Any]:
        """The arrays for leaves that ``make`` may have put off."""
        ...


class Copies:
    """Arrays are copies of the values, made at once."""

    def make(self, leaf: int, key: str, value: Any, dtype: Any, place: Any) -> Any:
        """A copy of the value."""
        del leaf
        value = np.asarray(value)
        check_fits(value, np.dtype(dtype), key)
        if value.dtype != dtype:
            wide, value = value, np.empty(value.shape, dtype)
            cast_into(value, wide)
        array = jnp.array(value)
        return array if place is None else jax.device_put(array, place)

    def settle(self, leaves: list[Any]) -> list[Any]:
        """The same: nothing was put off."""
        return leaves


def _with_extra_state(model: Any, extra: list[tuple[str, Any]]) -> Any:
    """The model after ``set_extra_state``, which runs as a part of the constructor would."""
    for path, state in extra:
        model = edit(model, lambda module, state=state: module.set_extra_state(state), path)
    return model


class Load:
    """One load in progress: the new leaves so far, and everything that went wrong.

    Args:
        definition: The model's.
        leaves: The model's arrays, or what describes them.
        maker: How arrays are made of the values.
        assign: Keep the dtype of each value.
        on_mismatch: What another shape is: an error ("raise") or a missing name ("skip").
    """

    def __init__(
        self,
        definition: Definition,
        leaves: Any,
        maker: Maker,
        *,
        assign: bool = False,
        on_mismatch: str = "raise",
    ):
        self.definition = definition
        self.leaves = list(leaves)
        self.maker = maker
        self.metadata: Mapping[str, Any] = {}
        self.assign = assign
        self.skip = on_mismatch == "skip"
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.errors: list[str] = []
        self.stored: dict[int, str | None] = {}
        self.extra: list[tuple[str, Any]] = []

    def match(self, model: Any, sd: Mapping[str, Any]) -> None:
        """Give the leaves the values of a ``state_dict``, and collect what is wrong.

        Raises:
            TypeError: When it is not a mapping of names.
        """
        if not isinstance(sd, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(sd)}.")
        check_names(sd)
        self.metadata = getattr(sd, "metadata", {})
        self.module(0, model, "", dict(sd))

    def check(self, model: Any, strict: bool, advice: str = "") -> None:
        """Raise torch's error when something is wrong.

        Args:
            model: For its class's name.
            strict: Whether a missing or unexpected name is wrong.
            advice: What to do about names that do not meet, after torch's text.
        """
        problems = list(self.errors)
        if strict:
            for label, names in (("Unexpected", self.unexpected), ("Missing", self.missing)):
                if names:
                    listed = ", ".join(f'"{name}"' for name in names)
                    problems.insert(0, f"{label} key(s) in state_dict: {listed}. ")
        if problems:
            raise RuntimeError(
                "Error(s) in loading state_dict for {}:\n\t{}".format(
                    class_name(model), "\n\t".join(problems)
                )
                + advice
            )

    def model(self) -> Any:
        """The model with the new leaves."""
        described = tuple(
            leaf._replace(stored_dtype=self.stored.get(i, leaf.stored_dtype))
            for i, leaf in enumerate(self.definition.leaves)
        )
        loaded = unflatten(intern(self.definition.nodes, described), tuple(self.leaves))
        return _with_extra_state(loaded, self.extra)

    def module(self, index: int, module: Any, path: str, values: dict[str, Any]) -> None:
        """Load one module's own entries, then its children's, in torch's order.

        Args:
            index: The module's node.
            module: The module, as it was.
            path: Where it is.
            values: What the ``state_dict`` has under the path; hooks may change it.
        """
        node: Node = self.definition.nodes[index]
        prefix = f"{path}." if path else ""
        local = dict(self.metadata.get(path, {}))
        for hook in node.hooks:
            if hook.kind == "load_state_dict_pre":
                reports = self.missing, self.unexpected, self.errors
                hook.function(module, values, prefix, local, True, *reports)
        self.own(node, module, prefix, values, local.get("version"))
        below: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            name, dot, _ = key.removeprefix(prefix).partition(".")
            if dot and key.startswith(prefix):
                below.setdefault(name, {})[key] = value
        children = module._modules
        for name, child in node.modules:
            if child is not None:
                self.module(child, children[name], prefix + name, below.get(name, {}))
        if any(hook.kind == "load_state_dict_post" for hook in node.hooks):
            self.finish(index, node)

    def finish(self, index: int, node: Node) -> None:
        """The hooks that come after a module and everything below it, which they get as it is now."""
        part = self.definition.submodule(index)
        settled = self.maker.settle([self.leaves[leaf] for leaf in part.leaves])
        for leaf, array in zip(part.leaves, settled, strict=True):
            self.leaves[leaf] = array
        module = unflatten(part.definition, tuple(self.leaves[leaf] for leaf in part.leaves))
        for hook in node.hooks:
            if hook.kind == "load_state_dict_post":
                report = IncompatibleKeys(self.missing, self.unexpected)
                if hook.function(module, report) is not None:
                    raise AssertionError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not "
                        "expected to return new values, if incompatible_keys need to be modified, "
                        "it should be done inplace."
                    )

    def own(
        self, node: Node, module: Any, prefix: str, values: dict[str, Any], version: int | None
    ) -> None:
        """Load a module's own entries and report what is too few or too many."""
        own = {
            key[len(prefix) :]: value
            for key, value in values.items()
            if key.startswith(prefix) and "." not in key[len(prefix) :]
        }
        extra = own.pop(EXTRA_STATE, _NOTHING)
        expected = [(name, leaf) for name, leaf in node.parameters if leaf is not None]
        expected += [(name, leaf) for name, leaf, keep in node.buffers if keep and leaf is not None]
        try:
            state = module.upgrade_state_dict(dict(own), version)
        except RuntimeError as error:  # It names what it cannot take, which is then reported once.
            self.errors.append(str(error))
            state = {name: own[name] for name, _ in expected if name in own}
        for name, leaf in expected:
            if name in state:
                self.array(prefix + name, leaf, state[name])
            else:
                self.missing.append(prefix + name)
        takes_extra = node.cls.set_extra_state is not Module.set_extra_state
        if takes_extra and extra is not _NOTHING:
            self.extra.append((prefix[:-1], extra))
        elif takes_extra or extra is not _NOTHING:
            report = self.missing if takes_extra else self.unexpected
            report.append(prefix + EXTRA_STATE)
        self._report_unexpected(node, prefix, values, own, state, {name for name, _ in expected})

    def _report_unexpected(
        self,
        node: Node,
        prefix: str,
        values: dict[str, Any],
        own: dict[str, Any],
        state: dict[str, Any],
        expected: set[str],
    ) -> None:
        children = {name for name, _ in node.modules}
        for key in values:
            if not key.startswith(prefix) or key == prefix + EXTRA_STATE:
                continue
            first, dot, _ = key[len(prefix) :].partition(".")
            # An entry that the upgrade took away was understood.
            known = first in children if dot else first in expected or first not in state
            if not known:
                self.unexpected.append(key)
        self.unexpected += [prefix + n for n in state if n not in own and n not in expected]

    def array(self, key: str, leaf: int, value: Any) -> None:
        """Check one value and put it in its leaf."""
        current = self.leaves[leaf]
        lazy = isinstance(current, UninitializedArray)
        if is_uninitialized(value):
            value = UninitializedArray(current.dtype)
        if lazy and isinstance(value, UninitializedArray):
            return
        if not (isinstance(value, np.ndarray | np.generic | jax.Array | Chunked) or is_undrawn(value)):
            remedy = ""
            if type(value).__module__.partition(".")[0] == "torch":
                remedy = "; write: {name: t.detach().cpu().numpy() for name, t in sd.items()}"
            self.errors.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
                f"object from checkpoint but received {type(value)}{remedy}"
            )
            return
        if lazy:  # It takes the shape of the value.
            current = current.update(shape=value.shape)
        if (
            len(current.shape) == 0
            and isinstance(value, np.ndarray | jax.Array | Chunked)
            and value.shape == (1,)
        ):
            # A scalar as files before torch 0.4 have it.
            value = (np.asarray(value) if isinstance(value, Chunked) else value).reshape(())
        if tuple(value.shape) != tuple(current.shape):
            if self.skip:
                self.missing.append(key)
                return
            self.errors.append(
                f"size mismatch for {key}: copying a param with shape {_size(value)} from "
                f"checkpoint, the shape in current model is {_size(current)}."
            )
            return
        try:
            self.leaves[leaf] = self._convert(leaf, current, value, key)
        except (OverflowError, RuntimeError, TypeError) as error:
            self.errors.append(copying_failed(key, current, value, error))

    def _convert(self, leaf: int, current: Any, value: Any, key: str) -> Any:
        wide = np.dtype(value.dtype)
        if not jnp.issubdtype(wide, np.number) and wide != np.bool_:
            raise TypeError(f"expected numbers, got an array of dtype {wide}")
        narrowed = jax.dtypes.canonicalize_dtype(wide)
        dtype = narrowed if self.assign else current.dtype
        if self.assign:
            if self.definition.leaves[leaf].trainable and not jnp.issubdtype(dtype, jnp.inexact):
                raise RuntimeError(
                    "Only Tensors of floating point and complex dtype can require gradients"
                )
            self.stored[leaf] = wide.name if narrowed != wide else None
        elif narrowed != wide and dtype == narrowed and np.issubdtype(wide, np.integer):
            # What is int32 here only because JAX narrows goes back to a file as int64.
            self.stored[leaf] = wide.name
        if isinstance(value, jax.ShapeDtypeStruct):
            if not isinstance(current, AbstractArray):
                raise TypeError("Cannot copy out of meta tensor; no data!")
            return current.update(dtype=dtype)
        placed = isinstance(current, AbstractArray)
        if isinstance(current, jax.Array) and not isinstance(current, Tracer):
            placed = current.committed
        place = current.sharding if placed else None
        if not isinstance(value, jax.Array):
            return self.maker.make(leaf, key, value, dtype, place)
        array = value if value.dtype == dtype else value.astype(dtype)
        return array if place is None else jax.device_put(array, place)


def check_fits(value: Any, dtype: np.dtype, key: str) -> None:
    """Check that integers fit a dtype.

    Raises:
        OverflowError: When one does not; it says how to switch to 64 bits where that helps.
    """
    if np.issubdtype(dtype, np.integer) and np.issubdtype(value.dtype, np.integer) and value.size:
        info = np.iinfo(dtype)
        if value.min() < info.min or value.max() > info.max:
            if jax.dtypes.canonicalize_dtype(value.dtype) == dtype:
                narrow(value, key)
            raise OverflowError(f"values outside of {dtype.name}: [{value.min()}, {value.max()}]")


def copying_failed(key: str, current: Any, value: Any, error: Exception) -> str:
    """Torch's text for a value that did not become an array."""
    return (
        f'While copying the parameter named "{key}", whose dimensions in the model are '
        f"{_size(current)} and whose dimensions in the checkpoint are {_size(value)}, an "
        f"exception occurred : {error.args}."
    )


def _size(value: Any) -> str:
    """A shape as torch prints it."""
    return f"torch.Size({list(value.shape)})"
