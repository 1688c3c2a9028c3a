"""purestate: the model as a value.

A model is an immutable pytree: a flat tuple of arrays and one interned definition. Parameters and
buffers are explicit arguments and return values. What PyTorch's ``nn.Module`` does by mutation is
done by the pure functions of ``bridge``.
"""

from purestate import nn as nn
from purestate._abstract import (
    AbstractArray as AbstractArray,
    UninitializedArray as UninitializedArray,
    empty as empty,
)
from purestate._call import apply as apply, call as call, capture as capture
from purestate._definition import Definition as Definition
from purestate._edit import map_modules as map_modules
from purestate._errors import (
    BuildError as BuildError,
    FrozenModelError as FrozenModelError,
    LeakedWriteError as LeakedWriteError,
    MissingRngError as MissingRngError,
    SelectorError as SelectorError,
    StatefulCallError as StatefulCallError,
    UninitializedError as UninitializedError,
)
from purestate._init import init as init
from purestate._module import Module as Module
from purestate._named import NamedArrays as NamedArrays
from purestate._parameter import Buffer as Buffer, Parameter as Parameter
from purestate._scan import scan as scan
from purestate._split import (
    abstract as abstract,
    merge as merge,
    replace as replace,
    split as split,
)
