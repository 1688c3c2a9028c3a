"""Plain Python values that pickles make by calling something.

Dictionaries with an order, sets, byte strings, complex numbers and the like come out of a pickle as
calls. The functions here take the place of what is called, check what it is called with, and give
plain values. Paths become pure paths, which touch no disk.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from bridge._state_dict_type import StateDict
from bridge.checkpoint._keys import check_key
from bridge.checkpoint._tensors import naturals
from bridge.checkpoint.errors import BadFormat, Unsafe, brief


def ordered_dict(pairs: object = ()) -> StateDict:
    """Stand in for ``collections.OrderedDict``."""
    # Every tensor of a file comes with an empty one, for its hooks.
    result = StateDict.__new__(StateDict)
    if not pairs:
        return result
    if not isinstance(pairs, tuple | list):
        raise BadFormat("an OrderedDict is made from a list of pairs")
    for pair in pairs:
        if type(pair) not in (tuple, list) or len(pair) != 2:
            raise BadFormat("an OrderedDict is made from a list of pairs")
        check_key(pair[0])
        result[pair[0]] = pair[1]
    return result


def default_dict(factory: object = None) -> dict[Any, Any]:
    """Stand in for ``collections.defaultdict``; what would make missing values is left out."""
    del factory
    return {}


def counter(counts: object = None) -> Counter[Any]:
    """Stand in for ``collections.Counter``."""
    if counts is not None and not isinstance(counts, dict):
        raise BadFormat("a Counter is made from a dictionary")
    return Counter(counts or {})


def deque(items: object = (), length: object = None) -> list[Any]:
    """Stand in for ``collections.deque``, as a list."""
    del length
    return list(_sequence(items, "a deque"))


def set_of(items: object = ()) -> set[Any]:
    """Stand in for ``set``."""
    for item in _sequence(items, "a set"):
        check_key(item)
    return set(_sequence(items, "a set"))


def frozenset_of(items: object = ()) -> frozenset[Any]:
    """Stand in for ``frozenset``."""
    return frozenset(set_of(items))


def _sequence(items: object, what: str) -> tuple[Any, ...] | list[Any]:
    if not isinstance(items, tuple | list):
        raise BadFormat(f"{what} is made from a list")
    return items


def encode(text: object, encoding: object = "latin1") -> bytes:
    """Stand in for ``_codecs.encode``, with which Python 3 writes bytes to protocol 2.

    Other codecs than latin-1 are never needed, and some take quadratic time.
    """
    if type(encoding) is not str or encoding not in ("latin1", "latin-1"):
        raise Unsafe(f"the pickle uses the text encoding {brief(encoding)}")
    if not isinstance(text, str):
        raise BadFormat(f"bytes are encoded from text, not from a {type(text).__name__}")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise BadFormat("bytes are encoded from text beyond latin-1") from error


def bytearray_of(data: object = b"", encoding: object = "latin1") -> bytearray:
    """Stand in for ``bytearray``; of a number, it would set that much memory aside."""
    return bytearray(data if isinstance(data, bytes) else encode(data, encoding))


def no_bytes() -> bytes:
    """Stand in for ``bytes`` without arguments."""
    return b""


def complex_of(real: object, imag: object) -> complex:
    """Stand in for ``complex``."""
    if not isinstance(real, float) or not isinstance(imag, float):
        raise BadFormat("a complex number is made from two floats")
    return complex(real, imag)


def slice_of(start: object, stop: object, step: object) -> slice:
    """Stand in for ``slice``."""
    for part in (start, stop, step):
        if type(part) not in (int, type(None)):
            raise BadFormat(f"a slice is made from numbers, not {brief(part)}")
    return slice(start, stop, step)


def range_of(start: object, stop: object, step: object) -> range:
    """Stand in for ``range``."""
    numbers = [part for part in (start, stop, step) if type(part) is int]
    if len(numbers) != 3 or not step:
        raise BadFormat("a range is made from three numbers, the last not zero")
    return range(*numbers)


def posix_path(*parts: object) -> PurePosixPath:
    """Stand in for ``pathlib.PosixPath``."""
    return PurePosixPath(*_texts(parts))


def windows_path(*parts: object) -> PureWindowsPath:
    """Stand in for ``pathlib.WindowsPath``."""
    return PureWindowsPath(*_texts(parts))


def _texts(parts: tuple[object, ...]) -> list[str]:
    if any(type(part) is not str for part in parts):
        raise BadFormat("a path is made from text")
    return [str(part) for part in parts]


def size(items: object = ()) -> tuple[int, ...]:
    """Stand in for ``torch.Size``."""
    return naturals(items, "a torch.Size")


def device(kind: object, index: object = None) -> str:
    """Stand in for ``torch.device``, as text."""
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise BadFormat("a torch.device is made from its type and number")
    return str(kind) if index is None else f"{kind}:{index}"


def layout(name: object) -> str:
    """Stand in for ``torch.serialization._get_layout``, as text."""
    if type(name) is not str or not name.startswith("torch."):
        raise BadFormat(f"a layout is named by text, not {brief(name)}")
    return name


def script_list(items: object) -> list[Any]:
    """Stand in for ``torch.jit._pickle.build_intlist`` and its kin."""
    return list(_sequence(items, "a list of TorchScript"))


def script_value(value: object, type_name: object) -> object:
    """Stand in for ``torch.jit._pickle.restore_type_tag``."""
    del type_name
    return value
