// dlpack.h — tensors of other libraries as Arrays, and Arrays as theirs, without a copy: DLPack.
//
// The structures are those of <dlpack/dlpack.h>, which a program that looks into them brings
// itself. On a GPU both sides agree on a stream: under a StreamGuard of the other library's stream,
// what it hands over is ready where that stream has come to, and what it is handed is ready there.
#pragma once

#include "braze/array.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace braze {

/// An array over the tensor's memory, or a copy where Array::borrow makes one. Takes the tensor
/// over, whatever happens: its deleter is called when nothing needs it any more, on any thread.
/// Unsupported for a version, element type or device that Braze does not have; InvalidArgument for
/// what cannot be an array, and where `may_copy` is false and it could only be copied.
Array from_dlpack(DLManagedTensorVersioned* tensor, bool may_copy = true);
/// The same for what libraries handed over before DLPack 1.0.
Array from_dlpack(DLManagedTensor* tensor, bool may_copy = true);

/// The array as a tensor, which the receiver must not write (it is marked so), and whose deleter it
/// calls. Waits until a value on the host is computed; on a GPU the current stream does, and the
/// receiver uses it there until it calls the deleter. An array that is lent so is not donated.
DLManagedTensorVersioned* to_dlpack(const Array& array);
/// The same for libraries that know no version, and no mark.
DLManagedTensor* to_dlpack_unversioned(const Array& array);

}  // namespace braze
