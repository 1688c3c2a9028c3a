"""Adam's state between PyTorch's file and optax.

PyTorch numbers the parameters in the order of ``model.parameters()``; optax keeps one mapping by
name. ``step`` is ``count``, ``exp_avg`` is ``mu``, ``exp_avg_sq`` is ``nu``.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from bridge.demo._errors import Mismatch
from purestate import NamedArrays


def from_torch(
    saved: dict[str, Any], params: NamedArrays
) -> tuple[optax.GradientTransformation, optax.OptState]:
    """The optimizer that a ``torch.optim.Adam`` was when its ``state_dict`` was saved.

    Args:
        saved: The ``state_dict`` of the optimizer.
        params: The parameters it moves, in the model's order.

    Returns:
        ``(optimizer, state)``, ready for the next update.

    Raises:
        Mismatch: When the file has options that plain Adam does not, or another set of parameters.
    """
    if len(saved["param_groups"]) != 1:
        raise Mismatch(f"expected one parameter group, the file has {len(saved['param_groups'])}")
    group, state = saved["param_groups"][0], saved["state"]
    for option in ("weight_decay", "amsgrad", "maximize"):
        if group.get(option):
            raise Mismatch(
                f"the optimizer of the file has {option}={group[option]}, expected plain Adam"
            )
    if len(group["params"]) != len(params) or set(state) != set(group["params"]):
        raise Mismatch(f"the optimizer of the file moves other parameters than {', '.join(params)}")
    steps = {float(entry["step"]) for entry in state.values()}
    if len(steps) != 1:
        raise Mismatch(f"the parameters of the file are at different steps: {sorted(steps)}")
    for number, (name, param) in zip(group["params"], params.items(), strict=True):
        if state[number]["exp_avg"].shape != param.shape:
            raise Mismatch(f"the optimizer's average for {name} has another shape than the parameter")

    def averages(key: str) -> NamedArrays:
        values = (jnp.array(state[number][key]) for number in group["params"])
        return NamedArrays(zip(params, values, strict=True))

    b1, b2 = group["betas"]
    optimizer = optax.adam(group["lr"], b1=b1, b2=b2, eps=group["eps"])
    fresh: Any = optimizer.init(params)
    adam, *others = fresh
    count = jnp.array(int(steps.pop()), adam.count.dtype)
    adam = adam._replace(count=count, mu=averages("exp_avg"), nu=averages("exp_avg_sq"))
    return optimizer, (adam, *others)


def to_torch(state: Any, saved: dict[str, Any]) -> dict[str, Any]:
    """The ``state_dict`` that ``torch.optim.Adam`` loads, from optax's state.

    Args:
        state: The state of the optimizer that :func:`from_torch` returned, some updates later.
        saved: The ``state_dict`` it came from; its options stay.
    """
    adam = state[0]
    step = np.asarray(adam.count, np.float32)
    numbers = saved["param_groups"][0]["params"]
    return {
        "state": {
            # A counter each, as torch has it: one that is shared would be one storage in the file.
            number: {"step": step.copy(), "exp_avg": mu, "exp_avg_sq": nu}
            for number, mu, nu in zip(numbers, adam.mu.values(), adam.nu.values(), strict=True)
        },
        "param_groups": saved["param_groups"],
    }
