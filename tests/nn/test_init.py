"""nn.init: exact where nothing is random, statistics where it is, torch's checks and texts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import purestate as ps
from purestate import nn
from tests.parity import check_error


KEY = jax.random.key(0)


def wrong(**options) -> Any:
    """Options that the annotations of torch forbid."""
    return options


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (nn.init.constant(0.3), lambda t: torch.nn.init.constant_(t, 0.3), (3, 4)),
        (nn.init.ones(), torch.nn.init.ones_, (3,)),
        (nn.init.zeros(), torch.nn.init.zeros_, ()),
        (nn.init.eye(), torch.nn.init.eye_, (3, 5)),
        (nn.init.dirac(), torch.nn.init.dirac_, (4, 3, 3)),
        (nn.init.dirac(2), lambda t: torch.nn.init.dirac_(t, 2), (4, 3, 3, 4)),
        (nn.init.dirac(), torch.nn.init.dirac_, (2, 5, 3, 2, 1)),
    ],
)
def test_what_is_not_random_is_torchs(ours, theirs, shape):
    np.testing.assert_array_equal(ours(KEY, shape, jnp.float32), theirs(torch.empty(shape)))


RANDOM = {
    "uniform": (nn.init.uniform(-2, 3), lambda t: torch.nn.init.uniform_(t, -2, 3)),
    "normal": (nn.init.normal(1, 2), lambda t: torch.nn.init.normal_(t, 1, 2)),
    "trunc_normal": (
        nn.init.trunc_normal(0.5, 1, -1, 1),
        lambda t: torch.nn.init.trunc_normal_(t, 0.5, 1, -1, 1),
    ),
    "xavier_uniform": (nn.init.xavier_uniform(1.5), lambda t: torch.nn.init.xavier_uniform_(t, 1.5)),
    "xavier_normal": (nn.init.xavier_normal(), torch.nn.init.xavier_normal_),
    "kaiming_uniform": (
        nn.init.kaiming_uniform(5**0.5),
        lambda t: torch.nn.init.kaiming_uniform_(t, 5**0.5),
    ),
    "kaiming_normal": (
        nn.init.kaiming_normal(mode="fan_out", nonlinearity="relu"),
        lambda t: torch.nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
    ),
    "sparse": (nn.init.sparse(0.25, 0.5), lambda t: torch.nn.init.sparse_(t, 0.25, 0.5)),
}


@pytest.mark.parametrize("name", RANDOM)
def test_statistics_are_torchs(name):
    ours, theirs = RANDOM[name]
    shape = (400, 300) if name == "sparse" else (100, 30, 8, 5)
    a = np.asarray(ours(KEY, shape, jnp.float32), np.float64)
    b = theirs(torch.empty(shape)).numpy().astype(np.float64)
    spread = b.std()
    assert abs(a.mean() - b.mean()) < 0.02 * spread
    np.testing.assert_allclose(a.std(), spread, rtol=0.01)
    for q in (0.01, 0.25, 0.75, 0.99):
        assert abs(np.quantile(a, q) - np.quantile(b, q)) < 0.05 * spread
    assert (a == 0).sum(axis=0).tolist() == (b == 0).sum(axis=0).tolist() or name != "sparse"


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3)])
def test_orthogonal(shape):
    array = np.asarray(nn.init.orthogonal(2.0)(KEY, shape, jnp.float32)).reshape(shape[0], -1)
    small = array @ array.T if array.shape[0] <= array.shape[1] else array.T @ array
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_orthogonal_in_half_precision_is_the_float32_one_rounded(dtype):
    half = nn.init.orthogonal()(KEY, (4, 6), dtype)
    assert half.dtype == dtype
    np.testing.assert_array_equal(half, nn.init.orthogonal()(KEY, (4, 6), jnp.float32).astype(dtype))


def in_constructor(change):
    """Run ``change`` on an open parameter; return the finished model."""

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ps.empty(6, 4))
            self.vector = nn.Parameter(ps.empty(6))
            change(self)

    return Holder()


def test_the_in_place_names_set_the_initialiser_in_a_constructor():
    def change(m):
        for parameter in m.parameters():
            nn.init.ones_(parameter)
        assert nn.init.normal_(m.weight, 1.0, 0.5) is m.weight

    model = in_constructor(change)
    assert model.weight.init == nn.init.normal(1.0, 0.5)
    drawn = ps.init(model, 0)
    np.testing.assert_array_equal(drawn.vector, np.ones(6))
    assert hash(nn.init.normal(1.0, 0.5)) == hash(model.weight.init)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            lambda m: nn.init.xavier_uniform_(m.vector),
            lambda m: torch.nn.init.xavier_uniform_(m.vector),
        ),
        (
            lambda m: nn.init.kaiming_normal_(m.vector),
            lambda m: torch.nn.init.kaiming_normal_(m.vector),
        ),
        (lambda m: nn.init.orthogonal_(m.vector), lambda m: torch.nn.init.orthogonal_(m.vector)),
        (lambda m: nn.init.eye_(m.vector), lambda m: torch.nn.init.eye_(m.vector)),
        (lambda m: nn.init.sparse_(m.vector, 0.1), lambda m: torch.nn.init.sparse_(m.vector, 0.1)),
        (lambda m: nn.init.dirac_(m.weight), lambda m: torch.nn.init.dirac_(m.weight)),
        (
            lambda m: nn.init.kaiming_uniform_(m.weight, mode="fan"),
            lambda m: torch.nn.init.kaiming_uniform_(m.weight, **wrong(mode="fan")),
        ),
        (
            lambda m: nn.init.kaiming_uniform_(m.weight, nonlinearity="gelu"),
            lambda m: torch.nn.init.kaiming_uniform_(m.weight, **wrong(nonlinearity="gelu")),
        ),
        (
            lambda m: nn.init.calculate_gain("leaky_relu", True),
            lambda m: torch.nn.init.calculate_gain("leaky_relu", True),
        ),
    ],
)
def test_errors_are_torchs(ours, theirs):
    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(6, 4))
            self.vector = torch.nn.Parameter(torch.empty(6))
            theirs(self)

    check_error(lambda: in_constructor(ours), Theirs)


@pytest.mark.parametrize("name", ["linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"])
def test_gains(name):
    assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert nn.init.calculate_gain("leaky_relu", 0.2) == torch.nn.init.calculate_gain("leaky_relu", 0.2)


def test_nothing_to_draw_warns():
    for library in (nn, torch.nn):
        with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
            library.Linear(3, 0)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("name", ["kaiming_normal", "kaiming_uniform"])
def test_of_nothing_no_fan_is_asked(name, shape):
    ours, theirs = getattr(nn.init, name)(), getattr(torch.nn.init, f"{name}_")
    for call in (lambda: ours(KEY, shape, jnp.float32), lambda: theirs(torch.empty(shape))):
        with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
            assert call().shape == shape


def test_fans_of_a_transposed_convolution_are_swapped():
    """Row 163: the second axis counts as the input, whatever the layer is."""
    theirs = torch.nn.ConvTranspose2d(4, 6, 3).weight
    fans = torch.nn.init._calculate_fan_in_and_fan_out(theirs)
    assert fans == (54, 36)
    for mode, fan in zip(("fan_in", "fan_out"), fans, strict=True):
        drawn = np.asarray(nn.init.kaiming_uniform(mode=mode, a=1)(KEY, (4, 6, 3, 3), jnp.float32))
        bound = (3 / fan) ** 0.5
        assert 0.9 * bound < np.abs(drawn).max() <= bound


def test_the_deprecated_names_are_initialisers_here():
    """In torch they change a tensor in place, with a warning."""
    with pytest.warns(FutureWarning, match="deprecated in favor of"):
        torch.nn.init.constant(torch.empty(2), 3.0)
    np.testing.assert_array_equal(nn.init.constant(3.0)(KEY, (2,), jnp.float32), [3.0, 3.0])


def test_an_array_cannot_be_changed_in_place():
    with pytest.raises(TypeError, match="never changes in place"):
        nn.init.ones_(jnp.zeros(3))
    with pytest.raises(TypeError, match="takes no generator"):
        in_constructor(lambda m: nn.init.normal_(m.weight, generator=1))


def test_adding_a_layer_changes_no_other_weight():
    class Small(nn.Module):
        def __init__(self, more):
            super().__init__()
            if more:
                self.before = nn.Linear(2, 2)
            self.layer = nn.Linear(2, 2)

    a, b = ps.init(Small(False), 0), ps.init(Small(True), jax.random.key(0))
    np.testing.assert_array_equal(a.layer.weight, b.layer.weight)
    assert not np.array_equal(b.before.weight, b.layer.weight)


@pytest.mark.parametrize("name", ["uniform", "normal", "trunc_normal", "kaiming_uniform", "sparse"])
def test_a_draw_under_jit_is_the_draw_outside(name):
    initializer = RANDOM[name][0]
    shape = (300, 301)  # More than one chunk.
    outside = initializer(KEY, shape, jnp.float32)
    inside = jax.jit(lambda key: initializer(key, shape, jnp.float32))(KEY)
    np.testing.assert_allclose(inside, outside, rtol=1e-6, atol=1e-6)
    assert len(np.unique(outside)) > 0.5 * outside.size or name == "sparse"


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_draws(dtype):
    array = nn.init.uniform(-1, 1)(KEY, (100,), dtype)
    assert array.dtype == dtype
    assert -1 <= array.min() < -0.9


def test_a_whole_model_is_drawn_under_jit_into_shardings():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.NamedSharding(mesh, jax.P("data"))
    model = nn.Linear(6, 4)
    drawn = jax.jit(lambda key: ps.init(model, key), out_shardings=rows)(jax.random.key(0))
    assert drawn.weight.sharding == rows
    np.testing.assert_allclose(drawn.weight, ps.init(model, 0).weight, rtol=1e-6)
