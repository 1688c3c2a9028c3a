"""What holds of every layer, over the zoo: each transform, each copy, each dtype, torch's names."""

import copy
import functools
import pickle
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import PartitionSpec as P

import bridge
import purestate as ps
from purestate import nn
from tests.parity import assert_close, check_error, raised
from tests.zoo import WITHOUT_FORWARD, ZOO


pytestmark = [
    pytest.mark.filterwarnings("ignore:`NLLLoss2d` has been deprecated"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
]

KEY = jax.random.key(3)

every_layer = pytest.mark.parametrize("entry", ZOO, ids=lambda entry: entry.id)


@functools.cache
def built(id):
    """A layer of the zoo with values, and its inputs."""
    entry = next(entry for entry in ZOO if entry.id == id)
    inputs = tuple(map(jnp.asarray, entry.inputs))
    return ps.init(entry.build(nn), zlib.crc32(id.encode()), *inputs), inputs


def to_tensors(entry):
    """The inputs as torch takes them, integers as int64."""
    tensors = map(torch.from_numpy, entry.inputs)
    return [t if t.is_floating_point() else t.long() for t in tensors]


def is_float(array):
    return jnp.issubdtype(array.dtype, jnp.floating)


def floats(tree):
    return [leaf for leaf in jax.tree.leaves(tree) if is_float(leaf)]


def close(actual, expected, rtol=1e-5, atol=1e-5):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def function_of(model, inputs):
    """The layer as a function of its floating arrays and inputs, to its floating outputs and state."""
    leaves, structure = jax.tree.flatten((model, inputs))
    places = [place for place, leaf in enumerate(leaves) if is_float(leaf)]

    def call(arrays):
        filled = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            filled[place] = array
        model, inputs = jax.tree.unflatten(structure, filled)
        output, after = ps.call(model, *inputs, rng=KEY)
        return floats((output, after))

    return call, [leaves[place] for place in places]


def total(arrays):
    weights = [jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape) for a in arrays]
    return sum(jnp.sum(a * w) for a, w in zip(arrays, weights, strict=True))


def test_the_zoo_is_complete():
    layers = {name for name in nn.__all__ if isinstance(getattr(nn, name), type(nn.Module))}
    assert {entry.name for entry in ZOO} == layers - WITHOUT_FORWARD
    theirs = {
        name
        for name, value in vars(torch.nn).items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module)
    }
    assert theirs - layers == {"DataParallel"}
    assert layers - theirs == set()


@every_layer
def test_jit_scan_and_checkpoint_agree_with_the_plain_call(entry):
    model, inputs = built(entry.id)
    plain = ps.call(model, *inputs, rng=KEY)
    traces = []

    @jax.jit
    def program(model, inputs):
        traces.append(None)
        jitted = ps.call(model, *inputs, rng=KEY)

        def body(model, _):
            output, model = ps.call(model, *inputs, rng=KEY)
            return model, output

        after, outputs = jax.lax.scan(body, model, None, length=1)
        scanned = jax.tree.map(lambda leaf: leaf[0], outputs), after
        checkpointed = jax.checkpoint(functools.partial(ps.call, rng=KEY))(model, *inputs)
        return jitted, scanned, checkpointed

    with jax.checking_leaks():
        results = program(model, inputs)
    for result in results:
        close(result, plain)
    program(jax.tree.map(jnp.array, model), inputs)
    assert len(traces) == 1


@every_layer
def test_grad_jvp_and_hessian_agree(entry):
    call, arrays = function_of(*built(entry.id))
    tangents = [jnp.sin(1 + jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape) for a in arrays]

    def loss(arrays):
        return total(call(arrays))

    @jax.jit
    def derivatives(arrays):
        value, slope = jax.jvp(loss, (arrays,), (tangents,))
        gradient = jax.grad(loss)(arrays)
        forward_over_reverse = jax.jvp(jax.grad(loss), (arrays,), (tangents,))[1]
        reverse_over_reverse = jax.grad(lambda a: dot(jax.grad(loss)(a), tangents))(arrays)
        return value, slope, gradient, forward_over_reverse, reverse_over_reverse

    def dot(ours, theirs):
        return sum(jnp.vdot(a, b) for a, b in zip(ours, theirs, strict=True))

    _, slope, gradient, forward, reverse = derivatives(arrays)
    np.testing.assert_allclose(slope, dot(gradient, tangents), rtol=2e-3, atol=2e-4)
    close(forward, reverse, rtol=5e-3, atol=2e-3)


@every_layer
def test_vmap_over_arrays_and_inputs(entry):
    call, arrays = function_of(*built(entry.id))
    stacked = [jnp.stack([array, array * 1.25]) for array in arrays]
    mapped = jax.jit(jax.vmap(call))(stacked)
    single = jax.jit(call)
    for index in range(2):
        close(
            [array[index] for array in mapped],
            single([array[index] for array in stacked]),
            rtol=1e-4,
        )


@every_layer
def test_shard_map_agrees_with_its_members(entry):
    """Over a mesh of two, of which one argument differs between the members: the inputs, the model."""
    assert jax.device_count() == 2
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    given = built(entry.id)

    @jax.jit
    def derivatives(*given):
        """The outputs, and the gradients by the model and by the inputs."""
        call, arrays = function_of(*given)
        gradient = jax.grad(lambda arrays: total(call(arrays)))(arrays)
        count = len(floats(given[0]))
        return call(arrays), gradient[:count], gradient[count:]

    def member(varies, *given):
        results = derivatives(*_at(given, varies, lambda leaf: leaf[0]))
        outputs, *gradients = _at(results, 1 + varies, lambda leaf: leaf[None])
        return [output[None] for output in outputs], *gradients

    for varies in range(2):
        if not jax.tree.leaves(given[varies]):
            continue
        other = _at(given, varies, lambda leaf: leaf * 1.25 if is_float(leaf) else leaf)
        both = _stacked(given, other)
        stacked = [both[place] if place == varies else given[place] for place in range(2)]
        specs = tuple(P("data") if place == varies else P() for place in range(2))
        sharded = jax.shard_map(
            functools.partial(member, varies), mesh=mesh, in_specs=specs, out_specs=(P("data"), *specs)
        )
        # The gradient by what the members have in common is the sum of theirs.
        expected = _stacked(derivatives(*given), derivatives(*other))
        expected = _at(expected, 2 - varies, lambda leaf: leaf.sum(0))
        close(jax.jit(sharded)(*stacked), expected, rtol=1e-4, atol=1e-4)


def _stacked(*trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _at(trees, index, function):
    """The trees, with a function of the leaves of one of them."""
    return tuple(
        jax.tree.map(function, tree) if place == index else tree for place, tree in enumerate(trees)
    )


@every_layer
def test_copies_and_pickles_are_the_same_model(entry):
    model, _ = built(entry.id)
    for twin in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert jax.tree.structure(twin) == jax.tree.structure(model)
        assert repr(twin) == repr(model)
        for ours, theirs in zip(jax.tree.leaves(twin), jax.tree.leaves(model), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@every_layer
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_dtypes(entry, dtype):
    model, inputs = built(entry.id)
    theirs = entry.build(torch.nn).eval()
    tensors = to_tensors(entry)
    if hasattr(theirs, "initialize_parameters"):
        theirs(*tensors)
    theirs.load_state_dict(
        {name: torch.from_numpy(np.array(a)) for name, a in bridge.state_dict(model).items()},
    )
    half = getattr(torch, dtype)
    tensors = [t.to(half) if t.is_floating_point() else t for t in tensors]
    try:
        with torch.no_grad():
            expected = theirs.to(half)(*tensors)
    except NotImplementedError as error:
        expected = error  # No such kernel on torch's CPU: refused here too, or of the right dtype.
    model = bridge.to(bridge.eval(model), dtype=dtype)
    inputs = [array.astype(dtype) if is_float(array) else array for array in inputs]
    if isinstance(expected, Exception) and raised(lambda: ps.call(model, *inputs, rng=KEY)):
        check_error(lambda: ps.call(model, *inputs, rng=KEY), lambda: theirs(*tensors))
        return
    output, after = ps.call(model, *inputs, rng=KEY)
    assert {leaf.dtype.name for leaf in floats(after)} <= {dtype}
    assert {leaf.dtype.name for leaf in floats(output)} == {dtype}
    if not (isinstance(expected, Exception) or entry.always_draws):
        assert_close(output, _plain(expected), table=HALF)


HALF = {"bfloat16": (4e-2, 4e-2), "float16": (5e-3, 5e-3)}


def _plain(output):
    return tuple(output) if isinstance(output, tuple) else output


@every_layer
def test_state_goes_to_torch_and_back(entry):
    model, inputs = built(entry.id)
    theirs = entry.build(torch.nn).eval()
    tensors = to_tensors(entry)
    if hasattr(theirs, "initialize_parameters"):
        theirs(*tensors)
    state = bridge.state_dict(model)
    report = theirs.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in state.items()})
    assert str(report) == "<All keys matched successfully>"
    assert list(state) == list(theirs.state_dict())
    assert repr(model) == repr(theirs.train())
    back, _ = bridge.load_state_dict(
        model, {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    )
    close(back, model, rtol=0, atol=0)
    evaluated = bridge.eval(model)
    output, after = ps.call(evaluated, *inputs, rng=KEY)
    close(after, evaluated, rtol=0, atol=0)  # Nothing of the zoo changes in evaluation.
    if not entry.always_draws:
        with torch.no_grad():
            assert_close(output, _plain(theirs.eval()(*tensors)))


@every_layer
def test_modes_and_draws(entry):
    model, inputs = built(entry.id)
    assert model.training
    assert not bridge.eval(model).training
    assert bridge.train(bridge.eval(model))._definition is model._definition
    if entry.draws:
        with pytest.raises(ps.MissingRngError):
            ps.call(model, *inputs)
        first, other = (ps.call(model, *inputs, rng=seed)[0] for seed in (1, 2))
        assert any(not np.array_equal(a, b) for a, b in zip(floats(first), floats(other), strict=True))
    if not entry.always_draws:
        ps.call(bridge.eval(model), *inputs)
