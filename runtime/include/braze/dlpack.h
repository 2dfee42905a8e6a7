// dlpack.h — exchange of tensors with other libraries by DLPack, without a copy.
//
// The structures are those of <dlpack/dlpack.h>. A program that accesses their members includes
// that header itself. On a GPU both sides agree on a stream: while a StreamGuard selects the other
// library's stream, a tensor from that library must be ready in the order of the stream, and an
// exported tensor is ready in it.
#pragma once

#include "braze/array.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace braze {

/// An array over the memory of the tensor, or a copy if Array::borrow would make one. Takes
/// ownership of the tensor in any case: its deleter is called when nothing needs it any more, on
/// any thread. Unsupported for a version, element type or device that Braze does not have.
/// InvalidArgument for a tensor that cannot be an array, and if `may_copy` is false and a copy is
/// necessary.
Array from_dlpack(DLManagedTensorVersioned* tensor, bool may_copy = true);
/// The same for tensors in the form before DLPack 1.0.
Array from_dlpack(DLManagedTensor* tensor, bool may_copy = true);

/// The array as a tensor. The receiver must not write to it (it is marked as read-only), and must
/// call its deleter. On the host this waits until the value is computed. On a GPU the current
/// stream waits, and the receiver uses the tensor in that stream until it calls the deleter. A call
/// cannot overwrite an exported array.
DLManagedTensorVersioned* to_dlpack(const Array& array);
/// The same for libraries that know only the form before DLPack 1.0, which has no read-only mark.
DLManagedTensor* to_dlpack_unversioned(const Array& array);

}  // namespace braze
