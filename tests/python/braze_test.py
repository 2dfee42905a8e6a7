"""The module braze, as a program sees it that has installed the wheel. What needs NumPy is skipped without."""

import ctypes
import gc
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref

import braze

try:
    import numpy
except ImportError:
    numpy = None
    print("skipped: what needs NumPy: it is not here")

SOFTMAX = """braze 1 graph
symbol n: 1..65536
graph @softmax(%x: f32[n, 40]) {
  %m = reduce max %x {axes: [1]} : f32[n]
  %mb = broadcast %m {axes: [0]} : f32[n, 40]
  %d = sub %x, %mb : f32[n, 40]
  %e = exp %d : f32[n, 40]
  %l = reduce sum %e {axes: [1]} : f32[n]
  %lb = broadcast %l {axes: [0]} : f32[n, 40]
  %y = div %e, %lb : f32[n, 40]
  return %y as "y"
}
"""
# Two results, of which the first takes the place of the first argument.
STEP = """braze 1 graph
graph @step(%w: f32[16], %g: f32[16], %rate: f32[]) {
  %r = broadcast %rate {axes: []} : f32[16]
  %s = mul %g, %r : f32[16]
  %n = sub %w, %s : f32[16]
  return %n as "next" updates %w, %s
}
"""
TWICE = """braze 1 graph
graph @twice(%x: f32[]) {
  %y = add %x, %x : f32[]
  return %y
}
"""


def identity(dtype, shape="[3, 4]"):
    """A function that returns its argument: a copy of it."""
    return braze.jit_text(
        f"braze 1 graph\ngraph @identity(%x: {dtype}{shape}) {{\n  return %x\n}}\n", "cpu")


def aligned(array, offset=0):
    """The same array, its first element `offset` bytes behind a multiple of 64."""
    room = numpy.empty(array.nbytes + 128, numpy.uint8)
    begin = -room.ctypes.data % 64 + offset
    view = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


class WithoutNumPy(unittest.TestCase):
    def test_devices(self):
        self.assertIn("cpu", braze.devices())
        self.assertIn(braze.default_device(), braze.devices())

    def test_signature(self):
        step = braze.jit_text(STEP, "cpu", name="step.braze")
        self.assertEqual(step.inputs, [("w", "f32[16]"), ("g", "f32[16]"), ("rate", "f32[]")])
        self.assertEqual(step.outputs, [("next", "f32[16]"), ("", "f32[16]")])
        self.assertEqual((step.name, step.device), ("step", "cpu"))
        self.assertIn("kernel", step.explain())

    def test_numbers(self):
        cases = {"f32": 0.1, "f64": 0.1, "f16": 0.5, "bf16": 1.0078125, "bool": True, "i8": -7,
                 "u8": 200, "i16": -300, "u16": 65535, "i32": -70000, "u32": 4000000000,
                 "i64": -(2**62), "u64": 2**64 - 1}
        for dtype, value in cases.items():
            result = identity(dtype, "[]")(value)
            self.assertEqual((result.dtype, result.shape), (dtype, ()))
            wanted = struct.unpack("f", struct.pack("f", value))[0] if dtype == "f32" else value
            self.assertEqual(result.item(), wanted)
        # bf16 rounds to nearest, ties to even.
        for value, wanted in ((1.00390625, 1.0), (1.01171875, 1.015625), (-math.inf, -math.inf)):
            self.assertEqual(braze.array(value, "cpu", "bf16").item(), wanted)
        self.assertTrue(math.isnan(braze.array(math.nan, "cpu", "bf16").item()))
        with self.assertRaisesRegex(TypeError, "-1 is no number of type u8"):
            identity("u8", "[]")(-1)
        with self.assertRaisesRegex(TypeError, "pass an array"):
            identity("f8e4m3", "[]")(1.0)

    def test_errors(self):
        with self.assertRaises(braze.InvalidArgument) as caught:
            braze.jit_text(SOFTMAX, "cpu")(0.5)
        self.assertEqual(caught.exception.code, "argument-mismatch")
        self.assertIn('("x") of @softmax', str(caught.exception))
        self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaises(braze.InvalidArgument) as caught:
            braze.jit_text(SOFTMAX, "nowhere:3")
        self.assertEqual(caught.exception.code, "no-such-device")
        with self.assertRaisesRegex(braze.InvalidArgument, "bad.braze:3"):
            braze.jit_text("braze 1 graph\ngraph @f(%x: f32[2]) {\n  %y = nothing %x\n}\n", "cpu",
                           name="bad.braze")
        with self.assertRaises(FileNotFoundError) as caught:
            braze.load("/none.bzp")
        self.assertIsInstance(caught.exception, braze.NotFound)
        with self.assertRaisesRegex(braze.InvalidArgument, "standard, strict or fast"):
            braze.jit_text(SOFTMAX, "cpu", precision="none")
        with self.assertRaisesRegex(TypeError, "str is no array"):
            braze.jit_text(SOFTMAX, "cpu")("x")
        step = braze.jit_text(STEP, "cpu")
        with self.assertRaises(braze.InvalidArgument):
            step(1.0, 2.0, 3.0, 4.0)
        with self.assertRaises(braze.Unsupported):
            braze.Stream("cpu", 5)
        with self.assertRaises(braze.InvalidArgument):
            braze._native.stream_leave()
        self.assertTrue(issubclass(braze.ResourceExhausted, MemoryError))

    def test_handles_are_checked(self):
        for wrong in (None, 1, braze.array(1.0, "cpu")._handle):
            with self.assertRaises((TypeError, ValueError)):
                braze._native.function_signature(wrong)
        with self.assertRaises(ValueError):
            braze._native.array_from_dlpack(braze.array(1.0, "cpu")._handle, False)

    def test_streams(self):
        f = identity("f32", "[]")
        with braze.Stream("cpu") as stream:
            self.assertEqual(f(2.5).item(), 2.5)
            self.assertEqual(stream.handle, 0)
        stream.synchronize()
        braze.synchronize("cpu")

    def test_gpus_are_left_alone(self):
        # The driver is whatever library is named; it is in the process once it was opened.
        program = f"""
import struct, braze
def is_driver_open():
    with open("/proc/self/maps") as maps:
        return "no-driver.so" in maps.read()
f = braze.jit_text({TWICE!r}, "cpu")
assert f(1.5).tobytes() == struct.pack("f", 3)
braze.synchronize("cpu")
assert not is_driver_open()
assert "cpu" in braze.devices() and is_driver_open()
"""
        with tempfile.TemporaryDirectory() as folder:
            driver = os.path.join(folder, "no-driver.so")
            shutil.copy(braze._native.__file__, driver)
            subprocess.run([sys.executable, "-c", program], check=True, timeout=120,
                           env=dict(os.environ, BRAZE_CUDA_DRIVER=driver))

    def test_tensors_that_cannot_be(self):
        released = []
        deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda tensor: released.append(tensor))

        class Managed(ctypes.Structure):
            _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                        ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        room = (ctypes.c_float * 64)()
        for code in (2, 6):  # floats, and bools, whose values are looked at
            for change in (dict(ndim=-1), dict(shape=None), dict(extents=(-3, 2)), dict(data=None),
                           dict(extents=(1 << 62, 4)), dict(bits=7), dict(steps=(1 << 62, 1), extents=(4, 2))):
                extents = (ctypes.c_int64 * 2)(*change.get("extents", (2, 2)))
                steps = (ctypes.c_int64 * 2)(*change["steps"]) if "steps" in change else None
                tensor = Managed(data=ctypes.addressof(room), device_type=1, ndim=2, code=code, bits=8 if code == 6 else 32,
                                 lanes=1, shape=ctypes.addressof(extents), strides=ctypes.addressof(steps) if steps else None,
                                 deleter=ctypes.cast(deleter, ctypes.c_void_p))
                for name, value in change.items():
                    if name not in ("extents", "steps"):
                        setattr(tensor, name, value)
                before = len(released)
                with self.assertRaises(braze.Error, msg=str(change)):
                    braze._native.array_from_dlpack(
                        new_capsule(ctypes.addressof(tensor), b"dltensor", None), False)
                self.assertEqual(len(released) - before, 1, change)

    def test_package(self):
        with tempfile.TemporaryDirectory() as folder:
            text, package = os.path.join(folder, "f.braze"), os.path.join(folder, "f.bzp")
            with open(text, "w") as file:
                file.write(STEP)
            subprocess.run([sys.executable, "-m", "braze", "compile", text, "-o", package],
                           check=True, stdout=subprocess.DEVNULL)
            self.assertEqual(braze.functions(package), ["step"])
            step = braze.load(package, device="cpu")
            self.assertEqual(step.inputs[2], ("rate", "f32[]"))
            with self.assertRaisesRegex(braze.InvalidArgument, "none"):
                braze.load(package, "none", "cpu")
            os.chmod(package, 0o666)
            with self.assertRaises(braze.InvalidArgument):
                braze.load(package, device="cpu")
            braze.load(package, device="cpu", trust_any_owner=True)

    def test_the_lock_is_free_during_calls(self):
        # No thread is made to give Python's lock up: this one goes on only if a call lets go of it.
        slow = braze.jit_text(
            "braze 1 graph\ngraph @f() {\n  %i = iota {axis: 0} : f32[3000000]\n"
            "  %s = sin %i : f32[3000000]\n  %y = reduce sum %s {axes: [0]} : f32[]\n  return %y\n}\n",
            "interpreter")
        for work in (lambda: slow().wait(), lambda: slow().tobytes(),
                     lambda: (slow(), braze.synchronize("interpreter"))):
            state = {"begun": False, "ended": False}

            def run():
                state["begun"] = True
                work()
                state["ended"] = True

            interval = sys.getswitchinterval()
            sys.setswitchinterval(1000)
            try:
                thread = threading.Thread(target=run)
                thread.start()
                seen = False
                while not state["ended"]:
                    seen = seen or (state["begun"] and not state["ended"])
                    time.sleep(0.001)
                thread.join()
            finally:
                sys.setswitchinterval(interval)
            self.assertTrue(seen)

    def test_many_threads(self):
        f = identity("i64", "[]")
        wrong = []

        def run(first):
            for i in range(first, first + 200):
                if f(i).item() != i:
                    wrong.append(i)

        threads = [threading.Thread(target=run, args=(1000 * t,)) for t in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


@unittest.skipIf(numpy is None, "no NumPy")
class WithNumPy(unittest.TestCase):
    def setUp(self):
        self.x = numpy.random.default_rng(0).standard_normal((100, 40), numpy.float32)

    def test_values(self):
        y = braze.jit_text(SOFTMAX, "cpu")(self.x)
        e = numpy.exp(self.x - self.x.max(1, keepdims=True))
        numpy.testing.assert_allclose(y.numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)
        self.assertEqual((y.dtype, y.shape, y.device, len(y)), ("f32", (100, 40), "cpu", 100))
        self.assertEqual(repr(y), "braze.Array(f32[100, 40], 'cpu')")
        numpy.testing.assert_array_equal(numpy.asarray(y), y.numpy())
        self.assertEqual(numpy.asarray(y, numpy.float64).dtype, numpy.float64)

    def test_types(self):
        for dtype, name in (("bool", "bool"), ("i8", "int8"), ("u8", "uint8"), ("i16", "int16"),
                            ("u16", "uint16"), ("i32", "int32"), ("u32", "uint32"),
                            ("i64", "int64"), ("u64", "uint64"), ("f16", "float16"),
                            ("f32", "float32"), ("f64", "float64")):
            x = numpy.arange(12).reshape(3, 4).astype(name)
            for given in (x, aligned(x), x[::-1, ::2], x.T, x[:, :0], x[1, 2]):
                shape = str(list(given.shape))
                y = identity(dtype, shape)(given)
                self.assertEqual((y.dtype, y.shape), (dtype, given.shape))
                numpy.testing.assert_array_equal(y.numpy(), given)
        with self.assertRaises(braze.Unsupported) as caught:
            braze.from_dlpack(numpy.zeros(3, numpy.complex64))
        self.assertEqual(caught.exception.code, "dlpack")

    def test_bytes_of_bools(self):
        x = numpy.array([0, 1, 2, 255], numpy.uint8).view(numpy.bool_)
        self.assertEqual(identity("bool", "[4]")(x).tobytes(), b"\0\1\1\1")

    def test_memory_is_shared(self):
        x = aligned(self.x)
        array = braze.from_dlpack(x)
        self.assertEqual(array.numpy().ctypes.data, x.ctypes.data)
        self.assertFalse(array.numpy().flags.writeable)
        self.assertNotEqual(braze.from_dlpack(aligned(self.x, 4)).numpy().ctypes.data % 64, 4)
        copy = braze.array(x, "cpu")
        self.assertNotEqual(copy.numpy().ctypes.data, x.ctypes.data)
        with self.assertRaises(ValueError):
            array.numpy()[0, 0] = 1

    def test_memory_is_let_go(self):
        class Watched(numpy.ndarray):
            pass

        for offset in (0, 4):
            x = aligned(self.x, offset).view(Watched)
            gone = weakref.ref(x)
            y = braze.jit_text(SOFTMAX, "cpu")(x)
            array = braze.from_dlpack(x)
            del x, array
            braze.synchronize("cpu")
            gc.collect()
            self.assertIsNone(gone())
            # What was handed out keeps the array.
            out = y.numpy()
            wanted = out.copy()
            del y
            gc.collect()
            braze.jit_text(SOFTMAX, "cpu")(self.x + 1)
            numpy.testing.assert_array_equal(out, wanted)

    def test_arguments_may_change_after_the_call(self):
        x = aligned(numpy.random.default_rng(1).standard_normal((65536, 40), numpy.float32))
        f = braze.jit_text(SOFTMAX, "cpu")
        wanted = f(braze.array(x, "cpu")).numpy()
        y = f(x)
        x[:] = 0
        numpy.testing.assert_array_equal(y.numpy(), wanted)

    def test_read_only(self):
        x = self.x.copy()
        x.flags.writeable = False
        self.assertEqual(braze.jit_text(SOFTMAX, "cpu")(x).shape, x.shape)

    def test_arguments_that_are_updated(self):
        step = braze.jit_text(STEP, "cpu")
        w, g = numpy.ones(16, numpy.float32), numpy.full(16, 2, numpy.float32)
        for given in (w, aligned(w)):  # another library's memory stays as it is
            following, change = step(given, g, 0.25)
            numpy.testing.assert_array_equal(following.numpy(), w - 0.5)
            numpy.testing.assert_array_equal(change.numpy(), w / 2)
            numpy.testing.assert_array_equal(given, 1)
        mine = braze.array(w, "cpu")
        step(mine, g, 0.25)
        with self.assertRaisesRegex(braze.InvalidArgument, "donated"):
            mine.numpy()
        borrowed = braze.from_dlpack(aligned(w))
        with self.assertRaises(braze.InvalidArgument) as caught:
            step(borrowed, g, 0.25)
        self.assertEqual(caught.exception.code, "foreign-donated")

    def test_exchange(self):
        y = braze.jit_text(SOFTMAX, "cpu")(self.x)
        for capsule in (y.__dlpack__(), y.__dlpack__(max_version=(1, 0)), y.__dlpack__(stream=None)):
            del capsule  # nobody took it
        with self.assertRaises(BufferError):
            y.__dlpack__(dl_device=(2, 0))
        copy = braze.Array(braze._native.array_from_dlpack(y.__dlpack__(copy=True), False))
        numpy.testing.assert_array_equal(copy.numpy(), y.numpy())
        self.assertNotEqual(copy.numpy().ctypes.data, y.numpy().ctypes.data)
        capsule = y.__dlpack__(max_version=(1, 0))
        braze._native.array_from_dlpack(capsule, False)
        with self.assertRaises(ValueError):  # it is taken
            braze._native.array_from_dlpack(capsule, False)

    def test_the_end_of_the_process(self):
        # With work under way, with arrays that live, and with memory of NumPy's in both.
        program = f"""
import braze, numpy
f = braze.jit_text({SOFTMAX!r}, "cpu")
x = numpy.ones((65536, 40), numpy.float32)
kept = braze.from_dlpack(x)
for _ in range(5):
    y = f(kept)
z = y.numpy()
f(braze.from_dlpack(numpy.ones((65536, 40), numpy.float32)))
print("end")
"""
        for _ in range(5):
            done = subprocess.run([sys.executable, "-c", program], timeout=120, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual((done.returncode, done.stdout), (0, "end\n"))


if __name__ == "__main__":
    unittest.main()
