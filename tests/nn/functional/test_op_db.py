"""Every functional against every sample input of torch's own operator database."""

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
