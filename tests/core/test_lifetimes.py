"""A model that is dropped gives its arrays back at once; what threads read of one is one object.

Arrays in a cycle of references live until Python looks for cycles, which knows nothing of how much
memory of a device they hold.
"""

import copy
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import bridge
import purestate as ps
from purestate import nn
from tests.core.models import Tied


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Constant(nn.Module):
    """Holds a module that it does not register, a number and an array in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(jnp.ones(3))
        self.held = [nn.Linear(2, 2), {"shape": (1, 2)}]
        self.size = 3


def stack() -> Any:
    return ps.init(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), jax.random.key(0))


ACTIONS: dict[str, Callable[[], Any]] = {
    "init": stack,
    "constants": Constant,
    "from_pretrained": lambda: nn.Embedding.from_pretrained(jnp.ones((3, 2))),
    "eval": lambda: bridge.eval(stack()),
    "requires_grad": lambda: bridge.requires_grad(stack(), False),
    "to": lambda: bridge.to(stack(), jnp.bfloat16),
    "in another": lambda: nn.Sequential(stack()),
    "slice": lambda: stack()[:1],
    "sum": lambda: stack() + stack(),
    "set_submodule": lambda: bridge.set_submodule(stack(), "0", nn.Linear(4, 2)),
    "delete": lambda: bridge.delete(stack(), "1"),
    "map_modules": lambda: ps.map_modules(stack(), lambda module: nn.Identity(), nn.BatchNorm1d),
    "load_state_dict": lambda: bridge.load_state_dict(stack(), bridge.state_dict(stack())),
    "hook": lambda: bridge.register_forward_hook(stack(), print),
    "submodule": lambda: stack()[0],
    "call": lambda: ps.call(stack(), jnp.ones((2, 4))),
    "capture": lambda: ps.capture(stack(), jnp.ones((2, 4))),
    "split and merge": lambda: ps.merge(*ps.split(stack())),
    "deepcopy": lambda: copy.deepcopy(stack()),
    "tied": lambda: bridge.eval(Tied()),
}


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("name", ACTIONS)
def test_what_is_dropped_is_given_back(name: str) -> None:
    action = ACTIONS[name]
    action()  # What is compiled and cached stays.
    gc.collect()
    before = len(jax.live_arrays())
    result = action()
    assert len(jax.live_arrays()) > before
    del result
    assert len(jax.live_arrays()) == before


@pytest.mark.usefixtures("no_garbage_collection")
def test_a_constructor_that_fails_gives_its_arrays_back() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Embedding.from_pretrained(jnp.ones((3, 2)))
            raise RuntimeError("no")

    def fail() -> None:
        with pytest.raises(RuntimeError, match="no"):
            Failing()

    fail()
    gc.collect()
    before = len(jax.live_arrays())
    fail()
    assert len(jax.live_arrays()) == before


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_a_submodule_is_one_object_in_all_threads() -> None:
    model = ps.init(nn.Sequential(*(nn.Linear(2, 2) for _ in range(20))), jax.random.key(0))
    for _ in range(50):
        fresh = copy.copy(model)
        together = threading.Barrier(4)
        found: list[list[Any]] = []

        def read(fresh: Any = fresh, together: Any = together, found: list[list[Any]] = found) -> None:
            together.wait()
            found.append([fresh[index] for index in range(20)])

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(a is b for modules in found for a, b in zip(modules, found[0], strict=True))


def test_comparing_an_attribute_may_build_a_model() -> None:
    class Config:
        def __init__(self) -> None:
            self.teacher = nn.Sequential(nn.Linear(3, 3))

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Config) and repr(bridge.eval(self.teacher)) == repr(
                bridge.eval(other.teacher)
            )

        def __hash__(self) -> int:
            return 0

    class Student(nn.Module):
        def __init__(self, config: Config) -> None:
            super().__init__()
            self.config = config

    built: list[Any] = []
    thread = threading.Thread(
        target=lambda: built.extend((Student(Config()), Student(Config()))), daemon=True
    )
    thread.start()
    thread.join(60)
    first, second = built
    assert first._definition is second._definition
