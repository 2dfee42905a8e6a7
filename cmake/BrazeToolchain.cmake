# Flags and tools every Braze target uses, gathered in the interface target braze_options.
# Nothing here reaches a project that adds Braze with add_subdirectory or FetchContent.

if(PROJECT_IS_TOP_LEVEL)
  find_program(BRAZE_CCACHE ccache)
  if(BRAZE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${BRAZE_CCACHE})
    if(BRAZE_PRECOMPILE)
      # It keeps nothing that was compiled with a precompiled header unless it is told that it may.
      list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_INODECACHE=1)
    endif()
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(braze_options INTERFACE)
target_compile_features(braze_options INTERFACE cxx_std_20)
# Results must not depend on which multiply-add pairs a host compiler happens to contract.
target_compile_options(braze_options INTERFACE
  -ffp-contract=off $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>
  -Wall -Wextra -Wshadow -Wundef
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual;-Wextra-semi>
  # Designated initialisers leave the rest to the member defaults.
  -Wno-missing-field-initializers
  # These three report impossible paths through libstdc++ when g++ 12 inlines it.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow>
  # libstdc++ 12 marks what its own std::stable_sort calls as deprecated; clang reports that to us.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
  $<$<BOOL:${BRAZE_WERROR}>:-Werror>)

find_program(BRAZE_LLD ld.lld HINTS /usr/lib/llvm-22/bin)
if(BRAZE_LLD)
  get_filename_component(lld_folder ${BRAZE_LLD} DIRECTORY)
  target_link_options(braze_options INTERFACE -fuse-ld=lld -B${lld_folder})
endif()

if(BRAZE_SANITIZE)
  target_compile_options(braze_options INTERFACE
    -fsanitize=${BRAZE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(braze_options INTERFACE -fsanitize=${BRAZE_SANITIZE})
  # NVTX and those who listen have names of their own for the same types.
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    set(BRAZE_BESIDE_NVTX -fno-sanitize=function)
  endif()
endif()
if(BRAZE_FUZZ)
  target_compile_options(braze_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
