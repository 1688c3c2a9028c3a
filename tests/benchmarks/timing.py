"""Timing several variants against each other on a machine that is shared and noisy.

Every variant is run in every round, in a shuffled order, and only ratios inside one round are used:
a round's neighbours see the same clock, the same cache and the same other tenants. The figure for a
variant is the median over rounds of its time divided by the reference's time in the same round.
Process CPU time is taken where the work is single-threaded dispatch.
"""

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Figure(NamedTuple):
    """One variant's result.

    Attributes:
        seconds: The median time of one call.
        ratio: The median of paired ratios to the reference.
        low: The lower quartile of those ratios.
        high: The upper quartile.
    """

    seconds: float
    ratio: float
    low: float
    high: float


def interleaved(
    variants: Mapping[str, Callable[[], object]],
    reference: str,
    *,
    rounds: int = 41,
    seconds: float = 0.01,
    clock: Callable[[], float] = time.process_time,
    seed: int = 0,
) -> dict[str, Figure]:
    """Time every variant in every round, in shuffled order.

    Args:
        variants: Name to a call without arguments.
        reference: The variant the others are divided by.
        rounds: How many times each is timed.
        seconds: How long one timing lasts, by repeating the call.
        clock: ``time.process_time`` for CPU seconds, ``time.perf_counter`` for wall time.
        seed: Of the shuffling.
    """
    order = list(variants)
    shuffler = random.Random(seed)
    repeats = {name: _repeats(call, seconds, clock) for name, call in variants.items()}
    samples: dict[str, list[float]] = {name: [] for name in order}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            shuffler.shuffle(order)
            for name in order:
                samples[name].append(_time(variants[name], repeats[name], clock))
    finally:
        gc.enable()
    return {name: _figure(samples[name], samples[reference]) for name in variants}


def _repeats(call: Callable[[], object], seconds: float, clock: Callable[[], float]) -> int:
    for _ in range(3):
        call()  # Compile and warm up.
    count = 1
    while (elapsed := _time(call, count, clock) * count) < seconds / 4:
        count *= 4
    return max(1, round(count * seconds / elapsed))


def _time(call: Callable[[], object], count: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def _figure(samples: list[float], reference: list[float]) -> Figure:
    ratios = [a / b for a, b in zip(samples, reference, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Figure(statistics.median(samples), middle, low, high)
