"""``purestate demo``: a checkpoint of PyTorch goes on training in JAX, and back, without PyTorch."""

from bridge.demo._run import run as run
