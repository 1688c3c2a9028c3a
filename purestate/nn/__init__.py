"""PyTorch's layers: ``from purestate import nn`` is enough to write a model."""

from purestate._module import Module as Module
from purestate._parameter import Buffer as Buffer, Parameter as Parameter
