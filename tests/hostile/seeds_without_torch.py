"""A good and a bad file of each format, written without torch, to warm a reader up."""

import pickle
import struct

from tests.hostile.assembler import archive, legacy, op, program, tensor, zip_of
from tests.hostile.mutations import write_tar


def good_files() -> dict[str, bytes]:
    """Name to bytes; some are refused, so that error paths are warm too."""
    pickled = program(op({"a": 1}) + op("w") + tensor() + b"s")
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    members = [
        ("sys_info", pickle.dumps({"protocol_version": 1000, "little_endian": True}, 2)),
        ("pickle", pickle.dumps({"n": 3}, 2)),
        ("tensors", pickle.dumps(0, 2)),
        ("storages", pickle.dumps(0, 2) + pickle.dumps([], 2)),
    ]
    script = {"constants.pkl": program(b")"), "code/__torch__.py": b"class Net(Module):\n"}
    return {
        "zip.pt": archive(pickled),
        "deflated.pt": archive(pickled, method=8),
        "legacy.pt": legacy(program(op({"a": 1.5}))),
        "s.safetensors": struct.pack("<Q", len(header)) + header + bytes(8),
        "tar.pt": write_tar(members),
        "script.pt": archive(program(b"}"), script),
        "p.pt2": zip_of([("m/archive_format", b"pt2"), ("m/.data/version", b"3")]),
        "bad.pt": archive(program(b"R")),
        "code.pt": archive(program(b"cos\nsystem\n)R")),
        "empty.pt": b"",
        "text.pt": b"some words that are no checkpoint",
    }
