"""A package offers what its files offer: no name is forgotten, none is there twice."""

import importlib
import pkgutil

import pytest

from purestate import nn


OF_THE_PACKAGE = {
    "nn": {
        "Buffer",
        "Module",
        "Parameter",
        "UninitializedBuffer",
        "UninitializedParameter",
        "functional",
        "init",
        "utils",
    },
    "functional": set(),
    "utils": {"rnn"},
}


@pytest.mark.parametrize("name", OF_THE_PACKAGE)
def test_a_package_is_the_sum_of_its_files(name):
    package = nn if name == "nn" else getattr(nn, name)
    offered = []
    for found in pkgutil.iter_modules(package.__path__):
        if not found.ispkg and found.name not in OF_THE_PACKAGE[name]:
            file = importlib.import_module(f"{package.__name__}.{found.name}")
            offered += getattr(file, "__all__", [])
            for each in getattr(file, "__all__", []):
                assert getattr(package, each) is getattr(file, each)
    assert sorted(package.__all__) == sorted([*offered, *OF_THE_PACKAGE[name]])
