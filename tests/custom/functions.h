// functions.h — the functions that the tests of custom calls register, on memory of the host.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>

#include "braze/custom_function.h"

namespace braze::testing {

inline std::atomic<int> calls_of_count = 0;

/// Every element of operand 0 times the number in the attributes, plus the last of operand 1.
inline std::string scale(const CustomArguments& call) {
  const CustomTensor &x = call.operands[0], &y = call.result;
  if (x.dtype != DType::F32 || y.bytes != x.bytes) return "the types do not fit";
  const float factor = std::strtof(std::string(call.attributes).c_str(), nullptr);
  const float more = call.operands.size() > 1 ? call.operands[1].as<float>().back() : 0;
  for (size_t i = 0; i < y.as<float>().size(); ++i)
    y.as<float>()[i] = factor * x.as<float>()[i] + more;
  return "";
}

/// Registers all functions, once for the process:
///   test.scale    see above
///   test.odd      whether the elements of an i64 tensor are odd, as bytes other than 0
///   test.extents  the extents of operand 0, as i64
///   test.count    counts its calls, and returns their number in every element of an f32 result
///   test.fail     returns its attributes as the reason of a failure
///   test.throw    throws
inline void register_functions() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_custom_call("test.scale", DeviceKind::Cpu, scale);
    register_custom_call("test.odd", DeviceKind::Cpu, [](const CustomArguments& call) {
      for (size_t i = 0; i < call.result.bytes; ++i)
        call.result.as<uint8_t>()[i] = call.operands[0].as<int64_t>()[i] % 2 ? 6 : 0;
      return std::string();
    });
    register_custom_call("test.extents", DeviceKind::Cpu, [](const CustomArguments& call) {
      for (size_t i = 0; i < call.operands[0].shape.size(); ++i)
        call.result.as<int64_t>()[i] = call.operands[0].shape[i];
      return std::string();
    });
    register_custom_call("test.count", DeviceKind::Cpu, [](const CustomArguments& call) {
      const int number = ++calls_of_count;
      for (float& y : call.result.as<float>()) y = static_cast<float>(number);
      return std::string();
    });
    register_custom_call("test.fail", DeviceKind::Cpu,
                         [](const CustomArguments& call) { return std::string(call.attributes); });
    register_custom_call("test.throw", DeviceKind::Cpu, [](const CustomArguments&) -> std::string {
      throw std::runtime_error("it was thrown");
    });
  });
}

}  // namespace braze::testing
