# The kinds of target Braze is made of: layers (a folder, compiled once), shared libraries, tests.

# braze_precompile(NAME GROUP HEADERS...): target NAME starts from these headers, compiled once for its
# GROUP of targets with the same flags. To read them takes longer than most files' own code. Files
# include what they use all the same; compilers other than g++ build without.
function(braze_precompile name group)
  if(NOT BRAZE_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()
  endif()
  get_property(first GLOBAL PROPERTY BRAZE_PRECOMPILED_${group})
  if(first)
    target_precompile_headers(${name} REUSE_FROM ${first})
  else()
    target_precompile_headers(${name} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY BRAZE_PRECOMPILED_${group} ${name})
  endif()
endfunction()
set(BRAZE_COMMON_HEADERS <fmt/format.h> <algorithm> <array> <atomic> <filesystem> <fstream> <functional>
  <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view>
  <unordered_map> <unordered_set> <utility> <variant> <vector>)

# braze_layer(NAME SOURCES...) compiles one folder as position independent objects.
function(braze_layer name)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/include
    ${PROJECT_SOURCE_DIR}/ir/include ${PROJECT_SOURCE_DIR}/runtime/include
    ${PROJECT_SOURCE_DIR}/compiler/include ${PROJECT_SOURCE_DIR}/frontend/include)
  target_link_libraries(${name} PRIVATE braze_options braze_fmt Threads::Threads)
  # Errors name files as the repository does, whatever folder it was built in.
  target_compile_options(${name} PRIVATE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  braze_precompile(${name} layers ${BRAZE_COMMON_HEADERS})
endfunction()

# braze_small(SOURCES...): code that no compilation, call or warm start runs. Released, it shall be
# small rather than fast: the runtime library is to be at most 3 MB.
function(braze_small)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-Os>)
  if(CMAKE_BUILD_TYPE STREQUAL Release)  # the precompiled headers are for other flags
    set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# braze_library(NAME LAYERS...) links layers into a shared library that exports namespace braze only.
function(braze_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LAYERS")
  set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  add_library(${name} SHARED)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PRIVATE ${arg_LAYERS} $<BUILD_INTERFACE:braze_options>)
  target_link_options(${name} PRIVATE
    -Wl,--version-script=${exports} -Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,--as-needed
    -Wl,--build-id=sha1  # a part of every key of the cache on disk
    -Wl,-z,nodelete)  # its threads live as long as the process, whoever closes it
  # An undefined symbol here is a layer that uses one above it. Sanitizers leave theirs open.
  if(NOT BRAZE_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
  set_target_properties(${name} PROPERTIES
    LINK_DEPENDS ${exports}
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}
    INSTALL_RPATH $ORIGIN
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
endfunction()

# braze_executable(NAME SOURCES ... LIBS ...) sees private headers, as tools, tests and benchmarks do.
function(braze_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  if(NOT arg_SOURCES)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  set_property(GLOBAL APPEND PROPERTY BRAZE_EXECUTABLES ${name})  # what the bundle packs
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE
    braze::braze braze_options braze_fmt ${arg_LIBS})
  set_target_properties(${name} PROPERTIES
    INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR}
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  if(arg_LIBS MATCHES "main-of-tests")
    braze_precompile(${name} tests ${BRAZE_COMMON_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
  else()
    braze_precompile(${name} programs ${BRAZE_COMMON_HEADERS})
  endif()
endfunction()

# braze_test_without_cache() keeps whatever CTest runs from the user's own cache; tests of the cache
# make one for themselves. (Tests by GoogleTest do so also by hand: tests/main.cpp.)
function(braze_test_without_cache)
  set(script ${PROJECT_BINARY_DIR}/test_environment.cmake)
  file(WRITE ${script} "set(ENV{BRAZE_CACHE} off)\n")
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()

# Suites of a few seconds run before long ones, so that most mistakes show at once: CTest begins with
# the greatest COST, which is the time that a suite took before where no other is given. Long ones say
# theirs, so that none of them is left for the end of a first run.
set(BRAZE_QUICK_COST 1000000)

# braze_test(NAME SOURCES ... [LIBS ...] [SHARDS n] [LONG seconds]) makes the executable test-NAME and
# registers it with CTest, labelled with its folder below tests/. SHARDS splits a suite into n
# entries; those of a LONG one run after the quick ones, the longest first.
function(braze_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SHARDS;LONG" "SOURCES;LIBS")
  if(NOT arg_SOURCES)
    return()
  endif()
  braze_executable(test-${name} SOURCES ${arg_SOURCES} LIBS main-of-tests ${arg_LIBS})
  target_compile_definitions(test-${name} PRIVATE BRAZE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${arg_SHARDS})
    set(entry ${name})
    if(arg_SHARDS GREATER 1)
      set(entry ${name}.${shard})
    endif()
    math(EXPR index "${shard} - 1")
    braze_test_entry(${entry} test-${name}
      ENVIRONMENT GTEST_TOTAL_SHARDS=${arg_SHARDS} GTEST_SHARD_INDEX=${index})
    if(NOT arg_LONG)
      set(arg_LONG ${BRAZE_QUICK_COST})
    endif()
    set_tests_properties(${entry} PROPERTIES COST ${arg_LONG})
  endforeach()
endfunction()

# braze_test_entry(NAME TARGET [DEVICE d] [LABELS ...] [ENVIRONMENT ...]) registers one more run of a
# test that braze_test made. With DEVICE, BRAZE_TEST_DEVICE is d, and the entry is skipped where there
# is no such device.
function(braze_test_entry name target)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "DEVICE" "LABELS;ENVIRONMENT")
  set(timeout 600)
  if(BRAZE_SANITIZE)
    set(timeout 1800)
  endif()
  if(arg_DEVICE)
    list(APPEND arg_ENVIRONMENT BRAZE_TEST_DEVICE=${arg_DEVICE})
  endif()
  braze_where_devices_are(where "${arg_DEVICE}")
  file(RELATIVE_PATH label ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME ${name} COMMAND ${where} $<TARGET_FILE:${target}> --gtest_brief=1
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  # What 77 means to CTest, tests/main.cpp and the scripts of tests/ mean by it.
  set_tests_properties(${name} PROPERTIES LABELS "${label};${arg_LABELS}" TIMEOUT ${timeout}
    SKIP_RETURN_CODE 77 ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

# braze_where_devices_are(VARIABLE DEVICES): words to put before the command of an entry, so that it is
# skipped where one of the devices is not there. None where all are there on every machine.
function(braze_where_devices_are variable devices)
  list(FILTER devices INCLUDE REGEX ^cuda)
  set(words)
  if(devices)
    list(JOIN devices " " devices)
    set(words ${PROJECT_SOURCE_DIR}/tests/where_devices_are.sh $<TARGET_FILE:braze-tool> ${devices})
  endif()
  set(${variable} ${words} PARENT_SCOPE)
endfunction()
