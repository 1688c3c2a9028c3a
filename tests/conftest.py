"""Settings that must stand before JAX starts, and what keeps a long run within memory."""

import os

import pytest


# Two virtual devices: sharded tests run everywhere.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

# Each of thousands of tests compiles programs of its own, and JAX keeps them all.
TESTS_BETWEEN_CLEARING = 500

_run = 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Let go of compiled programs now and then."""
    global _run
    _run += 1
    if _run % TESTS_BETWEEN_CLEARING == 0:
        import jax

        jax.clear_caches()
