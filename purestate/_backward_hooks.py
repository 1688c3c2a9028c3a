"""Hooks that run in the backward pass, by a primitive that is the identity everywhere else.

``tap`` returns what it is given. Its transpose, which is what ``jax.grad`` runs, hands the cotangents
to a function and goes on with what that returns; forward mode sees an identity. One tap stands before
a module's ``forward`` and one behind it (torch's ``BackwardHook``). In the transposed pass the one
behind comes first: it runs the pre-hooks on ``grad_output``, which it leaves in the :class:`Link` for
the one in front, whose cotangents are ``grad_input``. A zero, the token, goes from the one to the
other: it has a tangent where an input has one, in each level of differentiation by itself.

A hook gets the module as a value, with the arrays of the call as residuals of the tap. Under ``vmap``
it sees single examples, as the module's ``forward`` does.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from purestate._base import Base
from purestate._warning import warn


Grads = tuple[Any, ...]


class Level(NamedTuple):
    """One ``vmap`` around a tap, whose arrays have the mapped axis in front.

    Attributes:
        axes: The mapped axis of each residual.
        name: The axis name, for collectives in a hook.
        spmd_name: The mesh axes that the mapped axis is split over.
    """

    axes: tuple[int | None, ...]
    name: Any
    spmd_name: Any

    def map(self, function: Callable[..., Any], arguments: int) -> Callable[..., Any]:
        """A function of the residuals, and of arguments that have the axis in front, over the axis."""
        in_axes = (list(self.axes), *(0 for _ in range(arguments)))
        return jax.vmap(function, in_axes=in_axes, axis_name=self.name, spmd_axis_name=self.spmd_name)


class Pull(NamedTuple):
    """What the transpose of a tap does.

    Attributes:
        link: The call of the module that the tap belongs to.
        is_output: Whether the tap stands behind ``forward``.
        active: Which of the tapped arrays are differentiated.
        has_token: Whether the token is tapped too, after the arrays. Behind ``forward`` it is missing
            where no input is differentiated: that tap runs all hooks then.
        levels: Each ``vmap`` around, from the inside out.
    """

    link: "Link"
    is_output: bool
    active: tuple[int, ...]
    has_token: bool
    levels: tuple[Level, ...] = ()

    def back(self, residuals: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
        """The cotangents that go on, after the hooks."""
        between = self.link.between
        if self.is_output:
            function = functools.partial(self.link.at_outputs, self.active, not self.has_token)
            for level in self.levels:
                function = level.map(function, 1)
            cotangents, grad_output = function(list(residuals), list(cotangents))
            if self.has_token:
                between.grad_output = grad_output
            return cotangents
        grad_output = vars(between).pop("grad_output", None)
        if grad_output is None or not cotangents:  # Not by way of the output, or not to an input.
            return cotangents
        function = functools.partial(self.link.at_inputs, self.active)
        for level in self.levels:
            function = level.map(function, 2)
        return function(list(residuals), list(cotangents), grad_output)


tap_p = Primitive("tap")
tap_p.multiple_results = True


@tap_p.def_impl
def _impl(*operands: Any, count: int, pull: Pull) -> list[Any]:
    del pull
    return list(operands[:count])


@tap_p.def_abstract_eval
def _abstract(*operands: Any, count: int, pull: Pull) -> list[Any]:
    del pull
    return list(operands[:count])


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, count: int, pull: Pull
) -> tuple[list[Any], list[Any]]:
    outputs = tap_p.bind(*primals, count=count, pull=pull)
    changes: list[Any] = [ad.Zero(jax.typeof(primal).to_tangent_aval()) for primal in primals[:count]]
    arrays = count - pull.has_token
    live = [i for i in range(arrays) if type(tangents[i]) is not ad.Zero]
    if not live:
        return outputs, changes
    moving = [tangents[i] for i in live]
    # The token moves behind the tap in front where an input does; this is how the tap behind knows.
    has_token = pull.has_token and not (pull.is_output and type(tangents[arrays]) is ad.Zero)
    if has_token:
        live.append(arrays)
        moving.append(ad.instantiate_zeros(tangents[arrays]))
    active = tuple(pull.active[i] for i in live if i < arrays)
    tapped = tap_p.bind(
        *moving,
        *primals[count:],
        count=len(moving),
        pull=pull._replace(active=active, has_token=has_token),
    )
    for i, change in zip(live, tapped, strict=True):
        changes[i] = change
    return outputs, changes


def _transpose(cotangents: Sequence[Any], *operands: Any, count: int, pull: Pull) -> list[Any]:
    residuals, arrays = operands[count:], count - pull.has_token
    # An output that nothing used has no gradient: None for the hook, as in torch.
    live = [i for i in range(arrays) if type(cotangents[i]) is not ad.Zero]
    onward = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    if live or not pull.is_output:
        used = pull._replace(active=tuple(pull.active[i] for i in live))
        for i, new in zip(live, used.back(residuals, [cotangents[i] for i in live]), strict=True):
            onward[i] = new
    return [
        onward[i] if i < count and ad.is_undefined_primal(operand) else None
        for i, operand in enumerate(operands)
    ]


def _batch(
    mapped: Any, operands: Sequence[Any], axes: Sequence[int | None], *, count: int, pull: Pull
) -> tuple[list[Any], list[int | None]]:
    if all(axis is None for axis in axes):
        return tap_p.bind(*operands, count=count, pull=pull), [None] * count
    # All of them get the axis, so that the cotangents of all are those of single examples.
    tapped = [
        jnp.broadcast_to(x, (mapped.size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands[:count], axes[:count], strict=True)
    ]
    level = Level(tuple(axes[count:]), mapped.name, mapped.spmd_name)
    deeper = pull._replace(levels=(*pull.levels, level))
    outputs = tap_p.bind(*tapped, *operands[count:], count=count, pull=deeper)
    return outputs, [0] * count


ad.primitive_jvps[tap_p] = _jvp
ad.primitive_transposes[tap_p] = _transpose
batching.fancy_primitive_batchers[tap_p] = _batch
mlir.register_lowering(tap_p, lambda ctx, *operands, count, pull: list(operands[:count]))


def link(before: Sequence[Any], after: Sequence[Any]) -> "Link | None":
    """What holds the two taps of a call together; None without hooks of the backward pass."""
    return Link(before, after) if before or after else None


class Link:
    """One call of a module that has hooks of the backward pass.

    It outlives the forward pass, within the taps, so it keeps no array of it.

    Attributes:
        between: Holds ``grad_output``, the cotangents of the output, from the tap behind to the one
            in front of a transposed pass; several threads may run the same one.
    """

    def __init__(self, before: Sequence[Any], after: Sequence[Any]):
        self.before = tuple(hook.function for hook in before)
        self.after = tuple(hook.function for hook in after)
        self.between = threading.local()

    def on_inputs(self, view: Any, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        """The tap in front: the positional arguments as they are, and the token."""
        self.inputs, arrays = _Packed.of(args)
        *arrays, token = self._tap(view, arrays, False, jnp.zeros(()))
        return self.inputs.unpacked(args, arrays), token

    def on_outputs(self, view: Any, result: Any, token: Any) -> Any:
        """The tap behind: the output, as it is."""
        entries = result if type(result) is tuple else (result,)
        self.outputs, arrays = _Packed.of(entries)
        *arrays, _ = self._tap(view, arrays, True, token)
        outputs = self.outputs.unpacked(entries, arrays)
        return outputs if type(result) is tuple else outputs[0]

    def _tap(self, view: Any, arrays: list[Any], is_output: bool, token: Any) -> Sequence[Any]:
        if not arrays:
            return [token]
        leaves, self.module = jax.tree.flatten(view)
        pull = Pull(self, is_output, tuple(range(len(arrays))), True)
        return tap_p.bind(*arrays, token, *leaves, count=len(arrays) + 1, pull=pull)

    def at_outputs(
        self, active: tuple[int, ...], alone: bool, leaves: Sequence[Any], cotangents: Sequence[Any]
    ) -> tuple[list[Any], Grads]:
        """The pre-hooks; without a differentiated input the hooks too."""
        module = jax.tree.unflatten(self.module, leaves)
        grads = self.outputs.grads(active, cotangents)
        for hook in self.before:
            given = hook(module, grads)
            if given is not None:
                _check_count("pre hook", "grad_output", given, grads)
                grads = tuple(given)
        settled = self.outputs.cotangents(active, grads, cotangents, self.before)
        if alone:
            self._alone(module, grads)
        return settled, grads

    def _alone(self, module: Base, grad_output: Grads) -> None:
        if not self.after:
            return
        warn(
            "Full backward hook is firing when gradients are computed with respect to module outputs "
            "since no inputs require gradients. See https://docs.pytorch.org/docs/main/generated/"
            "torch.nn.Module.html#torch.nn.Module.register_full_backward_hook for more details."
        )
        none = (None,) * len(self.inputs.trees)
        for hook in self.after:
            given = hook(module, none, grad_output)
            if given is not None and not (
                isinstance(given, tuple) and all(grad is None for grad in given)
            ):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return "
                    "None or None for all gradients."
                )

    def at_inputs(
        self,
        active: tuple[int, ...],
        leaves: Sequence[Any],
        cotangents: Sequence[Any],
        grad_output: Grads,
    ) -> list[Any]:
        """The hooks, on what flows up."""
        module = jax.tree.unflatten(self.module, leaves)
        grads = self.inputs.grads(active, cotangents)
        for hook in self.after:
            given = hook(module, grads, grad_output)
            if given is not None:
                _check_count("hook", "grad_input", given, grads)
                grads = tuple(given)
        return self.inputs.cotangents(active, grads, cotangents, self.after)


def _check_count(kind: str, what: str, given: Any, grads: Grads) -> None:
    if len(given) != len(grads):
        raise RuntimeError(
            f"Backward {kind} returned an invalid number of {what}, "
            f"got {len(given)}, but expected {len(grads)}"
        )


class _Packed(NamedTuple):
    """The structure of a tuple of arguments or outputs, and where in it gradients can be.

    Torch looks at the entries that are tensors; here an entry may be any pytree of arrays, and its
    gradient is one of the same structure.

    Attributes:
        trees: The structure of each entry.
        places: The entry, and the leaf in it, of each array that can have a gradient: none that is
            known while a program is traced.
    """

    trees: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, entries: tuple[Any, ...]) -> "tuple[_Packed, list[Any]]":
        """The structure, and the arrays at its places."""
        flat = [jax.tree.flatten(entry) for entry in entries]
        found = {
            (i, j): leaf
            for i, (leaves, _) in enumerate(flat)
            for j, leaf in enumerate(leaves)
            if isinstance(leaf, Tracer) and jnp.issubdtype(leaf.dtype, jnp.inexact)
        }
        return cls(tuple(tree for _, tree in flat), tuple(found)), list(found.values())

    def unpacked(self, entries: tuple[Any, ...], arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The tuple with these in place of its arrays."""
        held = [jax.tree.leaves(entry) for entry in entries]
        for (i, j), array in zip(self.places, arrays, strict=True):
            held[i][j] = array
        return tuple(map(jax.tree.unflatten, self.trees, held))

    def grads(self, active: tuple[int, ...], cotangents: Sequence[Any]) -> Grads:
        """The tuple that a hook gets: cotangents where there are any, None elsewhere."""
        held: list[Any] = [None] * len(self.trees)
        for place, cotangent in zip(active, cotangents, strict=True):
            i, j = self.places[place]
            if held[i] is None:
                held[i] = [None] * self.trees[i].num_leaves
            held[i][j] = cotangent
        return tuple(
            None if leaves is None else jax.tree.unflatten(tree, leaves)
            for leaves, tree in zip(held, self.trees, strict=True)
        )

    def cotangents(
        self, active: tuple[int, ...], grads: Grads, before: Sequence[Any], hooks: Sequence[Any]
    ) -> list[Any]:
        """The cotangents that go on: those of the tuple that the hooks made; None is zero."""
        found = []
        for place, old in zip(active, before, strict=True):
            i, j = self.places[place]
            new = None if grads[i] is None else self.trees[i].flatten_up_to(grads[i])[j]
            found.append(jnp.zeros_like(old) if new is None else _checked(new, old, hooks))
        return found


def _checked(new: Any, old: Any, hooks: Sequence[Any]) -> jax.Array:
    name = getattr(hooks[-1], "__name__", repr(hooks[-1])) if hooks else ""
    new = jnp.asarray(new)
    if new.shape != old.shape:
        raise RuntimeError(f"hook '{name}' has changed the size of value")
    if new.dtype != old.dtype:
        raise RuntimeError(f"hook '{name}' has changed the type of value")
    return new
