"""Torch's older list of test cases, for what its databases of modules and operators lack.

``torch.testing._internal.common_nn`` describes a case by a constructor (a lambda over ``nn``) or by a
functional (a lambda over ``F``), and by how to make its inputs. A constructor runs on both sides by
giving its code our ``nn``. Of a functional the call that it makes is recorded, and made again here.
"""

import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as T

import bridge
from purestate import nn
from purestate.nn import functional as F
from tests.oracles.adapters import ADAPTERS
from tests.oracles.module_db import compare_call, dtype
from tests.oracles.op_db import Report, described
from tests.parity import check_function, raised, to_numpy


class Case(NamedTuple):
    """One entry: the class or functional it is about, its own name, and the comparison."""

    about: str
    name: str
    compare: Callable[[], None]


@functools.cache
def cases() -> tuple[Case, ...]:
    """Every entry, modules and criterions."""
    from torch.testing._internal import common_nn

    torch.manual_seed(0)
    entries = [
        *common_nn.module_tests,
        *common_nn.get_new_module_tests(),
        *common_nn.criterion_tests,
    ]
    return tuple(map(_case, entries))


def check(about: str) -> Report:
    """Compare the entries of one class or functional."""
    chosen = [case for case in cases() if case.about == about]
    failures = []
    for case in chosen:
        error = raised(case.compare)
        if error is not None:
            failures.append(described(case.name, error))
    return Report(about, len(chosen) - len(failures), len(chosen), failures)


def subjects() -> list[str]:
    """The classes and functionals that have entries."""
    return sorted({case.about for case in cases()})


def _case(entry: dict[str, Any]) -> Case:
    constructor = entry.get("constructor")
    wrapped = _wrapped(constructor)
    if wrapped is not None:
        function, options = wrapped
        recorded = _Recorder.call(function, options, _inputs(entry))
        return Case(recorded.name, entry["fullname"], functools.partial(_compare_function, recorded))
    arguments = entry.get("constructor_args", ())
    if "constructor_args_fn" in entry:
        arguments = entry["constructor_args_fn"]()
    build = constructor or getattr(torch.nn, entry["module_name"])
    about = type(build(*arguments)).__name__
    name = entry.get("fullname") or f"{about}_{entry.get('desc', '')}".rstrip("_")
    return Case(about, name, functools.partial(_compare_module, entry, build, arguments))


def _inputs(entry: dict[str, Any]) -> list[Any]:
    """What the entry's module is called with."""
    found = []
    for key in ("input", "target"):
        value = _made(entry, key)
        if value is not None:
            found += value if isinstance(value, tuple | list) else [value]
    return [*found, *entry.get("extra_args", ())]


def _made(entry: dict[str, Any], key: str) -> Any:
    if key in entry:
        return entry[key]
    if f"{key}_fn" in entry:
        return entry[f"{key}_fn"]()
    return _of_sizes(entry[f"{key}_size"]) if f"{key}_size" in entry else None


def _of_sizes(sizes: Any) -> Any:
    if isinstance(sizes, list):
        return [_of_sizes(item) for item in sizes]
    return sizes.double() if isinstance(sizes, torch.Tensor) else torch.randn(sizes)


def _cast(value: Any) -> Any:
    """Inputs and parameters in the dtype that the models have."""
    if isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float64):
        return value.to(dtype())
    return value


def _compare_module(entry: dict[str, Any], build: Callable[..., Any], arguments: Any) -> None:
    torch.manual_seed(0)
    theirs = build(*arguments).to(dtype())
    on_ours = build
    if isinstance(build, types.FunctionType):
        on_ours = _moved(build, {"nn": nn, "F": F, "torch": _torch()})
    elif isinstance(build, type):
        on_ours = getattr(nn, build.__name__)
    ours = on_ours(*map(_counterpart, arguments))
    values = {key: to_numpy(value) for key, value in theirs.state_dict().items()}
    ours, report = bridge.load_state_dict(ours, values)
    assert not report.missing_keys
    assert repr(ours) == repr(theirs)
    inputs = [_cast(value) for value in _inputs(entry)]
    # Random layers are compared where nothing is random.
    if isinstance(theirs, torch.nn.RReLU):
        theirs, ours = theirs.eval(), bridge.eval(ours)
    compare_call(ours, theirs, inputs)


def _counterpart(argument: Any) -> Any:
    """Our functional for one of torch's among the arguments of a constructor."""
    if callable(argument) and getattr(argument, "__name__", "") in F.__all__:
        return getattr(F, argument.__name__)
    return argument


def _torch() -> types.SimpleNamespace:
    """What a constructor's code reads from ``torch``, in the dtype of these comparisons."""
    return types.SimpleNamespace(nn=nn, double=str(dtype()).removeprefix("torch."))


def _wrapped(constructor: Any) -> tuple[Callable[..., Any], dict[str, Any]] | None:
    """The function and options of ``common_nn.wrap_functional``."""
    if not isinstance(constructor, type) or constructor.__name__ != "FunctionalModule":
        return None
    forward = vars(constructor)["forward"]
    cells = zip(forward.__code__.co_freevars, forward.__closure__ or (), strict=True)
    free = {name: cell.cell_contents for name, cell in cells}
    return free["fn"], free["kwargs"]


class _Recorder:
    """Stands for ``F`` in a lambda, and keeps the one call that it makes."""

    def __init__(self) -> None:
        self.name = ""
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}

    @classmethod
    def call(cls, function: Callable[..., Any], options: dict[str, Any], inputs: list[Any]) -> Any:
        """The call that a wrapped function makes for these inputs, in the dtype of the models."""
        recorder = cls()
        inputs = [_cast(value) for value in inputs]
        if function.__module__ != "torch.nn.functional":
            _moved(function, {"F": recorder})(*inputs, **options)
        else:
            getattr(recorder, function.__name__)(*inputs, **options)
        return recorder

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.name = name
            self.args = tuple(map(_cast, args))
            self.kwargs = {key: _cast(value) for key, value in kwargs.items()}
            return getattr(T, name)(*args, **kwargs)

        return call


def _compare_function(recorded: _Recorder) -> None:
    name = recorded.name
    ours, theirs = ADAPTERS.get(name, (getattr(F, name), getattr(T, name)))
    check_function(ours, theirs or getattr(T, name), recorded.args, recorded.kwargs)


def _moved(function: Any, replaced: dict[str, Any]) -> Callable[..., Any]:
    """A function's code with other globals."""
    moved = types.FunctionType(
        function.__code__,
        {**function.__globals__, **replaced},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    moved.__kwdefaults__ = function.__kwdefaults__
    return moved
