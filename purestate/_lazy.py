"""Lazy modules: layers that take their sizes from the first input they see.

In PyTorch the first call changes such a module in place: it makes its parameters, and it becomes its
eager class. Nothing changes in place here, so ``purestate.init`` does both, from example inputs:

* the model runs under ``jax.eval_shape``, which computes shapes and no values. In this run every lazy
  module has a :class:`_Probe`, which notes what the module was called with and goes on with the eager
  module that this makes of it;
* the modules that were called are opened, initialised by torch's ``initialize_parameters`` and
  become their eager classes, in the very edit that ``bridge`` changes structure with.

The probe is a plain attribute, a part of the definition: it goes wherever the module goes, through
``jit``, ``scan`` or a ``purestate.call`` inside ``forward``.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purestate._abstract import UninitializedArray
from purestate._call import call
from purestate._edit import edit
from purestate._lives import flatten, graph, unflatten
from purestate._parameter import Box
from purestate._running import Running


def is_lazy(value: Any) -> bool:
    """Whether a parameter, a buffer or its array has no shape yet (``torch.nn.parameter.is_lazy``)."""
    return isinstance(value.data if isinstance(value, Box) else value, UninitializedArray)


class LazyModuleMixin:
    """Makes a module lazy: ``class LazyDense(LazyModuleMixin, Dense)``.

    Torch's name: ``torch.nn.modules.lazy.LazyModuleMixin``. The constructor assigns
    ``nn.UninitializedParameter()`` where a size is not known; ``initialize_parameters`` gives each its
    shape and says how it is drawn; ``purestate.init(model, rng, *example_inputs)`` calls it.

    Attributes:
        cls_to_become: The class that the module has afterwards; its own when None.
    """

    cls_to_become: type | None = None
    _probe: Any = None

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Set the sizes and ``materialize`` the parameters. Subclasses define it.

        Args:
            *args: What the module is called with; of arrays, shapes and dtypes only.
            **kwargs: Likewise.
        """
        del args, kwargs
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of this very module has no shape yet."""
        return any(map(is_lazy, _own(self).values()))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward``, or in the run that finds shapes, that of the eager module."""
        if self._probe is not None:
            return self._probe.run(self, args, kwargs)
        return super().__call__(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]


class _Probe:
    """What one lazy module is called with, and what it becomes, in a run that finds shapes.

    Attributes:
        path: Of the module in the model.
        module: The module by itself; the eager one once it was called.
        inputs: ``(args, kwargs)`` of its first call, with shapes instead of arrays.
    """

    def __init__(self, path: str):
        self.path = path
        self.module: Any = None
        self.inputs: Any = None

    def run(self, view: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The output of the eager module; arrays of zeros stand for its own."""
        if self.inputs is None:
            self.inputs = _shapes((args, kwargs))
            self.module = edit(self.module, self.initialize)
        leaves, definition = flatten(self.module)
        # Nothing is computed, so these zeros take no memory.
        eager = unflatten(definition, tuple(jnp.zeros_like(_stand_in(leaf)) for leaf in leaves))
        life = view._life
        if type(life) is not Running:
            return call(eager, *args, **kwargs)[0]
        if life.call.is_outer():  # The rest of forward may read the arrays.
            for name, array in _own(eager).items():
                if name in life.node.lookup:
                    life.call.fill(life.node.lookup[name].target, array)
        return call(eager, *args, rng=life.call.rng, **kwargs)[0]

    def initialize(self, module: Any) -> None:
        """What torch does to the module, which is open, at its first call."""
        vars(module).pop("_probe", None)
        args, kwargs = self.inputs
        module.initialize_parameters(*args, **kwargs)
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {type(module).__name__} has not been fully initialized")
        if module.cls_to_become is not None:
            become(module, module.cls_to_become)


def materialize(model: Any, key: jax.Array, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The model with the lazy modules that a call reaches as eager ones; arrays stay as they are.

    Args:
        model: A model.
        key: For the modules that draw.
        args: What to call the model with; of arrays only shapes and dtypes are read.
        kwargs: Likewise.

    Raises:
        RuntimeError: For a module whose ``initialize_parameters`` leaves an array without a shape.
    """
    if not any(issubclass(node.cls, LazyModuleMixin) for node in model._definition.nodes):
        return model
    called = [probe for probe in _probed(model, key, args, kwargs) if probe.inputs is not None]

    def initialize(root: Any) -> None:
        for probe in called:
            probe.initialize(root.get_submodule(probe.path))

    return edit(model, initialize)


def become(module: Any, cls: type) -> None:
    """Change the class of an open module, which keeps all it holds."""
    object.__setattr__(module, "__class__", cls)


def _probed(model: Any, key: jax.Array, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[_Probe]:
    """The probes of the lazy modules after a run of the model for its shapes."""
    probes = []

    def place(root: Any) -> None:
        for path, module in root.named_modules():
            if isinstance(module, LazyModuleMixin):
                vars(module)["_probe"] = _Probe(path)
                probes.append(vars(module)["_probe"])

    model = edit(model, place)
    for probe in probes:
        probe.module = model.get_submodule(probe.path)
    leaves, definition = flatten(model)
    inputs, structure = jax.tree.flatten((args, kwargs))
    arrays = {place: item for place, item in enumerate(inputs) if hasattr(item, "dtype")}

    def run(leaves: Any, arrays: Any, key: Any) -> None:
        filled = [arrays.get(place, item) for place, item in enumerate(inputs)]
        args, kwargs = jax.tree.unflatten(structure, filled)
        call(unflatten(definition, tuple(leaves)), *args, rng=key, **kwargs)

    jax.eval_shape(run, list(map(_stand_in, leaves)), arrays, key)
    return probes


def _stand_in(leaf: Any) -> jax.ShapeDtypeStruct:
    """A leaf in a run for shapes; one that has none is empty until its module is called, as torch's."""
    return jax.ShapeDtypeStruct((0,) if is_lazy(leaf) else leaf.shape, leaf.dtype)


def _shapes(tree: Any) -> Any:
    """The tree with shapes instead of (traced) arrays."""
    return jax.tree.map(
        lambda leaf: (
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
            if isinstance(leaf, jax.Array | np.ndarray | np.generic)
            else leaf
        ),
        tree,
    )


def _own(module: Any) -> dict[str, Any]:
    """The arrays of a module by name, or their boxes, without those below it; in any life."""
    tree = graph(module)
    own = {
        name: token
        for kind in ("parameters", "buffers")
        for name, token in tree.members(tree.root, kind)
        if token is not None
    }
    life = module._life
    if type(life) is Running:
        return {name: life.call.cells[leaf] for name, leaf in own.items()}
    if life is None:
        return {name: module._leaves[leaf] for name, leaf in own.items()}
    return own
