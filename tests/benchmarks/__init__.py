"""Measurements, printed as ratios from one interleaved run: ``python -m tests.benchmarks NAME``."""
