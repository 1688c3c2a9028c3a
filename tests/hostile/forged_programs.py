"""Hostile pickles: names that run code, bombs, and tensors that point out of their storage."""

import pickle
import struct
from collections.abc import Iterator

from tests.hostile.assembler import Raw, archive, call, glob, legacy, op, program, storage, tensor
from tests.hostile.forgery import Forgery, one_file


def forgeries() -> Iterator[Forgery]:
    """Every hostile pickle."""
    yield from _routes()
    yield from _names()
    yield from _unknown_classes()
    yield from _places()
    yield from _bombs()
    yield from _machine()
    yield from _tensors()


def _zip(kind: str, name: str, body: bytes, protocol: int = 2, *, inert: bool = False) -> Forgery:
    return one_file(kind, name, archive(program(body, protocol)), inert=inert)


_COMMAND = "touch canary"


def _short(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def _routes() -> Iterator[Forgery]:
    """One name that runs code, by every opcode that could reach it."""
    args = op((_COMMAND,))
    stacked = _short("os") + _short("system") + b"\x93"
    routes: dict[str, tuple[bytes, int]] = {
        "REDUCE": (glob("os.system") + args + b"R", 2),
        "NEWOBJ": (glob("os.system") + args + b"\x81", 2),
        "NEWOBJ_EX": (glob("os.system") + args + b"}\x92", 4),
        "INST": (b"(" + op(_COMMAND) + b"ios\nsystem\n", 2),
        "OBJ": (b"(" + glob("os.system") + op(_COMMAND) + b"o", 2),
        "STACK_GLOBAL REDUCE": (stacked + args + b"R", 4),
        "STACK_GLOBAL NEWOBJ": (stacked + args + b"\x81", 4),
        "STACK_GLOBAL of BINUNICODE": (op("os") + op("system") + b"\x93" + args + b"R", 4),
        "STACK_GLOBAL of memo": (op("os") + b"q\x000h\x00" + op("system") + b"\x93" + args + b"R", 4),
        "STACK_GLOBAL dotted": (_short("os") + _short("path.os.system") + b"\x93" + args + b"R", 4),
        "GLOBAL alone": (glob("os.system"), 2),
        "BUILD": (glob("os.system") + op({"a": 1}) + b"b", 2),
        "BUILD slots": (glob("os.system") + op((None, {"a": 1})) + b"b", 2),
        "EXT1": (b"\x82\x01" + args + b"R", 2),
        "EXT2": (b"\x83\x01\x01" + args + b"R", 2),
        "EXT4": (b"\x84\x01\x00\x00\x01" + args + b"R", 2),
        "PERSID": (b"Pos.system\n" + args + b"R", 2),
        "BINPERSID of a name": (glob("os.system") + b"Q", 2),
        "storage class": (storage(kind="os.system"), 2),
        "memo then REDUCE": (glob("os.system") + b"q\x00" + b"0h\x00" + args + b"R", 2),
        "DUP then REDUCE": (glob("os.system") + b"2" + args + b"R" + b"\x86", 2),
        "APPEND to a call": (glob("os.system") + args + b"R" + op(1) + b"a", 2),
        "APPENDS to a call": (glob("os.system") + args + b"R(" + op(1) + b"e", 2),
        "SETITEM on a call": (glob("os.system") + args + b"R" + op(1) + op(2) + b"s", 2),
        "as key": (b"}" + call("os.system", _COMMAND) + b"Ns", 2),
        "as value": (b"}" + op("a") + call("os.system", _COMMAND) + b"s", 2),
        "hidden by POP": (call("os.system", _COMMAND) + b"0N", 2),
        "hidden by POP_MARK": (b"(" + call("os.system", _COMMAND) + b"1N", 2),
        "through a tensor subclass": (
            call("torch._tensor._rebuild_from_type_v2", glob("os.system"), None, (_COMMAND,), None),
            2,
        ),
        "through a parameter": (
            call("torch._utils._rebuild_parameter", call("os.system", _COMMAND), True, None),
            2,
        ),
        "through an OrderedDict": (
            glob("collections.OrderedDict") + call("os.system", _COMMAND) + b"\x85R",
            2,
        ),
        "through hooks": (
            call(
                "torch._utils._rebuild_tensor_v2",
                *(storage(), 0, (4,), (1,), False, call("os.system", _COMMAND)),
            ),
            2,
        ),
        "in the state of a module": (
            glob("model.Net") + b")\x81}" + op("_forward_hooks") + call("os.system", "x") + b"sb",
            2,
        ),
        "protocol 0": (b"cos\nsystem\n(S'touch canary'\ntR", 2),
        "in a frame": (b"\x95" + struct.pack("<Q", 24) + glob("os.system") + args + b"R", 4),
        "read-only buffers": (b"\x96" + struct.pack("<Q", 1) + b"a\x98" + glob("os.system"), 5),
        "out-of-band buffer": (b"\x97" + glob("os.system"), 5),
    }
    for name, (body, protocol) in routes.items():
        yield _zip("code by opcode", name, body, protocol)


#: Names that are only ever in a file to run something: Python's own, and ones in torch and numpy.
HOSTILE_NAMES = [
    *("os.system", "posix.system", "nt.system", "os.popen", "os.execv", "os.spawnv", "os.remove"),
    *("sys.exit", "sys.modules", "subprocess.Popen", "subprocess.run", "subprocess.check_output"),
    *("builtins.eval", "builtins.exec", "builtins.getattr", "builtins.compile", "builtins.open"),
    *("builtins.__import__", "builtins.setattr", "builtins.globals", "builtins.apply", "builtins.map"),
    *("__builtin__.eval", "__builtin__.file", "__builtin__.execfile", "builtins.breakpoint"),
    *("importlib.import_module", "importlib.__import__", "imp.load_source", "runpy.run_path"),
    *("runpy._run_code", "runpy.run_module", "pickle.loads", "_pickle.loads", "marshal.loads"),
    *("ctypes.CDLL", "ctypes.util.find_library", "socket.socket", "socket.create_connection"),
    *("shutil.rmtree", "shutil.copyfile", "operator.attrgetter", "operator.methodcaller"),
    *("operator.itemgetter", "_operator.call", "functools.reduce", "types.CodeType"),
    *("types.FunctionType", "code.InteractiveInterpreter", "codeop.compile_command", "pty.spawn"),
    *("commands.getoutput", "timeit.timeit", "timeit.main", "pdb.run", "bdb.Bdb", "cProfile.run"),
    *(
        "cProfile.runctx",
        "profile.run",
        "profile.Profile.runctx",
        "trace.Trace",
        "doctest.debug_script",
    ),
    *("pydoc.pipepager", "pydoc.tempfilepager", "webbrowser.open", "platform.popen", "venv.create"),
    *("ensurepip._run_pip", "pip.main", "pip._internal.cli.main.main", "pkgutil.resolve_name"),
    *("zipimport.zipimporter", "multiprocessing.Process", "multiprocessing.util.spawnv_passfds"),
    *("asyncio.run", "asyncio.unix_events._UnixSubprocessTransport._start", "logging.config.listen"),
    *("imaplib.IMAP4_stream", "smtplib.SMTP", "urllib.request.urlopen", "http.client.HTTPConnection"),
    *("ssl.get_server_certificate", "ftplib.FTP", "telnetlib.Telnet", "xmlrpc.client.ServerProxy"),
    *("distutils.file_util.write_file", "lib2to3.pgen2.pgen.ParserGenerator.make_label"),
    *("lib2to3.pgen2.grammar.Grammar.loads", "idlelib.pyshell.ModifiedInterpreter.runcode"),
    *("idlelib.run.Executive.runcode", "idlelib.calltip.get_entity", "idlelib.calltip.Calltip"),
    *("idlelib.autocomplete.AutoComplete.get_entity", "idlelib.debugobj.ObjectTreeItem.SetText"),
    *(
        "uuid._get_command_stdout",
        "uuid._popen",
        "_osx_support._read_output",
        "_aix_support._read_cmd_output",
    ),
    *("_io.open", "io.open", "io.FileIO", "tempfile.mktemp", "sqlite3.connect", "shelve.open"),
    *("signal.signal", "threading.Thread", "_thread.start_new_thread", "gc.get_objects"),
    *("inspect.currentframe", "atexit.register", "site.main", "sysconfig.get_config_var"),
    *("test.support.script_helper.assert_python_ok", "torch.load", "torch.hub.load"),
    *("torch.hub.load_state_dict_from_url", "torch.serialization.load", "torch.save"),
    *("torch.storage._load_from_bytes", "torch.jit.load", "torch.package.PackageImporter"),
    *("torch.utils.bottleneck.__main__.run_cprofile", "torch.utils.collect_env.run"),
    *("torch.utils._config_module.ConfigModule.load_config", "torch.utils.cpp_extension.load_inline"),
    *("torch.jit.unsupported_tensor_ops.execWrapper", "torch._inductor.codecache.compile_file"),
    *("torch._dynamo.guards.GuardBuilder.get", "torch.fx.graph_module._forward_from_src"),
    *("torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression",),
    *("torch.utils.data.datapipes.utils.decoder.basichandlers", "torch.multiprocessing.spawn"),
    *("torch.distributed.rpc.rpc_sync", "torch.ops.load_library", "torch.classes.load_library"),
    *("torch.cuda._compile_kernel", "torch._utils_internal.log_export_usage"),
    *("numpy.load", "numpy.fromfile", "numpy.save", "numpy.testing._private.utils.runstring"),
    *(
        "numpy.f2py.crackfortran.myeval",
        "numpy.f2py.crackfortran.getlincoef",
        "numpy.ctypeslib.load_library",
    ),
    *("numpy.lib.npyio.load", "numpy.distutils.exec_command.exec_command"),
]

#: The module of an allowed name, and something else in it: lists by module let these through.
NEIGHBOURS = [
    *("collections.OrderedDict.fromkeys", "collections.namedtuple", "collections.abc.sys"),
    *("collections._sys", "torch._utils.sys", "torch._utils.importlib", "torch.os.system"),
    *("torch.sys.modules", "torch._tensor.warnings", "torch.storage.io.open", "_codecs.lookup"),
    *("_codecs.register", "codecs.open", "torch.serialization.os.system", "torch.nn.parameter.sys"),
    *("builtins.set.__init__.__globals__", "torch.Tensor.numpy", "torch.FloatStorage.from_file"),
    *("torch.UntypedStorage.from_file", "torch.from_file", "torch._utils._import_dotted_name"),
    *("torch._utils._rebuild_tensor_v9", "torch._tensor._rebuild", "torch.nn.parameter.Parameters"),
]


def _names() -> Iterator[Forgery]:
    for path in dict.fromkeys(HOSTILE_NAMES):
        yield _zip("names that run code", path, call(path, _COMMAND))
    for path in NEIGHBOURS:
        yield _zip("neighbours of allowed names", path, call(path, _COMMAND))


def _unknown_classes() -> Iterator[Forgery]:
    """Classes nobody knows: they are data, and stay inert."""
    for path in ("model.Net", "argparse.Namespace", "evil.Evil", "pkg.sub.Class", "__main__.Net"):
        yield _zip("unknown classes", f"{path} called", call(path, "x"), inert=True)
        body = glob(path) + b")\x81" + op({"a": 1}) + b"b"
        yield _zip("unknown classes", f"{path} with state", body, inert=True)
    dunder = op({"__class__": "os.system", "__dict__": {"path": "x"}, "__reduce__": 1})
    yield _zip("unknown classes", "dunder state", glob("a.B") + b")\x81" + dunder + b"b", inert=True)
    slots = op((None, {"path": "os.system", "state": 1, "args": 2, "__class__": 3}))
    yield _zip("unknown classes", "slots state", glob("a.B") + b")\x81" + slots + b"b", inert=True)
    yield _zip("unknown classes", "as a key", b"}" + call("a.B") + b"Ns", inert=True)
    yield _zip("unknown classes", "state of a tensor", tensor() + b"}b", inert=True)
    frame = b"\x95" + struct.pack("<Q", 1 << 63)
    yield _zip("unknown classes", "in a frame of 2**63", frame + call("a.B"), 4, inert=True)
    odd = "a\u202eb.C"
    yield _zip("unknown classes", "direction marks", call(odd), inert=True)


def _places() -> Iterator[Forgery]:
    """The same call in every pickle that a file may hold."""
    evil = program(call("os.system", _COMMAND))
    good = program(op({"a": 1}))
    kind = "code by place"
    yield one_file(kind, "legacy object", legacy(evil))
    yield one_file(kind, "legacy machine facts", legacy(good, info=evil))
    yield one_file(kind, "legacy storage keys", legacy(good, keys=evil))
    yield one_file(kind, "a plain pickle", evil)
    yield one_file(kind, "a plain pickle of protocol 4", program(call("os.system", "x"), 4))
    script = {"constants.pkl": program(b")"), "code/__torch__.py": b""}
    yield one_file(kind, "TorchScript data", archive(evil, script))
    yield one_file(kind, "TorchScript constants", archive(good, script | {"constants.pkl": evil}))
    yield one_file(kind, "deflated", archive(evil, method=8))
    yield one_file(kind, "big-endian", archive(evil, {"byteorder": b"big"}))
    module = op(("module", glob("os.system"), "f.py", "import os")) + b"Q"
    yield one_file(kind, "legacy module id", legacy(program(module)))
    yield Forgery(kind, "DCP metadata", {".metadata": evil, "__0_0.distcp": b""}, "")
    index = b'{"weight_map": {"a": "m.bin"}}'
    files = {"pytorch_model.bin.index.json": index, "m.bin": archive(evil)}
    yield Forgery(kind, "a shard", files, "")


# Deep enough to overflow the C stack of a reader that hashes, compares or frees it by recursion.
_DEEP_TUPLE = b")" + b"\x85" * 300_000


def _bombs() -> Iterator[Forgery]:
    kind = "bombs"
    yield _zip(kind, "bytearray(2e9)", call("builtins.bytearray", 2_000_000_000))
    yield _zip(kind, "bytes(2e9)", call("builtins.bytes", 2_000_000_000))
    yield _zip(kind, "Python 2's bytearray", call("__builtin__.bytearray", 2_000_000_000))
    yield _zip(kind, "punycode", call("_codecs.encode", "a\u0101" * 10_000, "punycode"))
    for codec in ("idna", "zlib", "bz2", "unicode_escape", "utf-7", "rot13", "mbcs"):
        yield _zip(kind, f"codec {codec}", call("_codecs.encode", "a" * 1000, codec))
    yield _zip(kind, "nested tuples", _DEEP_TUPLE)
    yield _zip(kind, "nested tuples as a key", b"}" + _DEEP_TUPLE + b"Ns")
    yield _zip(kind, "nested tuples in a set", glob("builtins.set") + b"]" + _DEEP_TUPLE + b"a\x85R")
    yield _zip(kind, "nested lists", b"]" * 500_000 + b"a" * 499_999)
    yield _zip(kind, "nested dictionaries", (b"}" + op(0)) * 300_000 + b"N" + b"s" * 300_000)
    yield _zip(kind, "nested parameters", b"".join([glob("a.B")] * 2000) + b")R" + b"\x85R" * 1999)
    yield _zip(kind, "marks", b"(" * 2_000_000)
    yield _zip(kind, "range(10**12) in a set", call("builtins.set", call("builtins.range", 10**12)))
    yield _zip(kind, "range(10**12) in a list", call("builtins.list", call("builtins.range", 10**12)))
    yield _zip(kind, "pow", call("builtins.pow", 10, 10**9))
    yield _zip(kind, "str times", call("_operator.mul", "a", 10**10))
    yield _zip(kind, "memo slot 2**31", b"]r" + struct.pack("<I", 1 << 31))
    yield _zip(kind, "memo slot 2**27", b"]r" + struct.pack("<I", 1 << 27))
    yield _zip(kind, "text of 4 GiB", b"X" + struct.pack("<I", 0xFFFFFFFF))
    yield _zip(kind, "text of 2**63", b"\x8d" + struct.pack("<Q", 1 << 63), 4)
    yield _zip(kind, "bytes of 2**62", b"\x8e" + struct.pack("<Q", 1 << 62), 4)
    yield _zip(kind, "bytes of 4 GiB", b"B" + struct.pack("<I", 0xFFFFFFFF), 3)
    yield _zip(kind, "bytearray of 2**40", b"\x96" + struct.pack("<Q", 1 << 40), 5)
    yield _zip(kind, "an integer of 1 GiB", b"\x8b" + struct.pack("<i", 1 << 30))
    yield _zip(kind, "an integer of -1 bytes", b"\x8b" + struct.pack("<i", -1))
    yield _zip(kind, "decimal digits", b"I" + b"9" * 300_000 + b"\n")
    yield _zip(kind, "decimal digits, long", b"L" + b"9" * 300_000 + b"L\n")
    yield _zip(kind, "an integer as key", b"}" + op(1 << 20_000) + b"Ns")
    yield _zip(
        kind,
        "an array of 2**50",
        call("numpy._core.multiarray._reconstruct", glob("numpy.ndarray"), (1 << 50,), b"b"),
    )
    yield _zip(kind, "storage of 2**50", tensor(numel=1 << 50, size=(1 << 50,)))
    yield _zip(kind, "storage of 2**62 doubles", tensor(numel=1 << 62, kind="torch.DoubleStorage"))
    yield one_file(
        kind,
        "legacy storage of 2**40",
        legacy(
            program(tensor(numel=1 << 40)), keys=pickle.dumps(["0"], 2), tail=struct.pack("<q", 1 << 40)
        ),
    )


def _machine() -> Iterator[Forgery]:
    """Programs that a real pickle machine would answer with an exception of its own."""
    kind = "broken programs"
    bodies = {
        "memo miss": b"h\x07",
        "memo miss, long": b"j\x07\0\0\0",
        "underflow by REDUCE": b"R",
        "underflow by BUILD": b"b",
        "underflow by TUPLE3": b"NN\x87",
        "no mark": b"t",
        "no mark for SETITEMS": b"}u",
        "left over": b"NN",
        "open mark": b"(N",
        "list as key": b"}]Ns",
        "dictionary as key": b"}}Ns",
        "tensor as key": b"}" + tensor() + b"Ns",
        "storage as key": b"}" + storage() + b"Ns",
        "class as key": b"}" + glob("torch.Tensor") + b"Ns",
        "itself as key": b"}q\x00h\x00Ns",
        "set of lists": glob("builtins.set") + b"]]a\x85R",
        "append to a dictionary": b"}Na",
        "set on a list": b"]NNs",
        "odd items": b"}(Nu",
        "state of a list": b"]}b",
        "call of an integer": op(1) + b")R",
        "call of a tensor": tensor() + b")R",
        "call of a string": op("os.system") + b")R",
        "arguments that are a list": glob("torch.Size") + b"]R",
        "too many arguments": call("torch.Size", 1, 2, 3),
        "metadata that is a number": glob("collections.OrderedDict")
        + b")R}"
        + op("_metadata")
        + b"K\x01sb",
        "metadata of numbers": glob("collections.OrderedDict")
        + b")R"
        + op({"_metadata": {1: 2}})
        + b"b",
        "unknown opcode": b"\xff",
        "bad text": b"X\x01\0\0\0\xff",
        "endless name": b"c" + b"a" * 100_000,
        "name without end": b"cos\nsystem",
        "tensor as persistent id": tensor() + b"Q",
        "tensor in a persistent id": op((tensor(), 1, 2, 3, 4)) + b"Q",
        "persistent id of one part": op(("storage",)) + b"Q",
        "persistent id of no text": op((1, 2, 3, 4, 5)) + b"Q",
        "a tensor class called": call("torch.Tensor", 1),
        "an old tensor without contents": call("torch.FloatTensor"),
        "a tensor inside its own state": glob("torch.FloatTensor") + b")Rq\x00h\x00b",
        "tuple state of a parameter": glob("torch.nn.parameter.Parameter")
        + b")\x81"
        + op((1,) * 7)
        + b"b",
    }
    for name, body in bodies.items():
        yield _zip(kind, name, body)
    yield one_file(kind, "protocol 9", archive(program(b"N", 9)))
    yield one_file(kind, "protocol 255", archive(program(b"N", 255)))
    yield one_file(kind, "no STOP", archive(b"\x80\x02N"))
    yield one_file(kind, "empty pickle", archive(b""))


def _tensors() -> Iterator[Forgery]:
    kind = "tensors out of bounds"
    untyped = "torch.storage.UntypedStorage"
    old = Raw(op(("storage", glob(untyped), "0", "cpu", 16)) + b"Q")
    bodies: dict[str, bytes] = {
        "size": tensor(size=(5,)),
        "offset": tensor(offset=1),
        "stride": tensor(size=(2, 2), stride=(3, 1)),
        "negative offset": tensor(offset=-1),
        "negative size": tensor(size=(-1,)),
        "negative stride": tensor(stride=(-1,)),
        "offset of 2**63": tensor(offset=1 << 63),
        "stride of 2**62": tensor(size=(2,), stride=(1 << 62,)),
        "product of 2**62": tensor(size=(1 << 31, 1 << 31), stride=(0, 0)),
        "product that wraps to 4": tensor(size=(1 << 62, 4), stride=(0, 1)),
        "float size": tensor(size=(4.0,)),
        "truth as size": tensor(size=(True, 4)),
        "truth as offset": tensor(offset=True, size=(1,)),
        "text as size": tensor(size="4"),
        "size as a number": tensor(size=4),
        "more strides": tensor(stride=(1, 1)),
        "more sizes": tensor(size=(2, 2)),
        "1000 dimensions": tensor(size=(1,) * 1000, stride=(1,) * 1000),
        "storage longer than its record": tensor(numel=5),
        "storage shorter than its record": tensor(numel=3, size=(3,)),
        "storage of -4": tensor(numel=-4),
        "storage of True": tensor(numel=True, size=(1,)),
        "storage of 4.0": tensor(numel=4.0),
        "storage numel wraps": tensor(numel=(1 << 62) + 4),
        "no such storage": tensor(key="7"),
        "key ../version": tensor(key="../version"),
        "key ../../etc/passwd": tensor(key="../../../../../../etc/passwd"),
        "key /etc/passwd": tensor(key="/etc/passwd"),
        "key ./0": tensor(key="./0"),
        "key 0/": tensor(key="0/"),
        "key with NUL": tensor(key="0\0"),
        "key that is a number": tensor(key=7),
        "key that is a list": tensor(key=[]),
        "key in full-width digits": tensor(key="\uff10"),
        "one storage, two dtypes": op((tensor(), tensor(kind="torch.IntStorage"))),
        "one storage, two widths": op(
            (tensor(), tensor(kind="torch.DoubleStorage", numel=2, size=(2,)))
        ),
        "one storage, two lengths": op((tensor(), tensor(numel=3, size=(3,)))),
        "class that is a number": op(("storage", 1, "0", "cpu", 4)) + b"Q",
        "class that is a dtype": storage(kind="torch.float32"),
        "untyped without dtype": call("torch._utils._rebuild_tensor", old, 0, (4,), (1,)),
        "text for a storage": call("torch._utils._rebuild_tensor", "0", 0, (4,), (1,)),
        "dtype that is text": call(
            "torch._utils._rebuild_tensor_v3", old, 0, (4,), (1,), False, None, "float32"
        ),
        "unknown dtype": call(
            "torch._utils._rebuild_tensor_v3", old, 0, (4,), (1,), False, None, glob("torch.float1")
        ),
        "negated truth": call(
            "torch._utils._rebuild_tensor_v2",
            *(storage(kind="torch.BoolStorage", numel=16), 0, (16,), (1,), False, None),
            Raw(op({"neg": True})),
        ),
        "unknown mark": call(
            "torch._utils._rebuild_tensor_v2",
            *(storage(), 0, (4,), (1,), False, None, Raw(op({"magic": True}))),
        ),
        "parameter of a number": call("torch._utils._rebuild_parameter", 1, True, None),
        "subclass of a subclass": call(
            "torch._tensor._rebuild_from_type_v2",
            *(glob("torch._tensor._rebuild_from_type_v2"), None, (), None),
        ),
    }
    for name, body in bodies.items():
        yield _zip(kind, name, body)
    keys = pickle.dumps(["0"], 2)
    numbers = struct.pack("<q4f", 4, 1, 2, 3, 4)
    for name, tail in {
        "legacy count beyond the file": struct.pack("<q4f", 1 << 40, 1, 2, 3, 4),
        "legacy negative count": struct.pack("<q4f", -4, 1, 2, 3, 4),
        "legacy data that ends": numbers[:-1],
    }.items():
        yield one_file(kind, name, legacy(program(tensor()), keys=keys, tail=tail))
    twice = pickle.dumps(["0", "0"], 2)
    yield one_file(kind, "legacy key twice", legacy(program(tensor()), keys=twice, tail=numbers * 2))
    yield one_file(kind, "legacy key missing", legacy(program(tensor()), tail=numbers))
    view = op(("storage", glob("torch.FloatStorage"), "0", "cpu", 4, ("1", 2, 4))) + b"Q"
    body = call("torch._utils._rebuild_tensor_v2", Raw(view), 0, (4,), (1,), False, None)
    yield one_file(kind, "legacy view outside", legacy(program(body), keys=keys, tail=numbers))
