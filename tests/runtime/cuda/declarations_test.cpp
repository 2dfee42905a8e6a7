// Our declarations of the CUDA driver against the toolkit's, where the build found it.
#include <gtest/gtest.h>

#include "runtime/devices/cuda/driver_api.h"

#if __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>

#include <type_traits>

namespace braze::test {
namespace {

/// Whether two types are passed and laid out alike.
template <class A, class B>
struct SameType {
  static constexpr bool value = [] {
    if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
      using P = std::remove_pointer_t<A>;
      using Q = std::remove_pointer_t<B>;
      if constexpr (std::is_const_v<P> != std::is_const_v<Q>) return false;
      // What handles point to is the driver's secret.
      constexpr bool kOpaque = std::is_class_v<P> && std::is_class_v<Q>;
      if constexpr (kOpaque || std::is_void_v<P> || std::is_void_v<Q>) {
        return kOpaque || (std::is_void_v<P> && std::is_void_v<Q>);
      } else {
        return SameType<std::remove_const_t<P>, std::remove_const_t<Q>>::value;
      }
    } else {
      return std::is_enum_v<A> == std::is_enum_v<B> &&
             std::is_integral_v<A> == std::is_integral_v<B> &&
             std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
             std::is_signed_v<A> == std::is_signed_v<B> && sizeof(A) == sizeof(B);
    }
  }();
};

template <class A, class B>
struct SameFunction : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameFunction<R (*)(A...), S (*)(B...)>
    : std::bool_constant<SameType<R, S>::value && (SameType<A, B>::value && ...)> {
};

static_assert(!SameFunction<int (*)(int*), int (*)(const int*)>::value);
static_assert(!SameFunction<int (*)(int), int (*)(unsigned)>::value);
static_assert(!SameFunction<int (*)(int), int (*)(int, int)>::value);
static_assert(!SameFunction<int (*)(size_t), int (*)(unsigned)>::value);
static_assert(!SameFunction<int (*)(void*), int (*)(void**)>::value);

TEST(CudaDeclarations, Functions) {
#define FUNCTION(member, name, version, ...) \
  EXPECT_TRUE((SameFunction<decltype(cuda::Api::member), PFN_##name##_v##version>::value)) << #name;
#include "runtime/devices/cuda/driver_api.def"
}

TEST(CudaDeclarations, Values) {
#define VALUE(type, name, number)                                      \
  EXPECT_EQ(static_cast<unsigned>(::name), unsigned{number}) << #name; \
  EXPECT_TRUE((std::is_same_v<decltype(::name), ::type>)) << #name;    \
  EXPECT_EQ(sizeof(cuda::type), sizeof(::type)) << #type;
#include "runtime/devices/cuda/driver_api.def"
}

TEST(CudaDeclarations, Structures) {
#define SAME_SIZE(type)                          \
  EXPECT_EQ(sizeof(cuda::type), sizeof(::type)); \
  EXPECT_EQ(alignof(cuda::type), alignof(::type))
#define SAME_MEMBER(type, member)                                    \
  EXPECT_EQ(offsetof(cuda::type, member), offsetof(::type, member)); \
  EXPECT_EQ(sizeof(cuda::type::member), sizeof(::type::member))
  SAME_SIZE(CUdevice);
  SAME_SIZE(CUdeviceptr);
  SAME_SIZE(CUtensorMap);
  SAME_SIZE(CUlaunchAttributeValue);
  SAME_MEMBER(CUlaunchAttributeValue, cooperative);
  SAME_MEMBER(CUlaunchAttributeValue, clusterDim);
  SAME_MEMBER(CUlaunchAttributeValue, programmaticStreamSerializationAllowed);
  SAME_SIZE(CUlaunchAttribute);
  SAME_MEMBER(CUlaunchAttribute, id);
  SAME_MEMBER(CUlaunchAttribute, value);
  SAME_SIZE(CUlaunchConfig);
  SAME_MEMBER(CUlaunchConfig, gridDimX);
  SAME_MEMBER(CUlaunchConfig, gridDimY);
  SAME_MEMBER(CUlaunchConfig, gridDimZ);
  SAME_MEMBER(CUlaunchConfig, blockDimX);
  SAME_MEMBER(CUlaunchConfig, blockDimY);
  SAME_MEMBER(CUlaunchConfig, blockDimZ);
  SAME_MEMBER(CUlaunchConfig, sharedMemBytes);
  SAME_MEMBER(CUlaunchConfig, hStream);
  SAME_MEMBER(CUlaunchConfig, attrs);
  SAME_MEMBER(CUlaunchConfig, numAttrs);
}

}  // namespace
}  // namespace braze::test

#else

TEST(CudaDeclarations, AreCompared) {
  GTEST_SKIP() << "no cuda.h was found when this was built; a CUDA toolkit of 12.0 or later has it";
}

#endif
