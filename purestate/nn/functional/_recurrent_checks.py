"""What the recurrent functions and cells refuse, in torch's words where torch has any."""

from collections.abc import Sequence

import jax

from purestate.nn.functional._dtypes import scalar_type
from purestate.nn.functional._gates import Arrays, Gates
from purestate.nn.functional._options import listed
from purestate.nn.functional._packed import BatchSizes
from purestate.nn.functional._recurrence import Weights


def check_axes(
    gates: Gates, input: jax.Array, hx: Arrays | None, batch_sizes: BatchSizes | None
) -> None:
    """The number of axes of input and state."""
    if batch_sizes is not None:
        if input.ndim != 2:
            raise RuntimeError(f"input must have 2 dimensions, got {input.ndim}")
        if input.shape[0] != sum(batch_sizes):
            raise RuntimeError(
                f"Expected {sum(batch_sizes)} packed rows, the sum of batch_sizes, got {input.shape[0]}"
            )
        return
    if input.ndim not in (2, 3):
        tensor = " tensor" if gates.name == "RNN" else ""
        raise ValueError(
            f"{gates.name}: Expected input to be 2D or 3D, got {input.ndim}D{tensor} instead"
        )
    if hx is None or all(state.ndim == input.ndim for state in hx):
        return
    given, wanted = ("batched 3-D", 3) if input.ndim == 3 else ("unbatched 2-D", 2)
    if len(hx) == 1:
        raise RuntimeError(
            f"For {given} input, hx should also be {wanted}-D but got {hx[0].ndim}-D tensor"
        )
    raise RuntimeError(
        f"For {given} input, hx and cx should also be {wanted}-D but got "
        f"({hx[0].ndim}-D, {hx[1].ndim}-D) tensors"
    )


def check_weights(
    function: str, gates: Gates, input: jax.Array, grouped: Sequence[Weights], directions: int
) -> None:
    """Every weight against the sizes that the first two imply; the input is ``(L, N, in)``."""
    first = grouped[0]
    if first.w_ih.ndim == 2 and input.shape[2] != first.w_ih.shape[1]:
        raise RuntimeError(
            "input.size(-1) must be equal to input_size. "
            f"Expected {first.w_ih.shape[1]}, got {input.shape[2]}"
        )
    rows = first.w_hh.shape[0]
    hidden = rows // gates.blocks
    width = hidden if first.w_hr is None else first.w_hr.shape[0]
    place = 0
    for row, weights in enumerate(grouped):
        size = input.shape[2] if row < directions else directions * width
        shapes = ((rows, size), (rows, width), (rows,), (rows,), (width, hidden))
        for weight, shape in zip(weights, shapes, strict=True):
            if weight is None:
                continue
            if weight.shape != shape:
                raise RuntimeError(
                    f"{function}: expected weights[{place}] of size {listed(shape)}, "
                    f"got {listed(weight.shape)}"
                )
            check_dtypes(input, weight)
            place += 1


def check_state(input: jax.Array, hx: Arrays, sizes: Sequence[tuple[int, ...]]) -> None:
    """Sizes and dtypes of the state to start from."""
    for place, (state, size) in enumerate(zip(hx, sizes, strict=True)):
        if state.shape != size:
            which = "hidden" if len(hx) == 1 else f"hidden[{place}]"
            raise RuntimeError(f"Expected {which} size {size}, got {list(state.shape)}")
    for state in hx:
        if len(hx) == 1:
            check_dtypes(state, input)
        elif state.dtype != input.dtype:
            raise RuntimeError(
                "Input and hidden tensors are not the same dtype, found input tensor with "
                f"{scalar_type(input.dtype)} and hidden tensor with {scalar_type(state.dtype)}"
            )


def check_dtypes(first: jax.Array, second: jax.Array) -> None:
    """Two factors of a product."""
    if first.dtype != second.dtype:
        raise RuntimeError(
            "mat1 and mat2 must have the same dtype, but got "
            f"{scalar_type(first.dtype)} and {scalar_type(second.dtype)}"
        )


def check_cell(name: str, gates: Gates, input: jax.Array, hx: Arrays | None, w: Weights) -> None:
    """Axes and sizes of one step; the dtypes are checked where the products are."""
    if input.ndim not in (1, 2):
        raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
    if hx is not None and len(hx) != gates.states:
        raise RuntimeError("lstm_cell expects two hidden states")
    for place, state in enumerate(hx or ()):
        which = "hidden" if gates.states == 1 else f"hx[{place}]"
        if state.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {state.ndim}D instead")
    if input.shape[-1] != w.w_ih.shape[1]:
        raise RuntimeError(
            f"input has inconsistent input_size: got {input.shape[-1]} expected {w.w_ih.shape[1]}"
        )
    batch, hidden = input.shape[0] if input.ndim == 2 else 1, w.w_hh.shape[1]
    for place, state in enumerate(hx or ()):
        shape = state.shape if input.ndim == 2 else (1, *state.shape)
        if shape[0] != batch:
            raise RuntimeError(
                f"Input batch size {batch} doesn't match hidden{place} batch size {shape[0]}"
            )
        if len(shape) == 1:
            raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got 1)")
        if shape[1] != hidden:
            raise RuntimeError(
                f"hidden{place} has inconsistent hidden_size: got {shape[1]}, expected {hidden}"
            )
