// microsoft.cpp — operators of the domain com.microsoft, which exported transformers hold.
#include "frontend/models/onnx/node.h"

namespace braze::onnx {

const Rows& microsoft_rows() {
  static const Rows kRows = {};
  return kRows;
}

}  // namespace braze::onnx
