"""Settings that must stand before JAX starts."""

import os


# Two virtual devices: sharded tests run everywhere.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
