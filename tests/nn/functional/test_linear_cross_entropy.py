"""linear_cross_entropy in chunks: the memory it saves, halves, derivatives, options and errors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate import nn
from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import check_error, check_function, to_jax


torch.manual_seed(0)
INPUT, WEIGHT, TARGET = torch.randn(8, 5), torch.randn(4, 5), torch.tensor([0, 3, 1, 1, 2, 0, 3, 2])
CHUNKS = nn.LinearCrossEntropyOptions(batch_chunk_size=3)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_dtypes(dtype, reduction):
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=3)
    with jax.enable_x64(dtype == torch.float64):
        check_function(
            F.linear_cross_entropy,
            T.linear_cross_entropy,
            (INPUT.to(dtype), WEIGHT.to(dtype), TARGET),
            {"options": options, "reduction": reduction, "linear_bias": torch.ones(4, dtype=dtype)},
        )


def test_every_target_ignored():
    options = {"options": torch.nn.LinearCrossEntropyOptions(), "ignore_index": 1}
    args = INPUT, WEIGHT, torch.ones_like(TARGET)
    for reduction in ("mean", "sum", "none"):
        check_function(
            F.linear_cross_entropy, T.linear_cross_entropy, args, {**options, "reduction": reduction}
        )


def test_derivatives_are_those_without_chunks():
    input, weight, target = to_jax((INPUT, WEIGHT, TARGET))
    whole = lambda w: F.linear_cross_entropy(input, w, target)  # noqa: E731
    parts = lambda w: F.linear_cross_entropy(input, w, target, options=CHUNKS)  # noqa: E731
    np.testing.assert_allclose(parts(weight), whole(weight), rtol=1e-6)
    np.testing.assert_allclose(jax.hessian(parts)(weight), jax.hessian(whole)(weight), atol=1e-6)
    stack = jnp.stack([weight, -weight])
    np.testing.assert_allclose(jax.vmap(parts)(stack), jax.vmap(whole)(stack), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(parts)(weight), whole(weight), rtol=1e-6)


def test_all_logits_never_exist_at_once():
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((512, 8), (1000, 8))]
    target = jax.ShapeDtypeStruct((512,), jnp.int32)

    def peak(options):
        loss = lambda x, w, t: F.linear_cross_entropy(x, w, t, options=options)  # noqa: E731
        compiled = jax.jit(jax.grad(loss, (0, 1))).lower(*shapes, target).compile()
        analysis = compiled.memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    # 16 rows of 1000 logits instead of 512; the rest is a few copies of the weight.
    assert peak(nn.LinearCrossEntropyOptions(batch_chunk_size=16)) < peak(None) / 5


@pytest.mark.parametrize("sizes", [(8, 5, 4), (1, 8, 4), (100, 8, 1000), (64, 7, 50)])
def test_rows_of_a_chunk(sizes: tuple[int, int, int]):
    changes: list[dict[str, Any]] = [
        {},
        {"chunking_method": "aspect_ratio"},
        {"chunking_method": "aspect_ratio:4"},
        {"chunking_method": None},
        {"batch_chunk_size": 6},
    ]
    for change in changes:
        theirs = torch.nn.LinearCrossEntropyOptions(**change)
        expected = theirs._adjust(*sizes, torch.float32).batch_chunk_size
        assert nn.LinearCrossEntropyOptions(**change).rows(*sizes) == expected
        assert repr(nn.LinearCrossEntropyOptions(**change)) == repr(theirs)


@pytest.mark.parametrize(
    "change",
    [
        {"acc_policy": "some"},
        {"chunking_method": "some"},
        {"chunking_method": "aspect_ratio:0"},
        {"chunking_method": "aspect_ratio:x"},
        {"batch_chunk_size": 0},
        {"batch_chunk_size": 2.5},
    ],
)
def test_options_that_are_refused(change):
    check_error(
        lambda: nn.LinearCrossEntropyOptions(**change),
        lambda: torch.nn.LinearCrossEntropyOptions(**change),
    )


def test_options_that_do_not_go_with_the_call():
    changes: list[dict[str, Any]] = [
        {"batch_chunk_size": 3, "chunking_method": "aspect_ratio"},
        {"acc_dtype": torch.bfloat16},
        {"acc_dtype": torch.float64},
    ]
    for change in changes:
        args = INPUT, WEIGHT, TARGET
        options = torch.nn.LinearCrossEntropyOptions(**change)
        check_error(
            lambda: F.linear_cross_entropy(*to_jax(args), options=to_jax(options)),  # noqa: B023
            lambda: T.linear_cross_entropy(*args, options=options),  # noqa: B023
        )
    with pytest.raises(ValueError, match="acc_dtype must be one of"):
        nn.LinearCrossEntropyOptions(acc_dtype=jnp.int32)


def test_options_without_effect_warn():
    args, options = (INPUT, WEIGHT, TARGET), torch.nn.LinearCrossEntropyOptions()
    texts = []
    sides: list[Any] = [(F.linear_cross_entropy, to_jax), (T.linear_cross_entropy, lambda value: value)]
    for run, convert in sides:
        with pytest.warns(UserWarning, match="``options`` ignored") as caught:
            run(*convert(args), label_smoothing=0.1, options=convert(options))
        assert caught[0].filename == __file__
        texts.append(str(caught[0].message).replace("torch.int32", "torch.int64"))
    assert texts[0] == texts[1]


def test_a_target_that_is_no_class():
    args = to_jax((INPUT, WEIGHT, TARGET + 1))
    with pytest.raises(IndexError, match="Target 4 is out of bounds"):
        F.linear_cross_entropy(*args, options=CHUNKS)
    losses = jax.jit(lambda *args: F.linear_cross_entropy(*args, reduction="none", options=CHUNKS))(
        *args
    )
    np.testing.assert_array_equal(np.isnan(losses), (TARGET == 3).numpy())


def test_database_errors():
    count = 0
    for args, kwargs in op_db.errors("linear_cross_entropy"):
        check_error(
            lambda: F.linear_cross_entropy(*to_jax(args), **to_jax(kwargs)),  # noqa: B023
            lambda: T.linear_cross_entropy(*args, **kwargs),  # noqa: B023
        )
        count += 1
    assert count == 6
