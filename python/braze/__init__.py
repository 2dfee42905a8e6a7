"""Braze: fuses tensor graphs into few kernels and runs them on CPUs and NVIDIA GPUs.

    import braze, numpy
    f = braze.jit_text(open("softmax.braze").read())   # or braze.load("model.bzp")
    y = f(numpy.ones((6, 40), numpy.float32))          # a braze.Array
    print(y.numpy(), f.explain())

Arguments are arrays of any library that speaks DLPack (NumPy, PyTorch, JAX, CuPy), numbers, and
arrays of Braze; results are arrays of Braze, which such libraries take by their `from_dlpack`.
"""

from __future__ import annotations

import atexit
import os
import struct
from typing import Any, Iterable, List, Optional, Sequence, Tuple, Union

from . import _native
from ._errors import (
    DataLoss,
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unsupported,
)

__all__ = [
    "Array", "DataLoss", "DeviceError", "Error", "Function", "InternalError", "InvalidArgument",
    "NotFound", "ResourceExhausted", "Stream", "Unsupported", "array", "default_device", "devices",
    "from_dlpack", "functions", "jit_text", "load", "synchronize",
]

__version__: str = _native.version()

# The element types, in the order of braze/c.h; with the letters of the module struct, if they have some.
_DTYPES = (
    ("bool", "?"), ("i32", "i"), ("i64", "q"), ("u32", "I"), ("f16", "e"), ("bf16", None),
    ("f32", "f"), ("f64", "d"), ("i8", "b"), ("u8", "B"), ("i16", "h"), ("u16", "H"), ("u64", "Q"),
    ("f8e4m3", None), ("f8e5m2", None),
)
_DTYPE_NUMBERS = {name: number for number, (name, _) in enumerate(_DTYPES)}

# The devices of DLPack.
_DL_CPU, _DL_CUDA, _DL_CUDA_HOST = 1, 2, 3


def devices() -> List[str]:
    """The names of all devices: "cpu", "cuda:0" and so on. Opens CUDA's driver."""
    return _native.devices()


def default_device() -> str:
    """The device of whoever names none: the first GPU, else "cpu"."""
    return _native.default_device()


def synchronize(device: str) -> None:
    """Waits until all work that was given to the device is done; raises what went wrong with it."""
    _native.synchronize(device)


class Array:
    """A tensor on a device. It is never written after it was made. What computes it may still be
    under way: reading it waits, and raises what went wrong."""

    __slots__ = ("_handle", "_type")

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._type: Optional[Tuple[int, Tuple[int, ...], str]] = None

    def _facts(self) -> Tuple[int, Tuple[int, ...], str]:
        if self._type is None:
            self._type = _native.array_type(self._handle)
        return self._type

    @property
    def dtype(self) -> str:
        """The element type as Braze calls it, such as "f32"."""
        return _DTYPES[self._facts()[0]][0]

    @property
    def shape(self) -> Tuple[int, ...]:
        return self._facts()[1]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def device(self) -> str:
        return self._facts()[2]

    def wait(self) -> "Array":
        """Blocks until the value is computed."""
        _native.array_wait(self._handle)
        return self

    def to(self, device: str) -> "Array":
        """The same value on another device; this array itself if it is there."""
        return self if device == self.device else Array(_native.array_to_device(self._handle, device))

    def tobytes(self) -> bytes:
        """The elements in row-major order."""
        return _native.array_to_bytes(self._handle)

    def item(self) -> Union[bool, int, float]:
        """The value of an array of one element."""
        count = 1
        for extent in self.shape:
            count *= extent
        if count != 1:
            raise ValueError(f"item() of an array with {count} elements, {self!r}")
        letter = _DTYPES[self._facts()[0]][1]
        bits = self.tobytes()
        if self.dtype == "bf16":  # the upper half of a float's bits
            return struct.unpack("<f", b"\0\0" + bits)[0]
        if letter is None:
            raise TypeError(f"Python has no number for an element of {self.dtype}")
        return struct.unpack("<" + letter, bits)[0]

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a scalar array")
        return self.shape[0]

    def __repr__(self) -> str:
        extents = ", ".join(str(extent) for extent in self.shape)
        return f"braze.Array({self.dtype}[{extents}], {self.device!r})"

    def numpy(self) -> Any:
        """The array for NumPy, which may only read it: without a copy where it is in the host's
        memory."""
        import numpy

        return numpy.from_dlpack(self.to("cpu"))

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        if copy is False and self.__dlpack_device__()[0] != _DL_CPU:
            raise ValueError(f"{self!r} is on a GPU, and NumPy cannot have it without a copy")
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> Tuple[int, int]:
        kind, _, index = self.device.partition(":")
        return (_DL_CUDA, int(index or 0)) if kind == "cuda" else (_DL_CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """The array for another library, which must not write it."""
        source = self
        here = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != here:
            if dl_device[0] != _DL_CPU or copy is False:
                raise BufferError(f"{self!r} is not on the device {dl_device} of DLPack")
            source, here = self.to("cpu"), (_DL_CPU, 0)
        elif copy:
            if here[0] != _DL_CPU:
                raise BufferError("Braze makes no copy within a GPU; copy in the other library")
            source = _copied(self)
        versioned = max_version is not None and max_version[0] >= 1
        where = None
        if here[0] == _DL_CUDA and stream != -1:
            # The receiver's stream: the value is waited for there, and not by the host. 1 and none
            # are CUDA's default stream.
            where = _native.stream_of_host(self.device, 0 if stream in (None, 1) else stream)
        return _native.array_to_dlpack(source._handle, versioned, where)


def _copied(array: Array) -> Array:
    dtype, shape, device = array._facts()
    return Array(_native.array_from_bytes(dtype, shape, array.tobytes(), device))


def _number(value: Union[bool, int, float], dtype: str, device: str) -> Array:
    """A scalar array of a number of Python's."""
    number = _DTYPE_NUMBERS[dtype]
    letter = _DTYPES[number][1]
    if dtype == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        if value == value:  # to the nearest, ties to even; a NaN stays one
            bits += 0x7FFF + (bits >> 16 & 1)
        data = struct.pack("<H", bits >> 16)
    elif letter is None:
        raise TypeError(f"a number is no argument of type {dtype}; pass an array")
    else:
        try:
            data = struct.pack("<" + letter, value)
        except (struct.error, OverflowError) as error:
            raise TypeError(f"{value!r} is no number of type {dtype}: {error}") from None
    return Array(_native.array_from_bytes(number, (), data, device))


def _imported(source: Any, copy: bool) -> Array:
    """An array over another library's, or a copy of it."""
    if not hasattr(source, "__dlpack__"):
        if not hasattr(source, "__array__"):
            raise TypeError(
                f"{type(source).__name__} is no array: pass one of a library with DLPack, such as "
                "NumPy, or a number"
            )
        import numpy

        source = numpy.asarray(source)
    options = {}
    if hasattr(source, "__dlpack_device__"):
        kind, index = source.__dlpack_device__()
        if kind == _DL_CUDA:
            # The stream in which Braze will use it; 1 is CUDA's default one.
            current = _native.stream_current(f"cuda:{index}")
            options["stream"] = _native.stream_native(current) or 1
    try:
        try:
            capsule = source.__dlpack__(max_version=(1, 0), **options)
        except TypeError:  # a library that knows no versions
            capsule = source.__dlpack__(**options)
    except BufferError:
        # What may only be read, of a library that cannot say so.
        if not hasattr(source, "__array_interface__"):
            raise
        import numpy

        capsule = numpy.array(source, copy=True).__dlpack__()
    return Array(_native.array_from_dlpack(capsule, copy))


def from_dlpack(source: Any) -> Array:
    """An array over another library's memory, which must stay as it is while the array lives.
    Memory of the host that is strided or not aligned to 64 bytes is copied. On a GPU the two
    libraries agree on streams; nothing waits on the host."""
    return source if isinstance(source, Array) else _imported(source, copy=False)


def array(source: Any, device: Optional[str] = None, dtype: Optional[str] = None) -> Array:
    """A copy of an array, or a number as one, on `device` (the default device). `dtype` is that of
    a number: without it "f32", "i64" or "bool"."""
    device = device or default_device()
    if isinstance(source, (bool, int, float)):
        kinds = {bool: "bool", int: "i64", float: "f32"}
        return _number(source, dtype or kinds[type(source)], device)
    if isinstance(source, Array):
        return source.to(device)
    made = _imported(source, copy=True)
    if dtype is not None and made.dtype != dtype:
        raise TypeError(f"the array is {made.dtype}, not {dtype}: cast it in the library it is of")
    return made.to(device)


class Function:
    """A compiled function on a device. Call it with one argument for each of its inputs. One result
    is returned as it is, several as a tuple. It may be called from several threads at once."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        (self.name, self.device, inputs, input_types, outputs, output_types, replaced) = (
            _native.function_signature(handle)
        )
        #: (name, type) of each input: ("x", "f32[n, 64]").
        self.inputs: List[Tuple[str, str]] = list(zip(inputs, input_types))
        #: (name, type) of each output; the name is "" if it has none.
        self.outputs: List[Tuple[str, str]] = list(zip(outputs, output_types))
        self._input_dtypes = [text.partition("[")[0] for text in input_types]
        self._replaced = frozenset(replaced)
        _used_devices.add(self.device)

    def __call__(self, *arguments: Any) -> Union[Array, Tuple[Array, ...]]:
        """Arrays of the host are copied to a GPU that the function runs on. Arrays of other
        libraries in the host's memory may be changed once the call has returned: the call waits
        for its results. It does not wait for a GPU, or where all arguments are Braze's own.

        An argument of Braze's own whose memory a result takes over is dead after the call; one of
        another library is copied."""
        handles = []
        borrows = False
        for index, argument in enumerate(arguments):
            if isinstance(argument, Array):
                given = argument
            elif isinstance(argument, (bool, int, float)):
                if index >= len(self._input_dtypes):  # Braze says how many it takes
                    given = _number(argument, "f32" if isinstance(argument, float) else "i64", self.device)
                else:
                    given = _number(argument, self._input_dtypes[index], self.device)
            else:
                copied = index in self._replaced
                given = _imported(argument, copied)
                if not self.device.startswith("cuda"):
                    borrows = borrows or not copied
            if given.device != self.device and not given.device.startswith("cuda"):
                given = given.to(self.device)
            handles.append(given._handle)
        results = _native.run(self._handle, tuple(handles), borrows)
        arrays = tuple(Array(result) for result in results)
        return arrays[0] if len(arrays) == 1 else arrays

    def explain(self) -> str:
        """What the function was compiled to: its kernels, and why each edge was fused or not."""
        return _native.function_explain(self._handle)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in self.inputs)
        outputs = ", ".join(f"{name}: {type_}" if name else type_ for name, type_ in self.outputs)
        return f"<braze.Function {self.name}({inputs}) -> ({outputs}) on {self.device!r}>"


def _package(
    path: Union[str, "os.PathLike[str]"],
    weights: Union[str, "os.PathLike[str]", None] = None,
    trust_any_owner: bool = False,
    trust_keys: Iterable[Union[str, "os.PathLike[str]"]] = (),
) -> Any:
    keys = ":".join(os.fspath(key) for key in trust_keys)
    return _native.package_load(
        os.fspath(path), None if weights is None else os.fspath(weights), trust_any_owner, keys or None
    )


def load(
    path: Union[str, "os.PathLike[str]"],
    function: Optional[str] = None,
    device: Optional[str] = None,
    *,
    weights: Union[str, "os.PathLike[str]", None] = None,
    trust_any_owner: bool = False,
    trust_keys: Sequence[Union[str, "os.PathLike[str]"]] = (),
) -> Function:
    """Loads a function of a package that `braze compile` made, with its weights. `function` may be
    left out where there is one; `device` is the default device. `weights` is a .safetensors file in
    place of the package's.

    A package holds machine code: it is taken from a file that belongs to this user or to root and
    that nobody else can write, or from one that a key of `trust_keys` has signed, or from any with
    `trust_any_owner`."""
    package = _package(path, weights, trust_any_owner, trust_keys)
    return Function(_native.function_load(package, function, device or default_device()))


def functions(
    path: Union[str, "os.PathLike[str]"],
    *,
    trust_any_owner: bool = False,
    trust_keys: Sequence[Union[str, "os.PathLike[str]"]] = (),
) -> List[str]:
    """The names of the functions in a package."""
    return _native.package_functions(_package(path, None, trust_any_owner, trust_keys))


def jit_text(
    text: str,
    device: Optional[str] = None,
    *,
    precision: Optional[str] = None,
    name: str = "graph",
    fuse: bool = True,
) -> Function:
    """Compiles the text of a graph (docs/ir/graph.md), or finds it compiled in the cache on disk.
    `precision` is what rounding may change: "standard", "strict" or "fast". `name` is the text's in
    messages, such as its file's. Without `fuse` each op is a kernel, for comparison."""
    device = device or default_device()
    return Function(_native.function_compile(text, name, precision, fuse, device))


class Stream:
    """An order of work on a device: in a `with` block, this thread's calls on the device run there.

        with braze.Stream("cuda:0", torch.cuda.current_stream().cuda_stream):
            y = f(x)     # behind what PyTorch put there, and before what it puts there later

    Without `handle` it is a new one beside all others. `handle` is the number of a stream of CUDA's
    that another library has; it must live as long as this and the arrays made in it."""

    def __init__(self, device: str, handle: Optional[int] = None) -> None:
        self.device = device
        if handle is None:
            self._handle = _native.stream_new(device)
        else:
            self._handle = _native.stream_of_host(device, handle)

    @property
    def handle(self) -> int:
        """CUDA's own number of it; 0 for CUDA's default stream, and on other devices."""
        return _native.stream_native(self._handle) or 0

    def synchronize(self) -> None:
        """Waits until everything in the stream is complete."""
        _native.stream_synchronize(self._handle)

    def __enter__(self) -> "Stream":
        _native.stream_enter(self._handle)
        return self

    def __exit__(self, *_: Any) -> None:
        _native.stream_leave()


_used_devices = set()


@atexit.register
def _finish() -> None:
    # Work that is under way may hold arrays of other libraries, whose deleters need Python.
    for device in _used_devices:
        try:
            synchronize(device)
        except Error:
            pass  # the call's result tells, to whoever reads it
