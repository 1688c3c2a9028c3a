"""The errors of the functionals: torch's types and torch's texts."""

import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import check_error, check_function, to_jax


def r(*shape, dtype=torch.float32):
    return torch.zeros(*shape).to(dtype)


def both(name, args, kwargs):
    ours = getattr(F, name)
    check_error(
        lambda: ours(*to_jax(list(args)), **to_jax(kwargs)),
        lambda: getattr(T, name)(*args, **kwargs),
    )


LINEAR = [
    (r(2, 3), r(4, 5)),
    (r(3), r(4, 5)),
    (r(2, 2, 3), r(4, 5)),
    (r(2, 3), r(4, 3), r(5)),
    (r(2, 2, 3), r(4, 3), r(5)),
    (r(3), r(2)),
    (r(2, 2, 3), r(4)),
    (r(()), r(2, 1)),
    (r(2, 3), r(2, 4, 3)),
    (r(3), r(4, 3), r(2, 4)),
    (r(2, 3), r(4, 3).int()),
    (r(2, 3), r(4, 3), r(4).half()),
    (r(2, 3), r(3), r(())),
    (r(2, 3), r(4), r(())),
    (r(2, 3), r(3), r(1, 1)),
    (r(2, 3), r(3), r(2).half()),
    (r(3), r(3), r(1)),
    (r(2, 2, 3), r(3), r(1)),
]


@pytest.mark.parametrize("args", LINEAR, ids=op_db.describe)
def test_linear(args):
    both("linear", args, {})


INDEX = torch.tensor([0, 5])


@pytest.mark.parametrize(
    "args",
    [
        (INDEX, r(3, 2)),
        (INDEX - 8, r(3, 2)),
        (INDEX.float(), r(6, 2)),
        (INDEX.bool(), r(6, 2)),
        (INDEX.short(), r(6, 2)),
        (INDEX, r(3)),
        (INDEX, r(3, 2, 2)),
        (INDEX, r(6, 2), 6),
        (INDEX, r(6, 2), -7),
    ],
    ids=op_db.describe,
)
def test_embedding(args):
    both("embedding", args, {})


X, W = r(1, 4, 4, 4), r(4, 4, 3, 3)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("conv2d", (r(1, 3, 4, 4), r(2, 4, 3, 3)), {}),
        ("conv2d", (r(3, 4, 4), r(2, 4, 3, 3)), {}),
        ("conv2d", (r(1, 4, 2, 2), W), {}),
        ("conv2d", (r(1, 4, 2, 2), W), {"dilation": 2, "padding": 1}),
        ("conv1d", (r(4, 2), r(4, 4, 3)), {}),
        ("conv3d", (r(4, 2, 2, 2), r(4, 4, 3, 3, 3)), {}),
        ("conv1d", (r(4), r(4, 4, 3)), {}),
        ("conv2d", (r(3, 4), W), {}),
        ("conv3d", (r(4, 2), r(4, 4, 3, 3, 3)), {}),
        ("conv2d", (X, r(4, 4, 3)), {}),
        ("conv2d", (X, W, r(3)), {}),
        ("conv2d", (X, W, r(4, 1)), {}),
        ("conv2d", (X, r(3, 2, 3, 3)), {"groups": 2}),
        ("conv2d", (X, W), {"groups": 2}),
        ("conv2d", (X, W), {"groups": 0}),
        ("conv2d", (X, W), {"groups": -1}),
        ("conv2d", (X, W), {"stride": 0}),
        ("conv2d", (X, W), {"stride": -1}),
        ("conv2d", (X, W), {"padding": (-1, 1)}),
        ("conv2d", (X, W), {"dilation": 0}),
        ("conv2d", (X, W), {"dilation": -1}),
        ("conv2d", (X, W), {"stride": (1, 1, 1)}),
        ("conv2d", (X, W), {"padding": (1, 1, 1)}),
        ("conv2d", (X, W), {"dilation": (1, 1, 1)}),
        ("conv2d", (X, W), {"padding": "same", "stride": 2}),
        ("conv2d", (X, W), {"padding": "full"}),
        ("conv2d", (X, r(0, 4, 3, 3)), {}),
        ("conv2d", (X, W.half()), {}),
        ("conv2d", (X, W, r(4).half()), {}),
    ],
    ids=op_db.describe,
)
def test_conv(name, args, kwargs):
    both(name, args, kwargs)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_dilation_of_zero(n):
    """Sizes are checked before it."""
    name, x, weight = f"conv{n}d", r(1, 3, *(4,) * n), r(4, 3, *(2,) * n)
    for args in [(x, weight), (x[:, :2], weight), (x[..., :0], weight), (x, weight[..., :0])]:
        both(name, args, {"dilation": 0})


@pytest.mark.parametrize("n", [1, 2, 3])
def test_conv_of_nothing(n):
    name, x, zeros = f"conv{n}d", r(2, 3, *(4,) * n), (0,) * n
    both(name, (r(2, 3, *(4,) * (n - 1), 0), r(2, 3, *(3,) * n)), {"padding": 2})
    both(name, (r(3, *zeros), r(2, 3, *(3,) * n)), {"padding": 2})
    both(name, (x[..., :0], r(2, 3, *zeros)), {})
    # In the default dtype oneDNN words it as its own failure.
    for dilation in (1, 2):
        args = (x.half(), r(4, 3, 0, *(2,) * (n - 1)).half())
        both(name, args, {"dilation": dilation})


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_conv_of_booleans(n, dilation):
    args = (r(2, 3, *(4,) * n).bool(), r(2, 3, *(2,) * n).bool())
    both(f"conv{n}d", args, {"dilation": dilation})


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("shape", "pad"),
    [
        ((2, 3, 4), (1,)),
        ((3,), (1, 1)),
        ((2, 3, 4, 4), (1, 1)),
        ((2, 3, 4, 4, 4, 4), (1,) * 6),
        ((2, 3, 0), (1, 1)),
        ((2, 3, 4), (-2, -3)),
        ((2, 3, 4), 1),
        ((2, 3, 4), (1.5, 1)),
    ],
    ids=op_db.describe,
)
def test_pad_from_the_input(mode, shape, pad):
    both("pad", (r(*shape), pad, mode), {})
    both("pad", (r(2, 3, 4), (1, 1), mode, 1.0), {})


@pytest.mark.parametrize(
    ("shape", "pad", "mode"),
    [
        ((2, 3, 4), (4, 1), "reflect"),
        ((2, 3, 4, 4), (1, 1, 1, 5), "reflect"),
        ((2, 3, 4, 4, 4), (1, 1, 1, 1, 4, 1), "reflect"),
        ((2, 3, 0, 4), (1, 1, 1, 1), "reflect"),
        ((2, 3, 4), (5, 1), "circular"),
        ((2, 2, 1, 1, 2), (3, 2, 0, -2, -2, -1), "circular"),
        ((2, 2, 2, 2), (-3, 0, 3, 0), "circular"),
        ((2, 4, 1, 4), (2, 2, -1, -2, 0, 2), "replicate"),
        ((1, 4, 4, 2), (-3, 0, 0, 0), "replicate"),
        ((1, 4, 4, 4, 2), (0, -2, -5, 0, 0, 0), "reflect"),
        ((2, 3), (-2, -2), "constant"),
        ((2, 3), (1,), "constant"),
        ((2, 3), (1,) * 6, "constant"),
        ((2, 3), (1, 1), "mirror"),
    ],
    ids=op_db.describe,
)
def test_pad(shape, pad, mode):
    both("pad", (r(*shape), pad, mode), {})


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.uint8, -1),
        (torch.uint8, -0.5),
        (torch.uint8, 255.9),
        (torch.int8, 128),
        (torch.int16, 65520.0),
        (torch.int32, float("nan")),
        (torch.int32, float("-inf")),
        (torch.int32, 2**31),
        (torch.float16, 65520.0),
        (torch.bfloat16, -1e300),
        (torch.float32, 1e300),
        (torch.complex64, 1e300),
    ],
    ids=op_db.describe,
)
def test_pad_with_a_value_beyond_the_dtype(dtype, value):
    both("pad", (r(2, 3, dtype=dtype), (1, 1)), {"value": value})


def test_pad_with_a_value_that_fits():
    for dtype, value in [
        (torch.uint8, 1.5),
        (torch.int8, -0.5),
        (torch.int32, True),
        (torch.bool, float("nan")),
        (torch.float16, float("inf")),
        (torch.float32, float("nan")),
    ]:
        args, options = (r(2, 3, dtype=dtype), (1, 1)), {"value": value}
        check_function(F.pad, T.pad, args, options, gradient=False)


def test_pad_bool():
    for mode in ("reflect", "replicate"):
        both("pad", (r(2, 3, 4, dtype=torch.bool), (1, 1), mode), {})


POOLS = [f"{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)]


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (5, {}),
        (2, {"padding": 2}),
        (2, {"padding": -1}),
        (0, {}),
        (-1, {}),
        (2, {"stride": 0}),
        (2, {"stride": -1}),
        ((), {}),
        ((2,) * 4, {}),
        (2, {"stride": (2,) * 4}),
        (2, {"padding": (0,) * 4}),
    ],
    ids=op_db.describe,
)
def test_pooling(name, kernel, options):
    n = int(name[-2])
    both(name, (r(2, 3, *(4,) * n), kernel), options)


@pytest.mark.parametrize("name", POOLS)
def test_pooling_input(name):
    n = int(name[-2])
    for shape in [((),), (4,) * n, (2, 2, 2, *(4,) * n), (2, 0, *(4,) * n), (2, 2, *(0,) * n)]:
        both(name, (r(*shape), 2), {})


@pytest.mark.parametrize("name", POOLS)
def test_pooling_dtypes(name):
    """Of int32 there is a mean too: it is JAX's default integer, as int64 is torch's."""
    n = int(name[-2])
    dtypes = [torch.bool, torch.complex64]
    if name == "max_pool1d":
        dtypes += [torch.int32, torch.uint8]
    elif name.startswith("avg"):
        dtypes += [torch.uint8, torch.int8, torch.int16]
    for dtype in dtypes:
        both(name, (r(2, 3, *(4,) * n).to(dtype), 2), {})
    if name == "max_pool1d":
        both(name, (r(2, 3, 4).bool(), 2), {"return_indices": True})


@pytest.mark.parametrize("name", POOLS[:3])
@pytest.mark.parametrize("dilation", [0, -1, 5, (1,) * 4], ids=op_db.describe)
def test_max_pool_dilation(name, dilation):
    n = int(name[-2])
    both(name, (r(2, 3, *(4,) * n), 2), {"dilation": dilation})


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 5},
        {"kernel_size": 2, "padding": 2},
        {"kernel_size": 0},
        {"kernel_size": 2, "stride": -1},
        {"kernel_size": 2, "dilation": 0},
        {"kernel_size": (2, 2)},
    ],
    ids=op_db.describe,
)
def test_max_pool1d_with_indices(options):
    both("max_pool1d", (r(2, 3, 4),), {**options, "return_indices": True})


def test_avg_pool_divisor():
    both("avg_pool2d", (r(2, 3, 4, 4), 2), {"divisor_override": 0})


@pytest.mark.parametrize("n", [1, 2, 3])
def test_adaptive_pool(n):
    name, x = f"adaptive_avg_pool{n}d", r(2, 3, *(4,) * n)
    both(name, (x, -1), {})
    both(name, (x, (2,) * (n + 1)), {})
    both(name, (x, None), {})
    both(name, (r(*(4,) * n), 2), {})
    both(name, (r(2, 2, 2, *(4,) * n), 2), {})
    both(name, (r(2, 2, *(0,) * n), 2), {})
    both(name, (x.short(), 2), {})


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((r(1, 3), None, None), {"training": True}),
        ((r(1, 3, 1), None, None), {"training": True}),
        ((r(3), None, None), {"training": True}),
        ((r(3, 2), None, None), {}),
        ((r(3, 2), r(3), r(2)), {}),
        ((r(3, 2), r(2), r(3)), {}),
        ((r(3, 2), r(2), None), {}),
        ((r(3, 2), r(2), None), {"training": True}),
        ((r(3, 2), None, None, r(3)), {"training": True}),
        ((r(3, 2), None, None, None, r(3)), {"training": True}),
        ((r(3, 2), r(2), r(2)), {"eps": -1.0}),
        ((r(3, 2), None, None, r(2).half()), {"training": True}),
        ((r(3, 2).short(), r(2), r(2)), {}),
    ],
    ids=op_db.describe,
)
def test_batch_norm(args, kwargs):
    both("batch_norm", args, kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((r(2, 3, 1),), {}),
        ((r(2, 3),), {}),
        ((r(2, 3, 4),), {"use_input_stats": False}),
        ((r(2, 3, 4), r(3)), {}),
        ((r(2, 3, 4), r(2), r(2)), {}),
        ((r(2, 3, 4), None, None, r(2)), {}),
    ],
    ids=op_db.describe,
)
def test_instance_norm(args, kwargs):
    both("instance_norm", args, kwargs)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("layer_norm", (r(3, 2), (3,))),
        ("layer_norm", (r(3, 2), ())),
        ("layer_norm", (r(3, 2), 2)),
        ("layer_norm", (r(3, 2), (1, 3, 2))),
        ("layer_norm", (r(3, 2), (2,), r(3))),
        ("layer_norm", (r(3, 2), (2,), None, r(3))),
        ("layer_norm", (r(3, 2), (2,), r(2).half())),
        ("layer_norm", (r(3, 2).int(), (2,))),
        ("group_norm", (r(3, 4), 3)),
        ("group_norm", (r(3), 1)),
        ("group_norm", (r(3, 4), -1)),
        ("group_norm", (r(1, 4), 4)),
        ("group_norm", (r(3, 4), 2, r(3))),
        ("group_norm", (r(2, 4), 4, r(4).half())),
        ("group_norm", (r(2, 4).int(), 2)),
    ],
    ids=op_db.describe,
)
def test_layer_and_group_norm(name, args):
    both(name, args, {})


@pytest.mark.parametrize("name", [*POOLS, "conv1d", "conv2d", "conv3d", "group_norm"])
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_database(name):
    """What torch's database says must raise, raises here with the same text."""
    for args, kwargs in op_db.errors(name):
        tensors = [v for v in args if isinstance(v, torch.Tensor)]
        if not any(t.dtype in (torch.float64, torch.complex128, torch.int64) for t in tensors):
            both(name, args, kwargs)
