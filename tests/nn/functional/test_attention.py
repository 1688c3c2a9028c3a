"""Attention beyond the operator database: masks, blocks, derivatives, dropout, options, refusals."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T
from jax import lax

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import assert_close, check_error, check_function, raised, to_jax
from tests.programs import equations


KEY = jax.random.key(0)


def r(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


Q, K, V = r(2, 2, 3, 4), r(2, 2, 5, 4, seed=1), r(2, 2, 5, 4, seed=2)
HIDDEN = torch.tensor([[0, 0, 0, 0, 0], [1, 0, 1, 1, 0], [1, 1, 1, 1, 1]]).bool()


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((Q, K, V), {}),
        ((Q, K, V), {"scale": -0.3}),
        ((Q, K, V[..., :3]), {"is_causal": True}),
        ((Q, K, V, r(3, 5)), {}),
        ((Q, K, V, r(2, 1, 1, 5)), {}),
        ((Q, K, V, HIDDEN), {}),
        ((Q, K, V, torch.zeros(3, 5).masked_fill(~HIDDEN, -torch.inf)), {}),
        ((Q, K[:, :1], V[:, :1]), {"enable_gqa": True}),
        ((Q[0, 0], K[0], V[0]), {}),
    ],
    ids=op_db.describe,
)
def test_values_and_gradients(args, options):
    check_function(F.scaled_dot_product_attention, T.scaled_dot_product_attention, args, options)


@pytest.mark.parametrize("shapes", [((3, 0), (5, 0), (5, 2)), ((3, 4), (0, 4), (0, 2))], ids=str)
def test_empty(shapes):
    args = [r(*shape) for shape in shapes]
    check_function(F.scaled_dot_product_attention, T.scaled_dot_product_attention, args, gradient=False)


def test_a_row_without_keys_is_zero_with_a_finite_gradient():
    q, k, v, mask = to_jax((Q, K, V, HIDDEN))

    def total(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, mask).sum()

    assert not F.scaled_dot_product_attention(q, k, v, mask)[..., 0, :].any()
    gradients = jax.grad(total, (0, 1, 2))(q, k, v)
    assert not gradients[0][..., 0, :].any()
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(("length", "keys"), [(300, 300), (300, 200)])
@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_blocks_are_the_causal_mask(length, keys, dropout_p):
    q, k, v = (to_jax(r(n, 8, seed=i)) for i, n in enumerate((length, keys, keys)))
    mask = jnp.tril(jnp.ones((length, keys), bool))

    def blocks(*args):
        return F.scaled_dot_product_attention(*args, dropout_p=dropout_p, is_causal=True, rng=KEY)

    def whole(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, rng=KEY)

    np.testing.assert_allclose(blocks(q, k, v), whole(q, k, v), atol=1e-6)

    def gradients(function):
        return jax.grad(lambda *args: jnp.sin(function(*args)).sum(), (0, 1, 2))(q, k, v)

    for ours, expected in zip(gradients(blocks), gradients(whole), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def plain(q, k, v, mask):
    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 2 + mask, -1)
    return weights @ v


def test_every_derivative_is_that_of_the_plain_formula():
    args = to_jax((Q[0, 0], K[0, 0], V[0, 0], r(3, 5)))
    places = (0, 1, 2, 3)
    for derivative in (jax.jacfwd, jax.jacrev, jax.hessian):
        ours = derivative(F.scaled_dot_product_attention, places)(*args)
        expected = derivative(plain, places)(*args)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)


def test_what_does_not_change_is_not_multiplied():
    args = to_jax((Q, K, V, r(3, 5)))

    def products(function, *args):
        return len(list(equations(jax.make_jaxpr(function)(*args).jaxpr, lax.dot_general_p)))

    def more(place):
        """How many products forward mode adds, by one argument."""

        def attend(changed):
            given = [*args[:place], changed, *args[place + 1 :]]
            return F.scaled_dot_product_attention(*given)

        at = args[place]
        return products(lambda a: jax.jvp(attend, (a,), (a,)), at) - products(attend, at)

    # A change of the scores, from the query or key, meets the values.
    assert [more(place) for place in range(4)] == [2, 2, 1, 1]


def test_dropout():
    q, k = jnp.zeros((64, 4)), jnp.zeros((100, 4))
    v = jnp.ones((100, 3))
    output = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25, rng=KEY)
    # Every row is the mean of 100 weights of 0 or 4/3.
    assert abs(output.mean() - 1) < 0.02
    assert 0.03 < output[:, 0].std() < 0.09
    assert not F.scaled_dot_product_attention(q, k, v, dropout_p=1.0).any()
    error = raised(lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
    assert "rng=self.next_key()" in str(error)


def test_half_types_are_summed_in_float32():
    q, k, v = (to_jax(r(n, 64, dtype=torch.bfloat16, seed=i)) for i, n in enumerate((3, 200, 200)))
    exact = F.scaled_dot_product_attention(*(x.astype(jnp.float32) for x in (q, k, v)))
    half = F.scaled_dot_product_attention(q, k, v)
    assert half.dtype == jnp.bfloat16
    np.testing.assert_allclose(half.astype(jnp.float32), exact, atol=4e-3)
    gradient = jax.grad(lambda q: F.scaled_dot_product_attention(q, k, v).sum())(q)
    assert gradient.dtype == jnp.bfloat16


def i(*shape):
    return torch.ones(*shape, dtype=torch.int32)


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((r(4), r(5, 4), r(5, 4)), {}),
        ((r(2, 3, 4), r(2, 5, 3), r(2, 5, 4)), {}),
        ((Q, r(2, 2, 5, 3), V), {}),
        ((r(3, 4), r(5, 3), r(5, 4)), {}),
        ((r(2, 3, 4), r(5, 3), r(5, 4)), {}),
        ((r(3, 4), r(2, 5, 3), r(2, 5, 4)), {}),
        ((r(2, 3, 4), r(2, 5, 4), r(2, 6, 4)), {}),
        ((r(3, 4), r(5, 4), r(6, 4)), {}),
        ((r(2, 3, 4), r(3, 5, 4), r(3, 5, 4)), {}),
        ((r(2, 3, 4), r(2, 5, 4), r(3, 5, 4)), {}),
        ((r(2, 3, 4), r(2, 5, 4).half(), r(2, 5, 4)), {}),
        ((i(2, 3, 4), i(2, 5, 4), i(2, 5, 4)), {}),
        ((i(3, 4), i(5, 4), i(5, 4)), {}),
        (tuple(r(2, n, 4, dtype=torch.complex64) for n in (3, 5, 5)), {}),
        ((Q[0], K[0], V[0], r(3, 5)), {"is_causal": True}),
        ((Q, K, V, i(3, 5)), {}),
        ((Q, K, V, r(3, 5).half()), {}),
        ((Q, K, V, r(3, 4)), {}),
        ((r(2, 3, 4), r(2, 5, 4), r(2, 5, 4), r(2, 2, 3, 5)), {}),
        ((Q[:1], K[:1], V[:1], r(2, 2, 3, 5)), {}),
        ((r(2, 4, 3, 4), r(2, 3, 5, 4), r(2, 3, 5, 4)), {"enable_gqa": True}),
        ((r(2, 4, 3, 4), K, V), {}),
        ((r(3, 4), r(5, 4), r(5, 4)), {"enable_gqa": True}),
        ((Q, K, V), {"dropout_p": 1.5}),
    ],
    ids=op_db.describe,
)
def test_refusals(args, options):
    check_error(
        lambda: F.scaled_dot_product_attention(*to_jax(args), **options),
        lambda: T.scaled_dot_product_attention(*args, **options),
    )


# The function with projections. E = 4, two heads, L = 3, S = 5, N = 2.


def projected(**changes):
    """Arguments of ``multi_head_attention_forward``, by name."""
    arguments = {
        "query": r(3, 2, 4),
        "key": r(5, 2, 4, seed=1),
        "value": r(5, 2, 4, seed=2),
        "embed_dim_to_check": 4,
        "num_heads": 2,
        "in_proj_weight": r(12, 4, seed=3),
        "in_proj_bias": r(12, seed=4),
        "bias_k": None,
        "bias_v": None,
        "add_zero_attn": False,
        "dropout_p": 0.0,
        "out_proj_weight": r(4, 4, seed=5),
        "out_proj_bias": r(4, seed=6),
    }
    return arguments | changes


SEPARATE = {
    "use_separate_proj_weight": True,
    "q_proj_weight": r(4, 4),
    "k_proj_weight": r(4, 4, seed=1),
    "v_proj_weight": r(4, 4, seed=2),
}
EXTRA = {"bias_k": r(1, 1, 4, seed=7), "bias_v": r(1, 1, 4, seed=8), "add_zero_attn": True}
PADDING = torch.tensor([[0, 0, 0, 0, 1], [0, 1, 0, 1, 1]]).bool()
CAUSAL = torch.ones(3, 5).triu(1).bool()


@pytest.mark.parametrize(
    "changes",
    [
        {"need_weights": False},
        {"average_attn_weights": False, "attn_mask": r(4, 3, 5)},
        {"in_proj_bias": None, "out_proj_bias": None},
        {**SEPARATE, "key": r(5, 2, 3), "k_proj_weight": r(4, 3), "in_proj_bias": None},
        {**EXTRA, "attn_mask": CAUSAL, "key_padding_mask": PADDING},
        {**EXTRA, "attn_mask": CAUSAL, "key_padding_mask": PADDING, "need_weights": False},
        {"key_padding_mask": r(2, 5), "need_weights": False},
        {"attn_mask": r(4, 3, 5), "need_weights": False},
        {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False},
        {"attn_mask": CAUSAL, "is_causal": True},
        {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False, "key_padding_mask": PADDING},
        {"static_k": r(4, 5, 2), "static_v": r(4, 5, 2, seed=1)},
        {"query": r(3, 4), "key": r(5, 4), "value": r(5, 4, seed=1), "key_padding_mask": PADDING[1]},
    ],
    ids=op_db.describe,
)
def test_multi_head_options(changes):
    arguments = projected(**changes)
    check_function(F.multi_head_attention_forward, T.multi_head_attention_forward, (), arguments)


@pytest.mark.parametrize("shared", ["query key value", "key value", "query key"])
def test_one_array_in_several_places(shared):
    """The products are fewer, the numbers are the same."""
    names = shared.split()

    def call(function, x, **arguments):
        return function(**arguments, **dict.fromkeys(names, x))

    arguments = {name: value for name, value in projected().items() if name not in names}
    if "value" in arguments:
        arguments["value"] = r(3, 2, 4)
    check_function(
        lambda x, **rest: call(F.multi_head_attention_forward, x, **rest),
        lambda x, **rest: call(T.multi_head_attention_forward, x, **rest),
        (r(3, 2, 4, seed=9),),
        arguments,
    )


def test_batch_first_is_the_other_order():
    arguments = to_jax(projected())
    turned = {name: arguments[name].swapaxes(0, 1) for name in ("query", "key", "value")}
    output, weights = F.multi_head_attention_forward(**arguments)
    first, same = F.multi_head_attention_forward(**(arguments | turned), batch_first=True)
    np.testing.assert_allclose(first.swapaxes(0, 1), output, atol=1e-6)
    assert_close(same, np.asarray(weights))


def test_weights_after_dropout():
    arguments = to_jax(projected(dropout_p=0.5))
    _, exact = F.multi_head_attention_forward(**arguments, training=False, average_attn_weights=False)
    _, weights = F.multi_head_attention_forward(**arguments, rng=KEY, average_attn_weights=False)
    assert weights is not None
    assert exact is not None
    dropped = weights == 0
    assert 0 < dropped.sum() < dropped.size
    np.testing.assert_allclose(weights, jnp.where(dropped, 0, 2 * exact), rtol=1e-5)
    assert "rng=self.next_key()" in str(raised(lambda: F.multi_head_attention_forward(**arguments)))


@pytest.mark.parametrize(
    "changes",
    [
        {"query": r(3)},
        {"query": r(3, 4)},
        {"key": r(5, 4)},
        {"query": r(3, 4), "key": r(5, 4), "value": r(5, 4), "key_padding_mask": PADDING},
        {"query": r(3, 4), "key": r(5, 4), "value": r(5, 4), "attn_mask": r(5)},
        {"query": r(3, 4), "key": r(5, 4), "value": r(5, 4), "attn_mask": r(3, 3, 5)},
        {"key_padding_mask": PADDING[0]},
        {"attn_mask": r(5)},
        {"key_padding_mask": i(2, 5)},
        {"attn_mask": i(3, 5)},
        {"is_causal": True},
        {"embed_dim_to_check": 5},
        {"num_heads": 3},
        {"value": r(4, 2, 4)},
        {**SEPARATE, "value": r(4, 2, 4)},
        {"in_proj_weight": None},
        {**SEPARATE, "q_proj_weight": None},
        {**SEPARATE, "k_proj_weight": None},
        {**SEPARATE, "v_proj_weight": None},
        {**SEPARATE, "q_proj_weight": r(4, 3)},
        {**SEPARATE, "k_proj_weight": r(4, 3)},
        {**SEPARATE, "v_proj_weight": r(3, 4)},
        {**SEPARATE, "in_proj_bias": r(9)},
        {"attn_mask": r(3, 4)},
        {"attn_mask": r(3, 3, 5)},
        {"bias_k": r(4)},
        {"bias_v": r(4)},
        {**EXTRA, "static_k": r(4, 5, 2)},
        {**EXTRA, "static_v": r(4, 5, 2)},
        {"static_k": r(3, 5, 2)},
        {"static_k": r(4, 5, 3)},
        {"static_v": r(3, 5, 2)},
        {"static_v": r(4, 5, 3)},
        {"key_padding_mask": r(3, 5)},
        {**EXTRA, "key_padding_mask": r(2, 4)},
        {"out_proj_weight": r(4, 3)},
    ],
    ids=op_db.describe,
)
def test_multi_head_refusals(changes):
    arguments = projected(**changes)
    check_error(
        lambda: F.multi_head_attention_forward(**to_jax(arguments)),
        lambda: T.multi_head_attention_forward(**arguments),
    )


@pytest.mark.parametrize("mask", [r(0, 3, 5), r(0, 3, 5).bool()], ids=["added", "hidden"])
def test_an_empty_batch_with_a_mask_for_each_head(mask):
    empty = {"query": r(3, 0, 4), "key": r(5, 0, 4), "value": r(5, 0, 4)}
    arguments = projected(**empty, attn_mask=mask)
    ours, theirs = F.multi_head_attention_forward, T.multi_head_attention_forward
    for average in (True, False):
        options = {"average_attn_weights": average}
        check_function(ours, theirs, (), {**arguments, **options}, gradient=False)
    # Torch's kernel without weights cannot guess the heads of nothing.
    output, weights = ours(**to_jax(arguments), need_weights=False)
    assert output.shape == (3, 0, 4)
    assert weights is None


def test_masks_of_two_dtypes_warn():
    arguments = projected(attn_mask=r(3, 5), key_padding_mask=PADDING)
    texts = []
    for call, given in (
        (F.multi_head_attention_forward, to_jax(arguments)),
        (T.multi_head_attention_forward, arguments),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(**given)
        texts.append([str(warning.message) for warning in caught])
    assert texts[0] == texts[1]
    assert len(texts[0]) == 1


def test_jit_vmap_and_hessian():
    arguments = to_jax(projected())
    query = arguments.pop("query")

    def call(query):
        return F.multi_head_attention_forward(query, **arguments, need_weights=False)[0]

    batch = jnp.stack([query, 2 * query])
    mapped = jax.jit(jax.vmap(call))(batch)
    assert_close(mapped, np.stack([call(item) for item in batch]))
    hessian = jax.hessian(lambda q: call(q).sum())(query)
    assert np.isfinite(hessian).all()
    assert hessian.any()
