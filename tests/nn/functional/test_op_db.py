"""Every functional against every sample input of torch's own operator database."""

import jax
import jax.numpy as jnp
import pytest

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.oracles.adapters import ADAPTERS, NO_ENTRY


def test_what_the_database_lacks_is_known():
    assert {name for name in F.__all__ if not op_db.variants(name)} == NO_ENTRY


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.filterwarnings("ignore:dropout2d. Received a 3D input")
@pytest.mark.filterwarnings("ignore:linear_cross_entropy")
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")
@pytest.mark.filterwarnings("ignore:`nn.functional.upsample")
@pytest.mark.parametrize("name", sorted(set(F.__all__) - NO_ENTRY))
def test_samples(name):
    ours, theirs = ADAPTERS.get(name, (getattr(F, name), None))
    for variant in op_db.variants(name):
        op_db.check(name, ours, theirs, variant=variant)


def dropped(units):
    """A dropout whose mask has this shape, a function of the input's."""

    def function(input, p=0.5, training=True, inplace=False, *, rng):
        if not training or p in (0, 1):
            return input * (1 - p * training)
        kept = jax.random.bernoulli(rng, 1 - p, units(input.shape))
        return jnp.where(kept, input / (1 - p), 0)

    return function


def everything(input, p=0.5, training=True, inplace=False, *, rng):
    return input * 0 if training and p else input


def one_slope(input, lower=1 / 8, upper=1 / 3, training=False, *, rng=None):
    return jnp.where(input > 0, input, input * (lower + upper) / 2)


WRONG = {
    "everything is dropped": ("dropout", everything),
    "rows are dropped": ("dropout", dropped(lambda s: (*s[:-1], 1) if len(s) > 1 else s)),
    "columns are dropped": ("dropout", dropped(lambda s: (1, *s[1:]) if len(s) > 1 else s)),
    "elements of channels are dropped": ("dropout2d", dropped(lambda s: s)),
    "channels of all examples are dropped": ("dropout2d", dropped(lambda s: (1, s[1], 1, 1)[: len(s)])),
    "examples are dropped": ("dropout3d", dropped(lambda s: (s[0],) + (1,) * (len(s) - 1))),
    "one slope": ("rrelu", one_slope),
}


@pytest.mark.filterwarnings("ignore:dropout2d. Received a 3D input")
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_draw_is_seen(case, monkeypatch):
    name, function = WRONG[case]
    monkeypatch.setattr(F, name, function)
    assert op_db.run(name, *ADAPTERS[name]).failures
