"""Braze beside PyTorch in one process: tensors cross by DLPack without a copy, and on a GPU both run
on one stream.

Usage: beside_torch.py LIBBRAZE [DEVICE]
"""

import ctypes
import sys

SKIPPED = 77

TEXT = b"""braze 1 graph
symbol n: 1..65536
graph @scaled_softmax(%x: f32[n, 256], %scale: f32[]) {
  %s = broadcast %scale {axes: []} : f32[n, 256]
  %t = mul %x, %s : f32[n, 256]
  %m = reduce max %t {axes: [1]} : f32[n]
  %mb = broadcast %m {axes: [0]} : f32[n, 256]
  %d = sub %t, %mb : f32[n, 256]
  %e = exp %d : f32[n, 256]
  %l = reduce sum %e {axes: [1]} : f32[n]
  %lb = broadcast %l {axes: [0]} : f32[n, 256]
  %y = div %e, %lb : f32[n, 256]
  return %y as "y"
}
"""

Pointer = ctypes.c_void_p


class Braze:
    """The few functions of braze/c.h and braze/c_compile.h that are used here."""

    def __init__(self, library):
        self.library = ctypes.CDLL(library)
        # Functions are in libbraze and in libbraze-runtime, which it brings.
        for name in ("last_error", "last_error_code", "function_output_name", "array_device"):
            getattr(self.library, "braze_" + name).restype = ctypes.c_char_p
        for name in ("array_release", "function_release", "stream_release"):
            getattr(self.library, "braze_" + name).argtypes = [Pointer]

    def __call__(self, name, *arguments):
        """Calls a function that makes a handle, or with a name that ends in ! one that makes none."""
        makes = not name.endswith("!")
        out = Pointer()
        given = [*arguments, ctypes.byref(out)] if makes else arguments
        if getattr(self.library, "braze_" + name.rstrip("!"))(*given) != 0:
            raise RuntimeError(self.library.braze_last_error().decode())
        return out


PyCapsule = ctypes.pythonapi
PyCapsule.PyCapsule_GetPointer.restype = Pointer
PyCapsule.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
PyCapsule.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
PyCapsule.PyCapsule_New.restype = ctypes.py_object
PyCapsule.PyCapsule_New.argtypes = [Pointer, ctypes.c_char_p, Pointer]
NAME, USED = b"dltensor_versioned", b"used_dltensor_versioned"


def to_braze(braze, tensor):
    """A braze_array over the tensor's memory. On a GPU it is ready on torch's current stream, which
    Braze has been told to use."""
    options = {"stream": -1} if tensor.is_cuda else {}  # -1: both are on one, nothing is to wait
    capsule = tensor.__dlpack__(max_version=(1, 0), **options)
    managed = Pointer(PyCapsule.PyCapsule_GetPointer(capsule, NAME))
    PyCapsule.PyCapsule_SetName(capsule, USED)  # it is Braze's now
    return braze("array_from_dlpack", managed)


class Exported:
    """A tensor of Braze's, for torch.from_dlpack."""

    def __init__(self, managed, device):
        self.managed, self.device = managed, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        # Ready on the stream that both use, so there is nothing to wait for.
        return PyCapsule.PyCapsule_New(self.managed, NAME, None)


def to_torch(torch, braze, array, device):
    return torch.from_dlpack(Exported(braze("array_to_dlpack", array), device))


def main():
    library, device = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cpu"
    try:
        import torch
    except ImportError:
        print(f"skipped: all of it: no PyTorch; BRAZE_PYTHON names a Python that has it")
        return SKIPPED
    on_gpu = device != "cpu"
    if on_gpu and not torch.cuda.is_available():
        print("skipped: all of it: this PyTorch finds no GPU")
        return SKIPPED
    braze = Braze(library)
    function = braze("function_compile", TEXT, b"softmax.braze", None, device.encode())

    stream = None
    if on_gpu:
        theirs = torch.cuda.Stream()
        torch.cuda.set_stream(theirs)
        stream = braze("stream_of_host", device.encode(), Pointer(theirs.cuda_stream))
        braze("stream_enter!", stream)
    dl_device = (2, int(device.split(":")[1])) if on_gpu else (1, 0)

    scale = torch.tensor(0.5, device=device)
    x = torch.randn(1000, 256, device=device)
    for _ in range(10):
        # PyTorch, Braze, PyTorch: one after the other on one stream, and the host waits for nothing.
        x = x * 1.5 + 0.25
        arrays = [to_braze(braze, x), to_braze(braze, scale)]
        result = Pointer()
        braze("run!", function, (Pointer * 2)(*arrays), ctypes.c_size_t(2), ctypes.byref(result),
              ctypes.c_size_t(1))
        y = to_torch(torch, braze, result, dl_device)
        address = y.data_ptr()
        for array in (*arrays, result):  # torch's tensor keeps the memory
            braze.library.braze_array_release(array)
        z = y + 1
        wanted = torch.softmax(x * 0.5, dim=1)
        error = (z - 1 - wanted).abs().max().item()
        if error > 1e-6:
            print(f"the results differ by {error}")
            return 1
        x = y * 256

    # What is strided is copied, and goes on being right.
    if not on_gpu:
        wide = torch.arange(512.0 * 300).reshape(300, 512)
        array = to_braze(braze, wide[:, ::2])
        back = to_torch(torch, braze, array, dl_device)
        braze.library.braze_array_release(array)
        if not torch.equal(back, wide[:, ::2]):
            print("a strided tensor came back as another")
            return 1
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64,
                      torch.bool):
            tensor = torch.arange(12).reshape(3, 4).to(dtype)
            array = to_braze(braze, tensor)
            back = to_torch(torch, braze, array, dl_device)
            braze.library.braze_array_release(array)
            if back.dtype != dtype or not torch.equal(back, tensor) or address == 0:
                print(f"{dtype} came back as another")
                return 1
            if back.data_ptr() != tensor.data_ptr() and tensor.data_ptr() % 64 == 0:
                print(f"{dtype} was copied")
                return 1

    if stream:
        torch.cuda.synchronize()
        braze("stream_leave!")
        braze.library.braze_stream_release(stream)
    braze.library.braze_function_release(function)
    print(f"softmax by Braze on {device} as by PyTorch {torch.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
