"""The names in a pickle that are refused, and why.

A name outside the table is never looked up, whatever it is; most become placeholders. Two kinds are
refused instead: a name that a file of data has no use for and that is there to run code (the file is
an attack, or was not made by saving data), and one that PyTorch writes for numbers that this reader
would misread.
"""

from __future__ import annotations

from bridge.checkpoint._dtypes import UNSUPPORTED_STORAGE_CLASSES
from bridge.checkpoint._records import UNINITIALIZED
from bridge.checkpoint.errors import BadFormat, Unsafe, Unsupported, brief


#: Packages whose functions run code, reach the system or the network, or read other files.
_CODE_PACKAGES = """
_aix_support _asyncio _bootsubprocess _codecs _ctypes _frozen_importlib _frozen_importlib_external
_imp _io _operator _osx_support _pickle _posixsubprocess _pyio _pyrepl _signal _socket _sqlite3 _ssl
_thread _winapi aiohttp antigravity asyncio asyncore atexit bdb cloudpickle code codecs codeop
commands compileall concurrent cProfile ctypes dbm dill dis distutils doctest ensurepip faulthandler
fileinput ftplib gc glob http httplib idlelib imaplib imp importlib inspect io joblib lib2to3
linecache mailcap marshal mmap modulefinder msvcrt multiprocessing netrc nntplib nt ntpath operator
os paramiko pdb pexpect pickle pickletools pip pipes pkg_resources pkgutil platform plistlib poplib
posix posixpath posixshmem profile pstats pty pwd py_compile pyclbr pydoc readline requests resource
rlcompleter runpy sched select selectors setuptools shelve shutil signal site smtpd smtplib socket
socketserver sqlite3 ssl subprocess symtable sys sysconfig tarfile telnetlib tempfile this threading
timeit tkinter trace traceback tracemalloc tty turtle unittest urllib urllib2 urllib3 uvicorn venv
warnings webbrowser winreg wsgiref xmlrpc zipapp zipfile zipimport
"""

#: Modules inside of other packages, likewise.
_CODE_MODULES = """
logging.config numpy.ctypeslib numpy.distutils numpy.f2py numpy.lib numpy.testing test.support
torch._C._jit torch._dynamo torch._inductor torch._utils_internal torch.classes torch.compiler
torch.cuda.jiterator torch.distributed.rpc torch.fx torch.hub torch.jit.frontend
torch.jit.unsupported_tensor_ops torch.multiprocessing torch.onnx torch.ops torch.package
torch.testing torch.utils._config_module torch.utils.bottleneck torch.utils.collect_env
torch.utils.cpp_extension torch.utils.data.datapipes
"""

#: Modules of which the table has all that is read.
_CLOSED = frozenset(
    ["torch._utils", "torch._tensor", "torch.tensor", "torch.storage", "torch.nn.parameter", "pathlib"]
    + ["torch.serialization", "numpy.core.multiarray", "numpy._core.multiarray"]
    + ["numpy.core.numeric", "numpy._core.numeric"]
)

_PACKAGES = frozenset(_CODE_PACKAGES.split())
_MODULES = _CODE_MODULES.split()

#: Single names, likewise.
_CODE_NAMES = frozenset(
    [f"functools.{name}" for name in ("reduce", "partialmethod", "cached_property")]
    + [f"numpy.{name}" for name in ("load", "fromfile", "loadtxt", "genfromtxt", "memmap", "save")]
    + [f"torch.{name}" for name in ("load", "save", "compile", "from_file", "classes", "ops")]
    + ["torch.storage._load_from_bytes", "torch.cuda._compile_kernel", "uuid._popen"]
    + ["torch._utils._import_dotted_name", "uuid._get_command_stdout"]
    + [f"torch.serialization.{name}" for name in ("load", "save", "_load", "_legacy_load")]
    + [f"torch.jit.{name}" for name in ("load", "script", "trace", "compile")]
    + [f"itertools.{name}" for name in ("count", "cycle", "repeat", "starmap")]
    + ["types.CodeType", "types.FunctionType", "types.LambdaType", "types.MethodType"]
)

#: Names of ``builtins`` that are types of data, which a placeholder may stand for.
_DATA_BUILTINS = frozenset(
    ["object", "int", "float", "str", "bool", "list", "dict", "tuple", "type", "NoneType"]
    + ["long", "unicode", "basestring"]
    + ["Ellipsis", "NotImplemented"]
)


def refuse(module: str, name: str) -> None:
    """Raise if a name outside of the table must not become a placeholder."""
    path = f"{module}.{name}"
    if not all(part.isidentifier() for part in path.split(".")):
        raise BadFormat(f"{brief(path)} is no name of a class or function")
    if module.startswith("torch") and name in UNSUPPORTED_STORAGE_CLASSES:
        raise Unsupported(f"numbers narrower than a byte ({path}), which this reader does not read")
    if _runs_code(module, name, path):
        raise Unsafe(
            f"the file asks Python for {path!r}, which is no part of a file of tensors and is not run",
            advice="If you trust the file, open it with torch and save a state_dict of tensors instead",
        )
    if module in _CLOSED and path not in UNINITIALIZED:
        # A placeholder would hide a tensor, or another part of the file that matters.
        raise Unsupported(f"{path}, a part of {module} that this reader does not know")


def _runs_code(module: str, name: str, path: str) -> bool:
    if module in ("builtins", "__builtin__"):
        return name not in _DATA_BUILTINS and not name.endswith(("Error", "Exception", "Warning"))
    if module == "collections" or module.startswith("collections."):
        return not name[:1].isupper() or "." in path.removeprefix("collections.")
    if module.partition(".")[0] in _PACKAGES or path in _CODE_NAMES:
        return True
    if any(module == other or module.startswith(other + ".") for other in _MODULES):
        return True
    # A dotted name reaches into what a module has imported; so does a module of PyTorch that is
    # called as another package is, or as a class is.
    ours = module.partition(".")[0] == "torch"
    parts = path.split(".")[1:] if ours else name.split(".")
    if not _PACKAGES.isdisjoint(parts) or any(part[:2] == part[-2:] == "__" for part in parts):
        return True
    return ours and any(part[:1].isupper() for part in parts[:-1])
