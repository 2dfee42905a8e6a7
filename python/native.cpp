// native.cpp — the module braze._native: the functions of braze/c.h and braze/c_compile.h for
// Python. Handles are capsules; braze/__init__.py makes classes of them.
//
// It is compiled for Python's limited interface, so that one file serves Python 3.9 and all later.
// Whatever may wait, compile or call back another library's deleter runs without Python's lock:
// such a deleter may take that lock, on any thread.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack/dlpack.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "braze/c.h"
#include "braze/c_compile.h"

namespace {

// --- Python's lock and Braze's errors ------------------------------------------------------------

PyObject* make_error = nullptr;  // (status, code, text) -> exception; braze/__init__.py sets it

/// Runs `work`, which returns a status, without Python's lock. False: a Python error is set.
template <class Work>
bool call(Work&& work) {
  braze_status status = BRAZE_OK;
  std::string code, text;
  PyThreadState* const state = PyEval_SaveThread();
  try {
    status = work();
    if (status != BRAZE_OK) code = braze_last_error_code(), text = braze_last_error();
  } catch (const std::bad_alloc&) {
    status = BRAZE_RESOURCE_EXHAUSTED;
  }
  PyEval_RestoreThread(state);
  if (status == BRAZE_OK) return true;
  PyObject* const error =
      make_error ? PyObject_CallFunction(make_error, "iss", int(status), code.c_str(), text.c_str())
                 : nullptr;
  if (error) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
    Py_DECREF(error);
  } else if (!PyErr_Occurred()) {
    PyErr_SetString(PyExc_RuntimeError, text.c_str());
  }
  return false;
}

// --- Handles -------------------------------------------------------------------------------------

/// The name of a handle's capsules, and its release.
template <class Handle>
struct Kind;
template <>
struct Kind<braze_array> {
  static constexpr const char* kName = "braze.array";
  static constexpr auto kRelease = braze_array_release;
};
template <>
struct Kind<braze_package> {
  static constexpr const char* kName = "braze.package";
  static constexpr auto kRelease = braze_package_release;
};
template <>
struct Kind<braze_function> {
  static constexpr const char* kName = "braze.function";
  static constexpr auto kRelease = braze_function_release;
};
template <>
struct Kind<braze_stream> {
  static constexpr const char* kName = "braze.stream";
  static constexpr auto kRelease = braze_stream_release;
};

template <class Handle>
void release(Handle* handle) {
  PyThreadState* const state = PyEval_SaveThread();
  Kind<Handle>::kRelease(handle);
  PyEval_RestoreThread(state);
}

/// The capsule of a handle, which it takes over.
template <class Handle>
PyObject* wrap(Handle* handle) {
  PyObject* const capsule = PyCapsule_New(handle, Kind<Handle>::kName, [](PyObject* self) {
    release(static_cast<Handle*>(PyCapsule_GetPointer(self, Kind<Handle>::kName)));
  });
  if (!capsule) release(handle);
  return capsule;
}

/// The handle in a capsule; null, and a Python error, if it is another thing.
template <class Handle>
Handle* unwrap(PyObject* capsule) {
  return static_cast<Handle*>(PyCapsule_GetPointer(capsule, Kind<Handle>::kName));
}

/// Calls `make(&handle)` without Python's lock and wraps what it made.
template <class Handle, class Make>
PyObject* made(Make&& make) {
  Handle* handle = nullptr;
  return call([&] { return make(&handle); }) ? wrap(handle) : nullptr;
}

PyObject* none_if(bool ok) {
  if (!ok) return nullptr;
  Py_RETURN_NONE;
}

/// A list of `count` texts: those that `text(i)` gives.
template <class Text>
PyObject* texts(size_t count, Text&& text) {
  PyObject* const list = PyList_New(static_cast<Py_ssize_t>(count));
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* const item = PyUnicode_FromString(text(i));
    if (!item) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SetItem(list, static_cast<Py_ssize_t>(i), item);
  }
  return list;
}

// --- Devices -------------------------------------------------------------------------------------

PyObject* version(PyObject*, PyObject*) { return PyUnicode_FromString(braze_version()); }

PyObject* set_make_error(PyObject*, PyObject* function) {
  Py_INCREF(function);
  Py_XDECREF(make_error);
  make_error = function;
  Py_RETURN_NONE;
}

PyObject* devices(PyObject*, PyObject*) {
  size_t count = 0;
  if (!call([&] { return count = braze_devices(), BRAZE_OK; })) return nullptr;
  return texts(count, braze_device_name);
}

PyObject* default_device(PyObject*, PyObject*) {
  const char* name = nullptr;
  if (!call([&] { return name = braze_default_device(), BRAZE_OK; })) return nullptr;
  return PyUnicode_FromString(name);
}

PyObject* synchronize(PyObject*, PyObject* arguments) {
  const char* device = nullptr;
  if (!PyArg_ParseTuple(arguments, "s", &device)) return nullptr;
  return none_if(call([&] { return braze_synchronize(device); }));
}

// --- Functions -----------------------------------------------------------------------------------

PyObject* package_load(PyObject*, PyObject* arguments) {
  const char *path = nullptr, *weights = nullptr, *keys = nullptr;
  int trust = 0;
  if (!PyArg_ParseTuple(arguments, "szpz", &path, &weights, &trust, &keys)) return nullptr;
  const braze_package_options options{sizeof(options), weights, trust, keys};
  return made<braze_package>(
      [&](braze_package** out) { return braze_package_load(path, &options, out); });
}

PyObject* package_functions(PyObject*, PyObject* package) {
  const auto* const handle = unwrap<braze_package>(package);
  if (!handle) return nullptr;
  return texts(braze_package_functions(handle),
               [&](size_t i) { return braze_package_function_name(handle, i); });
}

PyObject* function_load(PyObject*, PyObject* arguments) {
  PyObject* package = nullptr;
  const char *name = nullptr, *device = nullptr;
  if (!PyArg_ParseTuple(arguments, "Ozs", &package, &name, &device)) return nullptr;
  const auto* const handle = unwrap<braze_package>(package);
  if (!handle) return nullptr;
  return made<braze_function>(
      [&](braze_function** out) { return braze_function_load(handle, name, device, out); });
}

PyObject* function_compile(PyObject*, PyObject* arguments) {
  const char *text = nullptr, *name = nullptr, *precision = nullptr, *device = nullptr;
  int fuse = 1;
  if (!PyArg_ParseTuple(arguments, "sszps", &text, &name, &precision, &fuse, &device))
    return nullptr;
  const braze_compile_options options{sizeof(options), precision, nullptr, !fuse};
  return made<braze_function>([&](braze_function** out) {
    return braze_function_compile(text, name, &options, device, out);
  });
}

/// (name, device, names of inputs, their types, names of outputs, their types, the arguments whose
/// memory they take over)
PyObject* function_signature(PyObject*, PyObject* function) {
  const auto* const f = unwrap<braze_function>(function);
  if (!f) return nullptr;
  const size_t inputs = braze_function_inputs(f), outputs = braze_function_outputs(f);
  PyObject* const replaced = PyList_New(static_cast<Py_ssize_t>(outputs));
  for (size_t i = 0; replaced && i < outputs; ++i)
    PyList_SetItem(replaced, static_cast<Py_ssize_t>(i),
                   PyLong_FromLongLong(braze_function_output_replaces(f, i)));
  return Py_BuildValue("(ssNNNNN)", braze_function_name(f), braze_function_device(f),
                       texts(inputs, [&](size_t i) { return braze_function_input_name(f, i); }),
                       texts(inputs, [&](size_t i) { return braze_function_input_type(f, i); }),
                       texts(outputs, [&](size_t i) { return braze_function_output_name(f, i); }),
                       texts(outputs, [&](size_t i) { return braze_function_output_type(f, i); }),
                       replaced);
}

PyObject* function_explain(PyObject*, PyObject* function) {
  const auto* const handle = unwrap<braze_function>(function);
  return handle ? PyUnicode_FromString(braze_function_explain(handle)) : nullptr;
}

/// The handles of a sequence of arrays; false: a Python error is set.
bool handles_of(PyObject* sequence, std::vector<const braze_array*>& out) {
  const Py_ssize_t count = PySequence_Size(sequence);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PySequence_GetItem(sequence, i);
    if (!item) return false;
    out.push_back(unwrap<braze_array>(item));
    Py_DECREF(item);  // the sequence, a tuple, keeps it
    if (!out.back()) return false;
  }
  return count >= 0;
}

/// (function, arguments, whether to wait for the results)
PyObject* run(PyObject*, PyObject* arguments) {
  PyObject *function = nullptr, *given = nullptr;
  int wait = 0;
  if (!PyArg_ParseTuple(arguments, "OO!p", &function, &PyTuple_Type, &given, &wait)) return nullptr;
  const auto* const handle = unwrap<braze_function>(function);
  std::vector<const braze_array*> inputs;
  if (!handle || !handles_of(given, inputs)) return nullptr;
  std::vector<braze_array*> results(braze_function_outputs(handle));
  const bool ok = call([&] {
    braze_status status =
        braze_run(handle, inputs.data(), inputs.size(), results.data(), results.size());
    for (size_t i = 0; wait && status == BRAZE_OK && i < results.size(); ++i)
      status = braze_array_wait(results[i]);
    return status;
  });
  PyObject* const list = ok ? PyList_New(static_cast<Py_ssize_t>(results.size())) : nullptr;
  if (!list) {
    for (braze_array* result : results) release(result);
    return nullptr;
  }
  bool whole = true;
  for (size_t i = 0; i < results.size(); ++i) {
    PyObject* const item = wrap(results[i]);
    whole = whole && item;
    PyList_SetItem(list, static_cast<Py_ssize_t>(i), item);
  }
  if (whole) return list;
  Py_DECREF(list);
  return nullptr;
}

// --- Arrays --------------------------------------------------------------------------------------

PyObject* array_from_bytes(PyObject*, PyObject* arguments) {
  int dtype = 0;
  PyObject* shape = nullptr;
  const char *data = nullptr, *device = nullptr;
  Py_ssize_t bytes = 0;
  if (!PyArg_ParseTuple(arguments, "iO!y#s", &dtype, &PyTuple_Type, &shape, &data, &bytes, &device))
    return nullptr;
  std::vector<int64_t> extents;
  for (Py_ssize_t i = 0; i < PyTuple_Size(shape); ++i) {
    extents.push_back(PyLong_AsLongLong(PyTuple_GetItem(shape, i)));
    if (PyErr_Occurred()) return nullptr;
  }
  PyObject* const array = made<braze_array>([&](braze_array** out) {
    return braze_array_from_host(static_cast<braze_dtype>(dtype), extents.size(), extents.data(),
                                 data, device, out);
  });
  return array;
}

/// (dtype, shape, device)
PyObject* array_type(PyObject*, PyObject* array) {
  const auto* const handle = unwrap<braze_array>(array);
  if (!handle) return nullptr;
  const auto rank = static_cast<Py_ssize_t>(braze_array_rank(handle));
  PyObject* const shape = PyTuple_New(rank);
  for (Py_ssize_t i = 0; shape && i < rank; ++i)
    PyTuple_SetItem(shape, i, PyLong_FromLongLong(braze_array_shape(handle)[i]));
  return Py_BuildValue("(iNs)", int(braze_array_dtype(handle)), shape, braze_array_device(handle));
}

PyObject* array_wait(PyObject*, PyObject* array) {
  const auto* const handle = unwrap<braze_array>(array);
  if (!handle) return nullptr;
  return none_if(call([&] { return braze_array_wait(handle); }));
}

PyObject* array_to_bytes(PyObject*, PyObject* array) {
  const auto* const handle = unwrap<braze_array>(array);
  if (!handle) return nullptr;
  std::string bytes(braze_array_bytes(handle), '\0');
  if (!call([&] { return braze_array_to_host(handle, bytes.data(), bytes.size()); }))
    return nullptr;
  return PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
}

PyObject* array_to_device(PyObject*, PyObject* arguments) {
  PyObject* array = nullptr;
  const char* device = nullptr;
  if (!PyArg_ParseTuple(arguments, "Os", &array, &device)) return nullptr;
  const auto* const handle = unwrap<braze_array>(array);
  if (!handle) return nullptr;
  return made<braze_array>(
      [&](braze_array** out) { return braze_array_to_device(handle, device, out); });
}

// --- DLPack --------------------------------------------------------------------------------------

constexpr const char *kTensor = "dltensor", *kUsedTensor = "used_dltensor";
constexpr const char *kVersioned = "dltensor_versioned",
                     *kUsedVersioned = "used_dltensor_versioned";
constexpr size_t kAlignment = 64;  // of memory that Braze uses as it is

size_t count_of(const DLTensor& tensor) {
  size_t count = 1;
  for (int32_t axis = 0; axis < tensor.ndim; ++axis)
    count *= static_cast<size_t>(tensor.shape[axis]);
  return count;
}

bool is_dense(const DLTensor& tensor) {
  int64_t dense = 1;
  for (int32_t axis = tensor.ndim; tensor.strides && axis-- > 0;) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != dense) return false;
    dense *= tensor.shape[axis];
  }
  return true;
}

/// Whether the functions below can walk through it.
bool is_sound(const DLTensor& tensor) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && !tensor.shape)) return false;
  for (int32_t axis = 0; axis < tensor.ndim; ++axis) {
    constexpr int64_t kFurthest = int64_t{1} << 48;  // elements, beyond all addresses
    if (tensor.shape[axis] < 0) return false;
    int64_t far = 0;
    if (tensor.strides && (__builtin_mul_overflow(tensor.shape[axis], tensor.strides[axis], &far) ||
                           far > kFurthest || far < -kFurthest))
      return false;
  }
  return tensor.data || count_of(tensor) == 0;
}

/// Whether Braze can use the host's memory as it is.
bool is_usable(const DLTensor& tensor) {
  const auto* const data = static_cast<const unsigned char*>(tensor.data) + tensor.byte_offset;
  if (!is_dense(tensor) || reinterpret_cast<uintptr_t>(data) % kAlignment != 0) return false;
  return tensor.dtype.code != kDLBool ||
         std::all_of(data, data + count_of(tensor), [](unsigned char byte) { return byte <= 1; });
}

/// The element types of DLPack, in the order of braze_dtype.
constexpr DLDataType kTypes[] = {
    {kDLBool, 8, 1},   {kDLInt, 32, 1},          {kDLInt, 64, 1},        {kDLUInt, 32, 1},
    {kDLFloat, 16, 1}, {kDLBfloat, 16, 1},       {kDLFloat, 32, 1},      {kDLFloat, 64, 1},
    {kDLInt, 8, 1},    {kDLUInt, 8, 1},          {kDLInt, 16, 1},        {kDLUInt, 16, 1},
    {kDLUInt, 64, 1},  {kDLFloat8_e4m3fn, 8, 1}, {kDLFloat8_e5m2, 8, 1},
};
static_assert(std::size(kTypes) == BRAZE_F8E5M2 + 1);

/// The tensor's elements in row-major order.
std::string gathered(const DLTensor& tensor, size_t element) {
  std::string out(count_of(tensor) * element, '\0');
  const auto* from = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  std::vector<int64_t> at(static_cast<size_t>(tensor.ndim));
  for (size_t done = 0; done < out.size(); done += element) {
    std::memcpy(out.data() + done, from, element);
    for (int32_t axis = tensor.ndim; axis-- > 0;) {
      const int64_t stride = tensor.strides[axis] * static_cast<int64_t>(element);
      from += stride;
      if (++at[static_cast<size_t>(axis)] < tensor.shape[axis]) break;
      from -= stride * tensor.shape[axis];
      at[static_cast<size_t>(axis)] = 0;
    }
  }
  return out;
}

/// A copy on "cpu" of a tensor in the host's memory.
braze_status copy(const DLTensor& tensor, int dtype, braze_array** out) {
  const void* data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  std::string dense;
  if (!is_dense(tensor)) {
    dense = gathered(tensor, kTypes[dtype].bits / 8);
    data = dense.data();
  }
  return braze_array_from_host(static_cast<braze_dtype>(dtype), static_cast<size_t>(tensor.ndim),
                               tensor.shape, data, "cpu", out);
}

/// Takes `tensor` over. Memory of the host is copied if `always`, or if Braze cannot use it as it
/// is, which is usual with other libraries and therefore not worth the line that Braze would log.
template <class Managed>
braze_status import_tensor(Managed* managed, bool always,
                           braze_status (*borrow)(Managed*, braze_array**), braze_array** out) {
  const DLTensor& tensor = managed->dl_tensor;
  const DLDataType& type = tensor.dtype;
  const auto known = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const DLDataType& t) {
    return t.code == type.code && t.bits == type.bits && t.lanes == type.lanes;
  });
  if constexpr (requires { managed->version; })
    if (managed->version.major != DLPACK_MAJOR_VERSION) return borrow(managed, out);
  const bool on_host = tensor.device.device_type == kDLCPU;
  if (!on_host || known == std::end(kTypes) || !is_sound(tensor) || (!always && is_usable(tensor)))
    return borrow(managed, out);  // or Braze says what is wrong with it
  braze_status status = BRAZE_RESOURCE_EXHAUSTED;
  try {
    status = copy(tensor, static_cast<int>(known - kTypes), out);
  } catch (const std::bad_alloc&) {
    // as above; the tensor goes back nevertheless
  }
  if (managed->deleter) managed->deleter(managed);
  return status;
}

/// The array of a capsule whose tensor becomes Braze's.
template <class Managed>
PyObject* take(PyObject* capsule, const char* name, const char* used, bool always,
               braze_status (*borrow)(Managed*, braze_array**)) {
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (!managed || PyCapsule_SetName(capsule, used) != 0) return nullptr;
  return made<braze_array>(
      [&](braze_array** out) { return import_tensor(managed, always, borrow, out); });
}

/// (capsule, whether to copy what is in the host's memory)
PyObject* array_from_dlpack(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  int always = 0;
  if (!PyArg_ParseTuple(arguments, "Op", &capsule, &always)) return nullptr;
  return PyCapsule_IsValid(capsule, kVersioned)
             ? take(capsule, kVersioned, kUsedVersioned, always, braze_array_from_dlpack)
             : take(capsule, kTensor, kUsedTensor, always, braze_array_from_dlpack_unversioned);
}

/// What nobody took goes back.
template <class Managed>
void release_unused(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* const tensor = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  PyThreadState* const state = PyEval_SaveThread();
  tensor->deleter(tensor);
  PyEval_RestoreThread(state);
}

/// (array, whether the receiver knows versions, stream or None: the current one)
PyObject* array_to_dlpack(PyObject*, PyObject* arguments) {
  PyObject *array = nullptr, *stream = nullptr;
  int versioned = 0;
  if (!PyArg_ParseTuple(arguments, "OpO", &array, &versioned, &stream)) return nullptr;
  const auto* const handle = unwrap<braze_array>(array);
  braze_stream* const where = stream == Py_None ? nullptr : unwrap<braze_stream>(stream);
  if (!handle || (stream != Py_None && !where)) return nullptr;
  // The deleters of Braze's tensors need no lock of Python's.
  DLManagedTensorVersioned* with_version = nullptr;
  DLManagedTensor* without = nullptr;
  const bool ok = call([&] {
    if (where)
      if (const braze_status status = braze_stream_enter(where); status != BRAZE_OK) return status;
    const braze_status status = versioned ? braze_array_to_dlpack(handle, &with_version)
                                          : braze_array_to_dlpack_unversioned(handle, &without);
    if (where && status == BRAZE_OK) return braze_stream_leave();
    if (where) braze_stream_leave();
    return status;
  });
  if (!ok) return nullptr;
  if (versioned)
    return PyCapsule_New(with_version, kVersioned, [](PyObject* self) {
      release_unused<DLManagedTensorVersioned>(self, kVersioned);
    });
  return PyCapsule_New(without, kTensor,
                       [](PyObject* self) { release_unused<DLManagedTensor>(self, kTensor); });
}

// --- Streams -------------------------------------------------------------------------------------

PyObject* stream_new(PyObject*, PyObject* arguments) {
  const char* device = nullptr;
  if (!PyArg_ParseTuple(arguments, "s", &device)) return nullptr;
  return made<braze_stream>([&](braze_stream** out) { return braze_stream_new(device, out); });
}

PyObject* stream_current(PyObject*, PyObject* arguments) {
  const char* device = nullptr;
  if (!PyArg_ParseTuple(arguments, "s", &device)) return nullptr;
  return made<braze_stream>([&](braze_stream** out) { return braze_stream_current(device, out); });
}

/// (device, CUDA's handle as a number)
PyObject* stream_of_host(PyObject*, PyObject* arguments) {
  const char* device = nullptr;
  unsigned long long handle = 0;
  if (!PyArg_ParseTuple(arguments, "sK", &device, &handle)) return nullptr;
  return made<braze_stream>([&](braze_stream** out) {
    return braze_stream_of_host(device, reinterpret_cast<void*>(handle), out);
  });
}

PyObject* stream_native(PyObject*, PyObject* stream) {
  const auto* const handle = unwrap<braze_stream>(stream);
  if (!handle) return nullptr;
  return PyLong_FromVoidPtr(braze_stream_native(handle));
}

PyObject* stream_enter(PyObject*, PyObject* stream) {
  const auto* const handle = unwrap<braze_stream>(stream);
  if (!handle) return nullptr;
  return none_if(call([&] { return braze_stream_enter(handle); }));
}

PyObject* stream_leave(PyObject*, PyObject*) { return none_if(call(braze_stream_leave)); }

PyObject* stream_synchronize(PyObject*, PyObject* stream) {
  const auto* const handle = unwrap<braze_stream>(stream);
  if (!handle) return nullptr;
  return none_if(call([&] { return braze_stream_synchronize(handle); }));
}

// --- The module ----------------------------------------------------------------------------------

PyMethodDef kMethods[] = {
    {"version", version, METH_NOARGS, nullptr},
    {"set_make_error", set_make_error, METH_O, nullptr},
    {"devices", devices, METH_NOARGS, nullptr},
    {"default_device", default_device, METH_NOARGS, nullptr},
    {"synchronize", synchronize, METH_VARARGS, nullptr},
    {"package_load", package_load, METH_VARARGS, nullptr},
    {"package_functions", package_functions, METH_O, nullptr},
    {"function_load", function_load, METH_VARARGS, nullptr},
    {"function_compile", function_compile, METH_VARARGS, nullptr},
    {"function_signature", function_signature, METH_O, nullptr},
    {"function_explain", function_explain, METH_O, nullptr},
    {"run", run, METH_VARARGS, nullptr},
    {"array_from_bytes", array_from_bytes, METH_VARARGS, nullptr},
    {"array_type", array_type, METH_O, nullptr},
    {"array_wait", array_wait, METH_O, nullptr},
    {"array_to_bytes", array_to_bytes, METH_O, nullptr},
    {"array_to_device", array_to_device, METH_VARARGS, nullptr},
    {"array_from_dlpack", array_from_dlpack, METH_VARARGS, nullptr},
    {"array_to_dlpack", array_to_dlpack, METH_VARARGS, nullptr},
    {"stream_new", stream_new, METH_VARARGS, nullptr},
    {"stream_current", stream_current, METH_VARARGS, nullptr},
    {"stream_of_host", stream_of_host, METH_VARARGS, nullptr},
    {"stream_native", stream_native, METH_O, nullptr},
    {"stream_enter", stream_enter, METH_O, nullptr},
    {"stream_leave", stream_leave, METH_NOARGS, nullptr},
    {"stream_synchronize", stream_synchronize, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "_native", nullptr, -1, kMethods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&kModule); }
