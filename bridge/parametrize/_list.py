"""The list of parametrizations of one name, which holds the arrays that the name is computed from.

``module.parametrizations`` is a ``ModuleDict`` of such lists, as in torch, so the names in a
``state_dict`` are torch's: ``parametrizations.weight.original``, ``parametrizations.weight.0._u``.
The name itself is a :class:`Parametrized`, a plain attribute that says how to compute.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from bridge._opened import box_of, is_open, remember, size
from bridge.parametrize._drawing import undrawn_value
from bridge.parametrize._inverse import invert, no_inverse, settled_inverse
from bridge.parametrize._part import Part, is_tensor
from purestate._abstract import AbstractArray, is_undrawn
from purestate._building import typename
from purestate._computed import Computed
from purestate._errors import refuse_computed_write
from purestate._keys import as_key
from purestate._parameter import Box, Parameter
from purestate.nn.container import ModuleDict, ModuleList


class ParametrizationList(ModuleList):
    """The parametrizations of one parameter or buffer, and its originals.

    Torch's name: ``torch.nn.utils.parametrize.ParametrizationList``. Made by
    ``register_parametrization``, and the type of ``module.parametrizations[name]``.

    Args:
        modules: The parametrizations; the first may take several originals.
        original: The box of the parameter or buffer.
        unsafe: Whether they may change shape and dtype.
        persistent: For a buffer, whether its originals are saved.
        rng: A key for what ``right_inverse`` draws.

    Attributes:
        original: The array that the value is computed from; of several, ``original0``, ...
    """

    def __init__(
        self,
        modules: Sequence[Any],
        original: Any,
        unsafe: bool = False,
        *,
        persistent: bool = True,
        rng: Any = None,
    ):
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        old = original.data
        _ = old.shape  # A lazy layer's has none, and says so.
        inverse = invert(list(self), old, rng, strict=False)
        new = inverse.value
        self.is_tensor = is_tensor(new)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor and old.dtype != new.dtype:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                f"original.dtype: {old.dtype}\n"
                f"right_inverse(original).dtype: {new.dtype}"
            )
        inverse.write()
        try:
            if self.is_tensor:
                original.data = new
                self._hold("original", original, persistent)
            else:
                for index, item in enumerate(new):
                    if isinstance(original, Parameter):
                        item = Parameter(item, original.requires_grad)
                    self._hold(f"original{index}", item, persistent)
                    remember(box_of(self, f"original{index}"), old, original.stored_dtype)
            if not unsafe:
                self._check(old, rng)
        except Exception:
            original.data = old
            raise

    def _hold(self, name: str, value: Any, persistent: bool) -> None:
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        else:
            self.register_buffer(name, value, persistent)

    def _check(self, old: Any, rng: Any) -> None:
        value = Part.of(self).probe("forward", (), rng, _settled)
        text = (
            "Registering a parametrization may not change the {0} of the tensor, unless `unsafe` flag "
        )
        text += "is enabled.\nunparametrized {0}: {1}\nparametrized {0}: {2}"
        if value.dtype != old.dtype:
            raise ValueError(text.format("dtype", old.dtype, value.dtype))
        if value.shape != old.shape:
            raise ValueError(text.format("shape", size(old), size(value)))

    def forward(self) -> jax.Array:
        """The value, through each parametrization in turn."""
        first, *others = self
        value = first(*(getattr(self, name) for name in original_names(self)))
        for parametrization in others:
            value = parametrization(value)
        return value


def _settled(value: Any) -> Any:
    if not is_tensor(value):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    return value


@dataclass(frozen=True)
class Parametrized(Computed):
    """The attribute of a parametrized name.

    Attributes:
        name: The name, and the key of its list.
    """

    name: str

    class_prefix = "Parametrized"
    removal = "model = bridge.parametrize.remove_parametrizations(model, name)"

    def compute(self, module: Any) -> Any:
        """The value: in a call as its mode says, elsewhere in evaluation, which changes no state."""
        if not is_open(module):
            chain = module.parametrizations[self.name]
            if chain._life is not None:
                return chain()
            return _value(Part(chain._definition, chain._leaves))
        return _value(Part.of(list_of(module, self.name)))

    def assign(self, module: Any, value: Any) -> None:
        """Through ``right_inverse``, as torch's property does."""
        if isinstance(value, Parameter):
            raise KeyError(f"attribute '{self.name}' already exists")
        assign(list_of(module, self.name), value, as_key(0))

    def write(self, module: Any, value: Any, path: str) -> None:
        """Through ``right_inverse`` too, into the buffers that the originals are."""
        chain = module.parametrizations[self.name]
        if chain._parameters:
            source = f"parametrizations.{self.name}.{next(iter(chain._parameters))}"
            line = (
                f'model = bridge.parametrize.set_parametrized(model, "{self.name}", value, at="{path}")'
            )
            raise refuse_computed_write(type(module), path, self.name, source, line)
        value = checked_value(value)
        for parametrization in reversed(list(chain)):
            if not hasattr(parametrization, "right_inverse"):
                raise no_inverse(parametrization)
            value = settled_inverse(parametrization.right_inverse(value))
        for name, array in inverted(chain, value, chain._buffers).items():
            setattr(chain, name, array)


def _value(part: Part) -> Any:
    part = part.evaluating()
    if not any(map(is_undrawn, part.leaves)):
        return part.ask("forward")[0]
    shape = part.probe("forward", (), None, _settled)
    return AbstractArray(shape.shape, shape.dtype)


def drawable_value(module: Any, name: str) -> Any:
    """The value of a parametrized name of an open module; where it is not drawn, how it will be."""
    part = Part.of(list_of(module, name))
    value = _value(part)
    return undrawn_value(part, value) if is_undrawn(value) else value


def list_of(module: Any, name: str) -> Any:
    """The list of a parametrized name of an open module, to be changed."""
    return module.__dict__["_modules"]["parametrizations"].__dict__["_modules"][name]


def assign(chain: Any, value: Any, rng: Any) -> None:
    """Set the originals of an open list so that it gives a value, with torch's checks.

    Raises:
        RuntimeError: When a parametrization has no ``right_inverse``.
        ValueError: When the inverses return something else than what is held.
    """
    inverse = invert(list(chain), checked_value(value), rng, strict=True)
    boxes = originals(chain)
    arrays = inverted(chain, inverse.value, boxes)
    inverse.write()
    for name, array in arrays.items():
        boxes[name].data = array


def checked_value(value: Any) -> Any:
    """The array that is assigned to a parametrized name."""
    if isinstance(value, Box):
        value = value.data
    if not is_tensor(value):
        raise TypeError(
            f"cannot assign '{typename(value)}' to a parametrized name (torch.Tensor expected)"
        )
    return value


def inverted(chain: Any, new: Any, held: Mapping[str, Any]) -> dict[str, Any]:
    """What the inverses gave, under the names of the originals.

    Args:
        chain: The list, which runs or is open.
        new: An array, or a sequence of them.
        held: What the originals are now, by name.

    Raises:
        ValueError: For something else than what is held.
    """
    if chain.is_tensor:
        if not is_tensor(new):
            raise ValueError(f"`right_inverse` should return a tensor. Got {type(new).__name__}")
        new = [new]
    else:
        if is_tensor(new):
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors. Got {type(new).__name__}."
            )
        if len(new) != chain.ntensors:
            raise ValueError(
                "'right_inverse' must return a sequence of tensors of length "
                f"{chain.ntensors}. Got a sequence of length {len(new)}."
            )
    arrays = dict(zip(original_names(chain), new, strict=True))
    for index, (name, array) in enumerate(arrays.items()):
        if held[name].dtype != array.dtype:
            what = "The tensor" if chain.is_tensor else f"Tensor {index}"
            raise ValueError(
                f"{what} returned by `right_inverse` has dtype {array.dtype} "
                f"while `{name}` has dtype {held[name].dtype}"
            )
    return arrays


def original_names(chain: Any) -> list[str]:
    """The names of the originals of a list, which runs or is open."""
    return ["original"] if chain.is_tensor else [f"original{i}" for i in range(chain.ntensors)]


def originals(chain: Any) -> dict[str, Box]:
    """The boxes of the originals of an open list, by name."""
    own = chain.__dict__
    return {
        name: box
        for registry in ("_parameters", "_buffers")
        for name, box in own[registry].items()
        if box is not None
    }


def is_parametrized(model: Any, name: str | None = None) -> bool:
    """Whether a module itself has a parametrization (``torch.nn.utils.parametrize.is_parametrized``).

    Args:
        model: A model; what is below it is not looked at.
        name: Of a parameter or buffer; any when None.
    """
    parametrizations = getattr(model, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if name is None else name in parametrizations
