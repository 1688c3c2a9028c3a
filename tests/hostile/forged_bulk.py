"""Small files that would grow: each may be read or refused, but in bounded memory and time.

A broadcast says 2**40 numbers over one; a text that is named again costs two bytes and, where it is
converted, a copy each time; an empty list costs one byte in a pickle and three in JSON, and sixty in
memory.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import replace

from tests.hostile.assembler import Raw, archive, call, glob, legacy, op, program, storage
from tests.hostile.forgery import Forgery, one_file


_KIND = "bulk"
_LARGE = 1 << 19


def forgeries() -> Iterator[Forgery]:
    """Every file that would grow."""
    for name, body in _broadcasts().items():
        yield _zip(f"2**40 {name}", body)
        yield _zip(f"2**40 {name}, big-endian", body, byteorder=b"big")
    yield from _copies()
    yield from _views()
    yield from _objects()


def _zip(name: str, body: bytes, protocol: int = 2, **records: bytes) -> Forgery:
    return one_file(_KIND, name, archive(program(body, protocol), records), inert=True)


def _untyped(numel: int = 16) -> Raw:
    return Raw(op(("storage", glob("torch.storage.UntypedStorage"), "0", "cpu", numel)) + b"Q")


def _v3(
    dtype: str, size: tuple, stride: tuple, *, offset: int = 0, numel: int = 16, **marks: bool
) -> Raw:
    extra = (Raw(op(marks)),) if marks else ()
    parts = (_untyped(numel), offset, size, stride, False, None, glob(f"torch.{dtype}"), *extra)
    return call("torch._utils._rebuild_tensor_v3", *parts)


def _v2(kind: str, numel: int, size: tuple, stride: tuple, **marks: bool) -> Raw:
    extra = (Raw(op(marks)),) if marks else ()
    parts = (storage(kind=f"torch.{kind}", numel=numel), 0, size, stride, False, None, *extra)
    return call("torch._utils._rebuild_tensor_v2", *parts)


def _broadcasts() -> dict[str, bytes]:
    wide, still = (1 << 40,), (0,)
    indices = _v2("LongStorage", 2, (1, 1 << 40), (0, 0))
    layout = call("torch.serialization._get_layout", "torch.sparse_coo")
    sparse = (layout, (indices, _v2("LongStorage", 2, wide, still), (2,), True))
    scheme = (glob("torch.per_tensor_affine"), 0.1, 0)
    integers = storage(kind="torch.QInt8Storage", numel=16)
    ones = _v2("FloatStorage", 4, wide, still)
    return {
        "floats": ones,
        "bytes": _v2("ByteStorage", 16, wide, still),
        "truths": _v2("BoolStorage", 16, wide, still),
        "conjugates": _v2("ComplexFloatStorage", 2, wide, still, conj=True),
        "negatives": _v2("FloatStorage", 4, wide, still, neg=True),
        "in five dimensions": _v2("FloatStorage", 4, (1 << 8,) * 5, (0,) * 5),
        "overlapping": _v2("ByteStorage", 16, (2,) * 14 + (1,) * 10, (1,) * 24),
        "float4": _v3("float4_e2m1fn_x2", wide, still),
        "float4 in rows": _v3("float4_e2m1fn_x2", (1 << 38, 4), (0, 1)),
        "float8": _v3("float8_e4m3fn", wide, still),
        "complex32 conjugates": _v3("complex32", wide, still, conj=True),
        "quantized": call(
            "torch._utils._rebuild_qtensor", integers, 0, wide, still, scheme, False, None
        ),
        "sparse": call("torch._utils._rebuild_sparse_tensor", *sparse),
        "parameters": call("torch._utils._rebuild_parameter", ones, True, None),
        "meta": call(
            "torch._utils._rebuild_meta_tensor_no_storage", glob("torch.float32"), wide, (1,), False
        ),
        "in a module": glob("m.Net")
        + b")\x81"
        + op({"_parameters": Raw(b"}" + op("w") + ones + b"s"), "_buffers": {}, "_modules": {}})
        + b"b",
    }


def _again(first: bytes, make: bytes, times: int) -> bytes:
    """``first`` once into memo slot 1, then ``make`` applied to it many times, all in a list."""
    return first + b"q\x010" + b"](" + make * times + b"e"


def _copies() -> Iterator[Forgery]:
    """One large value, converted hundreds of times: a few bytes for each copy."""
    text = op("a" * _LARGE)
    numbers = b"](" + b"K\x01" * 60_000 + b"e"
    table = b"}(" + b"".join(op(n) + b"N" for n in range(5_000)) + b"u"
    pairs = b"](" + b"".join(op((n, None)) for n in range(5_000)) + b"e"
    data = text + b"\x85"

    def calls(path: str, argument: bytes = b"h\x01") -> bytes:
        return glob(path) + argument + b"\x85R"

    ways = {
        "bytes from text": (text, calls("_codecs.encode")),
        "bytearrays from text": (
            text,
            glob("builtins.bytearray") + b"h\x01" + op("latin-1") + b"\x86R",
        ),
        "bytearrays from bytes": (glob("_codecs.encode") + data + b"R", calls("builtins.bytearray")),
        "sets": (
            numbers.replace(b"K\x01" * 1000, b"".join(map(op, range(1000)))),
            calls("builtins.set"),
        ),
        "frozensets": (pairs, calls("builtins.frozenset")),
        "counters": (table, calls("collections.Counter")),
        "ordered dictionaries": (pairs, calls("collections.OrderedDict")),
        "deques": (numbers, calls("collections.deque")),
        "sizes": (numbers, calls("torch.Size")),
        "paths": (text, calls("pathlib.PosixPath")),
        "numpy scalars": (
            call("numpy.dtype", f"S{_LARGE - 100_000}", False, True)
            + b"q\x020"
            + glob("_codecs.encode")
            + op("a" * (_LARGE - 100_000))
            + b"\x85R",
            glob("numpy._core.multiarray.scalar") + b"h\x02h\x01\x86R",
        ),
        "script lists": (numbers, calls("torch.jit._pickle.build_intlist")),
    }
    for name, (first, make) in ways.items():
        yield _zip(f"300 {name}", _again(first, make, 300))


def _views() -> Iterator[Forgery]:
    """One large storage, and views that a reader resolves into memory of their own."""
    data = bytes(range(1, 256)) * 1024
    size = len(data)

    def zipped(name: str, parts: list[bytes]) -> Forgery:
        body = b"](" + b"".join(parts) + b"e"
        records = {"data/0": data}
        return one_file(_KIND, name, archive(program(body), records), inert=True)

    def many(dtype: str, width: int, count: int, **marks: bool) -> list[bytes]:
        held = size // width
        return [_v3(dtype, (held - n,), (1,), offset=n, numel=size, **marks) for n in range(count)]

    yield zipped("300 views in float4", many("float4_e2m1fn_x2", 1, 300))
    yield zipped("300 views of truths", many("bool", 1, 300))
    yield zipped("300 conjugate views", many("complex64", 8, 300, conj=True))
    yield zipped("300 negative views", many("float32", 4, 300, neg=True))
    dtypes = {"complex32": 4, "complex64": 8, "complex128": 16}
    every = [
        part
        for dtype, width in dtypes.items()
        for marks in ({"conj": True}, {"neg": True}, {"conj": True, "neg": True})
        for part in many(dtype, width, 40, **marks)
    ]
    yield zipped("360 views with every mark", every)
    body = b"](" + b"".join(many("float16", 2, 300)) + b"e"
    records = {"data/0": data, "byteorder": b"big"}
    yield one_file(_KIND, "300 views, big-endian", archive(program(body), records), inert=True)
    windows = b"".join(
        call(
            "torch._utils._rebuild_tensor_v2",
            Raw(
                op(("storage", glob("torch.BoolStorage"), "0", "cpu", size, (f"w{n}", n, size - n)))
                + b"Q"
            ),
            *(0, (size - n,), (1,), False, None),
        )
        for n in range(300)
    )
    tail = struct.pack("<q", size) + data
    file = legacy(program(b"](" + windows + b"e"), keys=program(op(["0"])), tail=tail)
    yield one_file(_KIND, "300 windows of truths in a legacy file", file, inert=True)


def _objects() -> Iterator[Forgery]:
    """Opcodes of one byte, and brackets of JSON, that make objects of sixty."""
    million = 1_000_000
    yield replace(_zip("1 million lists", b"(" + b"]" * million + b"t"), objects=million)
    yield replace(_zip("1 million dictionaries", b"(" + b"}" * million + b"t"), objects=million)
    yield replace(_zip("400,000 sets", b"(" + b"\x8f" * 400_000 + b"t", 4), objects=400_000)
    yield _zip("2 million Nones", b"(" + b"N" * (2 * million) + b"t")
    yield replace(
        _zip("300,000 placeholders", glob("a.B") + b"q\x010](" + b"h\x01)R" * 300_000 + b"e"),
        objects=300_000,
    )
    yield _zip(
        "300,000 memo slots",
        b"](" + b"".join(b"Nr" + struct.pack("<I", n) for n in range(300_000)) + b"e",
    )
    brackets = b"[" + b"[]," * million + b"[]]"
    header = b'{"w":{"dtype":"F32","shape":' + brackets + b',"data_offsets":[0,0]}}'
    data = struct.pack("<Q", len(header)) + header
    yield Forgery(_KIND, "1 million lists in a header", {"m.safetensors": data}, "m.safetensors", True)
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    names = json.dumps({f"{n:x}": entry for n in range(20_000)}).encode()
    data = struct.pack("<Q", len(names)) + names
    yield Forgery(_KIND, "20,000 empty tensors", {"m.safetensors": data}, "m.safetensors", True)
    files = {"model.safetensors.index.json": b'{"weight_map": ' + brackets + b"}"}
    yield Forgery(_KIND, "1 million lists in an index", files, "", True)
    config = {"data/weights/model_weights_config.json": b'{"config": ' + brackets + b"}"}
    config |= {"archive_format": b"pt2", "models/model.json": b"{}"}
    yield one_file(_KIND, "1 million lists in a .pt2", archive(program(b"N"), config), inert=True)
