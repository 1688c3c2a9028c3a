"""Where our signature must differ from torch's: what the operator database runs on each side.

A functional without an entry is called as it is. An entry is ``(ours, theirs)``, both called with
the sample's arguments; ``theirs`` None is the database's own operator. Every adapter says which
difference it bridges: statistics that are returned, keys that are passed.
"""

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as T
from jax.core import Tracer

from purestate.nn import functional as F


Adapter = tuple[Callable[..., Any], Callable[..., Any] | None]


def ours_embedding(weight, indices, **options):
    """The database puts the weight first."""
    return F.embedding(indices, weight, **options)


def theirs_embedding(weight, indices, sparse=False, **options):
    """Torch's lookup with dense gradients: there are no others here."""
    del sparse
    return T.embedding(indices, weight, **options)


def ours_embedding_bag(weight, indices, **options):
    """The database puts the weight first."""
    return F.embedding_bag(indices, weight, **options)


def theirs_embedding_bag(
    weight, indices, *, sparse=False, scale_grad_by_freq=False, padding_idx=None, **options
):
    """Torch's bags with dense gradients.

    Its ``scale_grad_by_freq`` divides by the counts of other rows on the CPU; its ``embedding``
    divides right. So rows are looked up by the one and put in bags by the other.
    """
    del sparse
    if not scale_grad_by_freq:
        return T.embedding_bag(indices, weight, padding_idx=padding_idx, **options)
    norm = {key: options.pop(key) for key in ("max_norm", "norm_type") if key in options}
    rows = T.embedding(indices.flatten(), weight, scale_grad_by_freq=True, **norm)
    places = torch.arange(len(rows)).reshape(indices.shape)
    if padding_idx is not None:
        rows = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
        is_padding = indices == padding_idx % len(weight)
        places, padding_idx = places.masked_fill(is_padding, len(rows) - 1), len(rows) - 1
    return T.embedding_bag(places, rows, padding_idx=padding_idx, **options)


def ours_normed(function):
    """Torch gives its running statistics no gradient."""

    @functools.wraps(function)
    def call(input, running_mean=None, running_var=None, *args, **kwargs):
        running_mean, running_var = jax.lax.stop_gradient((running_mean, running_var))
        return function(input, running_mean, running_var, *args, **kwargs)

    return call


def theirs_normed(function):
    """Torch's normalisation on copies of the statistics, which are returned."""

    @functools.wraps(function)
    def call(input, running_mean=None, running_var=None, *args, **kwargs):
        mean = None if running_mean is None else running_mean.detach().clone()
        var = None if running_var is None else running_var.detach().clone()
        return function(input, mean, var, *args, **kwargs), mean, var

    return call


def ours_weighted(function):
    """Torch has no gradient of these losses with respect to their weights."""

    @functools.wraps(function)
    def call(*args, weight=None, pos_weight=None, **options):
        if pos_weight is not None:
            options["pos_weight"] = jax.lax.stop_gradient(pos_weight)
        return function(*args, weight=jax.lax.stop_gradient(weight), **options)

    return call


def theirs_weighted(function):
    """The same, with the weights detached."""

    @functools.wraps(function)
    def call(*args, weight=None, pos_weight=None, **options):
        if pos_weight is not None:
            options["pos_weight"] = pos_weight.detach()
        return function(*args, weight=None if weight is None else weight.detach(), **options)

    return call


def weighted(name: str) -> Adapter:
    """Both sides of a loss with class weights."""
    return ours_weighted(getattr(F, name)), theirs_weighted(getattr(T, name))


def ours_soft_margin(input, target, **options):
    """Torch has no gradient of this loss with respect to the target."""
    return F.soft_margin_loss(input, jax.lax.stop_gradient(target), **options)


def theirs_soft_margin(input, target, **options):
    """The same, with the target detached."""
    return T.soft_margin_loss(input, target.detach(), **options)


def ours_triplet_with_distance(*args, distance_function, **options):
    """The database passes torch's own layer, which is the default."""
    assert repr(distance_function) == "PairwiseDistance()"
    return F.triplet_margin_with_distance_loss(*args, **options)


def fractional(name: str, axes: int) -> Adapter:
    """Both sides of a pooling that draws, given the same random numbers."""

    def samples(shape):
        items = 1 if len(shape) == axes + 1 else shape[0]
        generator = torch.Generator().manual_seed(0)
        return torch.rand(items, shape[-axes - 1], axes, generator=generator)

    def ours(input, *args, _random_samples=None, **options):
        drawn = (
            jnp.asarray(samples(input.shape).numpy(), input.dtype)
            if _random_samples is None
            else _random_samples
        )
        return getattr(F, name)(input, *args, **options, _random_samples=drawn)

    def theirs(input, *args, _random_samples=None, **options):
        drawn = samples(input.shape) if _random_samples is None else _random_samples.detach()
        drawn = drawn.to(input.dtype)  # Torch wants them in the input's dtype.
        return getattr(T, name)(input, *args, **options, _random_samples=drawn)

    return ours, theirs


def theirs_hardsigmoid(input, **options):
    """Torch's values, with the gradient of its formula: its own rounds 1/6 to float32 first."""
    formula = T.relu6(input + 3) / 6
    return formula + (T.hardsigmoid(input, **options) - formula).detach()


KEY = jax.random.key(0)
"""What our dropout draws with; torch gets the mask."""


def kept(shape, p):
    """What our dropout multiplies entries of a shape by, for torch: 0 or ``1 / (1 - p)``."""
    return torch.from_numpy(np.array(F.dropout(jnp.ones(tuple(shape)), p, rng=KEY)))


def theirs_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False):
    """Torch's attention; with dropout the plain one, which takes the mask."""
    if dropout_p == 0:
        return T.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal)
    batch = np.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    mask = kept((*batch, query.shape[-2], key.shape[-2]), dropout_p) > 0
    return torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, mask
    )[0]


def tamed(function):
    """An eighth of every array: the database's numbers saturate each softmax, whose gradient is
    then nothing but rounding."""

    def tame(value):
        return value / 8 if isinstance(value, jax.Array | torch.Tensor) else value

    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*map(tame, args), **{key: tame(value) for key, value in kwargs.items()})

    return call


def ours_multi_head(*args, **kwargs):
    """Our function with the key of the masks."""
    return F.multi_head_attention_forward(*args, **kwargs, rng=KEY)


def theirs_multi_head(*args, **kwargs):
    """Torch's function with our mask in place of its dropout."""
    with mock.patch.object(T, "dropout", lambda weights, p: weights * kept(weights.shape, p)):
        return T.multi_head_attention_forward(*args, **kwargs)


LEADING: dict[str, Callable[[int], int]] = {
    "alpha_dropout": lambda ndim: ndim,
    "dropout": lambda ndim: ndim,
    "dropout2d": lambda ndim: 2,
    "dropout3d": lambda ndim: 1 + (ndim == 5),
    "feature_alpha_dropout": lambda ndim: 2,
}
"""How many axes tell apart what a dropout drops together, by the number of axes."""


def check_gone(gone: np.ndarray, p: float, leading: int) -> None:
    """What is dropped could have been drawn with ``p``, independently for each of the leading axes."""
    together = gone.reshape(*gone.shape[:leading], -1)
    units = together[..., 0]
    assert (together == units[..., None]).all(), "a part of what is dropped together"
    within = 3 * np.sqrt(p * (1 - p) / units.size)
    assert abs(units.mean() - p) <= within, f"{units.mean():.2f} is dropped, not {p}"
    for axis, size in enumerate(units.shape):
        chance = (p**size + (1 - p) ** size) ** (units.size / size)
        varies = bool((units != units.take([0], axis)).any())
        assert varies or chance > 1e-3, f"axis {axis} is dropped together"


def concrete(value: Any) -> np.ndarray | None:
    """The numbers of either side; None under a trace."""
    if isinstance(value, torch.Tensor):
        return value.detach().numpy()
    return None if isinstance(value, Tracer) else np.asarray(value)


def dropped(name: str, training: bool) -> Adapter:
    """Both sides of a dropout, each with a mask of its own: what is dropped counts as kept.

    Before that the mask is seen to be one that this dropout draws.

    Args:
        name: The function.
        training: Its default of that argument.
    """

    def settled(where, input, output, p=0.5, training=training):
        if not training or p in (0, 1):
            return output
        if "alpha" not in name:
            gone, kept = output == 0, input / (1 - p)
        else:
            a = ((1 - p) * (1 + p * 1.7580993408473766**2)) ** -0.5
            shift = a * p * 1.7580993408473766
            gone, kept = abs(output - shift + a * 1.7580993408473766) < 1e-5, a * input + shift
        mask = concrete(gone)
        if mask is not None:
            check_gone(mask, p, LEADING[name](input.ndim))
        return where(gone, kept, output)

    def ours(input, **options):
        output = getattr(F, name)(input, **options, rng=KEY)
        return settled(jnp.where, input, output, **options)

    def theirs(input, **options):
        return settled(torch.where, input, getattr(T, name)(input, **options), **options)

    return ours, theirs


def ours_one_hot(classes, num_classes):
    """The database's classes are integers only where it is asked for integers."""
    return F.one_hot(classes.astype(int), num_classes)


def theirs_one_hot(classes, num_classes):
    """The same."""
    return T.one_hot(classes.long(), num_classes)


def rrelu(namespace, where, **key) -> Callable[..., Any]:
    """A side of ``rrelu``: slopes that are drawn count as their mean, once they are seen to fit."""

    def call(input, lower=1 / 8, upper=1 / 3, training=False):
        output = namespace.rrelu(input, lower, upper, training, **key)
        inputs, outputs = concrete(input), concrete(output)
        if training and inputs is not None and outputs is not None:
            slopes = outputs[inputs < 0] / inputs[inputs < 0]
            assert slopes.size < 8 or np.ptp(slopes) > (upper - lower) / 4, "slopes are not drawn"
        between = (output <= input * lower) & (output >= input * upper)
        return where(between, input * ((lower + upper) / 2), output) if training else output

    return call


ADAPTERS: dict[str, Adapter] = {
    "alpha_dropout": dropped("alpha_dropout", training=False),
    "batch_norm": (ours_normed(F.batch_norm), theirs_normed(T.batch_norm)),
    "binary_cross_entropy": weighted("binary_cross_entropy"),
    "binary_cross_entropy_with_logits": weighted("binary_cross_entropy_with_logits"),
    "cross_entropy": weighted("cross_entropy"),
    "dropout": dropped("dropout", training=True),
    "dropout2d": dropped("dropout2d", training=True),
    "dropout3d": dropped("dropout3d", training=True),
    "embedding": (ours_embedding, theirs_embedding),
    "embedding_bag": (ours_embedding_bag, theirs_embedding_bag),
    "feature_alpha_dropout": dropped("feature_alpha_dropout", training=False),
    "fractional_max_pool2d": fractional("fractional_max_pool2d", 2),
    "fractional_max_pool3d": fractional("fractional_max_pool3d", 3),
    "hardsigmoid": (F.hardsigmoid, theirs_hardsigmoid),
    "instance_norm": (ours_normed(F.instance_norm), theirs_normed(T.instance_norm)),
    "linear_cross_entropy": weighted("linear_cross_entropy"),
    "multi_head_attention_forward": (
        tamed(ours_multi_head),
        tamed(theirs_multi_head),
    ),
    "multi_margin_loss": weighted("multi_margin_loss"),
    "nll_loss": weighted("nll_loss"),
    "one_hot": (ours_one_hot, theirs_one_hot),
    "rrelu": (rrelu(F, jnp.where, rng=KEY), rrelu(T, torch.where)),
    "scaled_dot_product_attention": (
        functools.partial(F.scaled_dot_product_attention, rng=KEY),
        theirs_attention,
    ),
    "soft_margin_loss": (ours_soft_margin, theirs_soft_margin),
    "triplet_margin_with_distance_loss": (ours_triplet_with_distance, None),
}

NO_ENTRY = {
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices",
    "affine_grid",
    "conv_tbc",
    "dropout1d",
    "embedding_renorm",
    "fold",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices",
    "grouped_mm",
    "gru",
    "gru_cell",
    "gumbel_softmax",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "lstm",
    "lstm_cell",
    "max_pool1d_with_indices",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "native_channel_shuffle",
    "rnn_relu",
    "rnn_relu_cell",
    "rnn_tanh",
    "rnn_tanh_cell",
    "upsample",
}
"""The functionals that the operator database has no entry for; their own tests hold them to torch."""
