"""Every error of the package: what went wrong, where, and the line to write instead.

Each class is one situation. They derive from the builtin that Python or PyTorch would raise there,
so that existing ``except`` clauses keep working.
"""


class FrozenModelError(AttributeError):
    """A finished model was asked to change in place."""


class LeakedWriteError(RuntimeError):
    """State was written inside a JAX transform that does not carry the write out."""


class StatefulCallError(RuntimeError):
    """``model(x)`` would have lost new values of its state; ``purestate.call`` returns them."""


class UninitializedError(RuntimeError):
    """A parameter or buffer was read that has a shape but no value yet."""


class MissingRngError(RuntimeError):
    """A layer asked for a random key in a call that was given none."""


class SelectorError(LookupError):
    """A selector (``at=``, ``where=``) matched nothing, or is not a selector."""


class BuildError(TypeError):
    """A constructor built something that cannot be a value: a cycle, a tracer, a captured self."""


_RIGHT_LINE = {
    "eval": "model = bridge.eval(model)",
    "train": "model = bridge.train(model)",
    "requires_grad_": "model = bridge.requires_grad(model, flag)",
    "apply": "model = purestate.map_modules(model, fn)",
    "register_parameter": "model = bridge.register_parameter(model, name, value)",
    "register_buffer": "model = bridge.register_buffer(model, name, value)",
    "register_module": "model = bridge.register_module(model, name, module)",
    "add_module": "model = bridge.register_module(model, name, module)",
    "set_submodule": "model = bridge.set_submodule(model, target, module)",
    "state_dict": "sd = bridge.state_dict(model)",
    "load_state_dict": "model, report = bridge.load_state_dict(model, sd)",
    "to": "model = bridge.to(model, dtype=..., device=..., sharding=...)",
    "double": "model = bridge.double(model)",
    "float": "model = bridge.float(model)",
    "half": "model = bridge.half(model)",
    "bfloat16": "model = bridge.bfloat16(model)",
    "type": "model = bridge.to(model, dtype=...)",
    "cuda": 'model = bridge.to(model, device=jax.devices("gpu")[0])',
    "cpu": 'model = bridge.to(model, device=jax.devices("cpu")[0])',
    **dict.fromkeys(("ipu", "mtia", "xpu"), "model = bridge.to(model, device=jax.devices()[0])"),
    "to_empty": "model = purestate.abstract(model)",
    "zero_grad": "nothing: gradients are return values of jax.grad, none are stored on a model",
    "share_memory": "nothing: arrays are immutable and may be shared as they are",
    "compile": "step = jax.jit(step)",
    **{
        name: f"model, handle = bridge.{name.removeprefix('_')}(model, hook, at=path)"
        for name in (
            "register_forward_pre_hook",
            "register_full_backward_pre_hook",
            "register_full_backward_hook",
            "register_state_dict_pre_hook",
            "register_state_dict_post_hook",
            "register_load_state_dict_pre_hook",
            "_register_load_state_dict_pre_hook",
            "register_load_state_dict_post_hook",
        )
    },
    "register_forward_hook": (
        "model, handle = bridge.register_forward_hook(model, hook, at=path)\n"
        "    or, to see an output: y, model, outputs = purestate.capture(model, x, at=path)"
    ),
    "_register_state_dict_hook": (
        "model, handle = bridge.register_state_dict_post_hook(model, hook, at=path)"
    ),
}

REMEDIES = {
    name: (
        f"{name}() changes a module in place, and a finished model is a value that never changes.\n"
        f"    write: {line}"
    )
    for name, line in _RIGHT_LINE.items()
}


def refuse_method(name: str) -> FrozenModelError:
    """The error for a PyTorch method that mutates, called on a finished model."""
    return FrozenModelError(REMEDIES[name])


def refuse_delete(cls: type, name: str) -> FrozenModelError:
    """The error for ``del model.name`` on a finished model."""
    return FrozenModelError(
        f"cannot delete {cls.__name__}.{name}: a finished model is a value that never changes.\n"
        f'    write: model = bridge.delete(model, "{name}", at=path)   (at="" is the model itself)'
    )


def refuse_write(cls: type, name: str, kind: str | None) -> FrozenModelError:
    """The error for ``model.name = value`` on a finished model."""
    where = f"{cls.__name__}.{name}"
    if kind in ("parameter", "buffer"):
        line = (
            f'model = purestate.replace(model, {{"{name}": value}})   '
            f'(of a part of the model by its path: "path.{name}")'
        )
    elif kind == "module":
        line = f'model = bridge.set_submodule(model, "{name}", module)'
    else:
        line = (
            f'model = bridge.register_buffer(model, "{name}", value)   '
            "(register_parameter, register_module, delete likewise)"
        )
    return FrozenModelError(
        f"cannot assign {where}: a finished model is a value that never changes.\n    write: {line}"
    )


def refuse_running_write(cls: type, path: str, name: str, kind: str | None) -> FrozenModelError:
    """The error for an assignment in ``forward`` to something that is not a buffer."""
    where = f"{path}.{name}" if path else name
    if kind == "parameter":
        why = "parameters change through gradients, between calls"
        line = f'model = purestate.replace(model, {{"{where}": value}})   (after the call)'
    else:
        why = "only a registered buffer carries a new value out of a call"
        line = f'self.register_buffer("{name}", initial_value)   (in {cls.__name__}.__init__)'
    return FrozenModelError(
        f"cannot assign {cls.__name__}.{name} (at '{where}') in forward: {why}.\n    write: {line}"
    )


def refuse_computed_write(cls: type, path: str, name: str, source: str, line: str) -> FrozenModelError:
    """The error for an assignment in ``forward`` to a name that is computed from a parameter."""
    where = f"{path}.{name}" if path else name
    return FrozenModelError(
        f"cannot assign {cls.__name__}.{name} (at '{where}') in forward: it is computed from "
        f"'{source}', and parameters change through gradients, between calls.\n"
        f"    write: {line}   (after the call)"
    )


def leaked_write(path: str, name: str, kind: str = "buffer") -> LeakedWriteError:
    """The error for a write under another trace than the call's."""
    where = f"{path}.{name}" if path else name
    block = path.rsplit(".", 1)[-1] if path else "block"
    return LeakedWriteError(
        f"{kind} '{where}' was written inside a JAX transform (checkpoint, scan, vmap, grad, jit, "
        "...) that was entered within forward; the new value cannot leave it on its own.\n"
        "    Pass the submodule through the transform as a value:\n"
        f"        def body(block, h):\n"
        f"            h, block = ps.call(block, h)\n"
        f"            return h, block\n"
        f"        h, self.{block} = jax.checkpoint(body)(self.{block}, h)"
    )


def leaked_output(path: str) -> LeakedWriteError:
    """The error for the capture of an output that is made under another trace than the call's."""
    return LeakedWriteError(
        f"the output of '{path}' is produced inside a JAX transform within forward and cannot be "
        "captured from outside of it.\n"
        "    write: return it from the transformed function, or capture the module that contains the "
        "transform"
    )


def did_not_run(paths: list[str], what: str) -> RuntimeError:
    """The error for modules whose output was to be captured or patched, and that no call ran."""
    return RuntimeError(
        f"{paths} did not run in this call, or as a value that went through a JAX transform, and "
        f"cannot be {what}.\n"
        "    write: the path of a module around it, which runs as self.block(x)"
    )


def stateful_call(cls: type, names: list[str], kinds: set[str]) -> StatefulCallError:
    """The error for ``model(x)`` that changed buffers, or parameters (which ``max_norm`` does)."""
    shown = ", ".join(repr(name) for name in names[:4]) + (", ..." if len(names) > 4 else "")
    what = " and ".join(f"{kind}(s)" for kind in sorted(kinds))
    remedy = "    write: y, model = purestate.call(model, x)"
    if "parameter" not in kinds:  # What writes a parameter writes it in evaluation too.
        remedy += "\n    or, without state updates: model = bridge.eval(model)"
    return StatefulCallError(
        f"this call of {cls.__name__} gives new values to {len(names)} {what}: {shown}. "
        f"model(x) returns the output only, so they would be lost.\n{remedy}"
    )


def uninitialized(names: list[str], shapeless: list[str]) -> UninitializedError:
    """The error for reading abstract arrays in a call; those of lazy layers have no shape either."""
    shown = ", ".join(repr(name) for name in names[:6]) + (", ..." if len(names) > 6 else "")
    # Which lazy layers wait for their first input, each once.
    lazy = dict.fromkeys(name.rpartition(".")[0] for name in shapeless)
    waiting = ", ".join(repr(path) for path in lazy)
    waits = f" The lazy layer(s) {waiting} need an example input." if lazy else ""
    examples = ", *example_inputs" if lazy else ""
    return UninitializedError(
        f"the model has {len(names)} array(s) without a value: {shown}.{waits}\n"
        f"    write: model = purestate.init(model, rng{examples})\n"
        "    or:    model, report = bridge.load_state_dict(model, state_dict)\n"
        "    A module in a plain list is a constant that neither reaches: hold it in nn.ModuleList."
    )


def missing_rng(cls: type, path: str, training: bool) -> MissingRngError:
    """The error for ``next_key`` in a call without ``rng``."""
    remedy = (
        "    or, without randomness: model = bridge.eval(model)"
        if training
        else "    or, where only training draws: rng=self.next_key() if self.training else None"
    )
    return MissingRngError(
        f"{cls.__name__} at '{path}' needs a random key and the call was given none.\n"
        f"    write: y, model = purestate.call(model, x, rng=key)\n{remedy}"
    )


_UNCALLED = {
    "state_dict": "own_state_dict(self, state)",
    "_save_to_state_dict": "own_state_dict(self, state)",
    "load_state_dict": "upgrade_state_dict(self, state, version)",
    "_load_from_state_dict": "upgrade_state_dict(self, state, version)",
}
"""Torch's methods that a class may override there, and what it defines here instead."""


def check_overrides(cls: str, namespace: dict[str, object]) -> None:
    """Refuse a class that overrides only torch's way of saving or loading, which nothing calls here."""
    for method, instead in _UNCALLED.items():
        if method in namespace and instead.partition("(")[0] not in namespace:
            raise BuildError(
                f"{cls}.{method} overrides a method that is never called here.\n"
                f"    write: def {instead}, which returns the entries"
            )
