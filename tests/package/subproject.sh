#!/usr/bin/env bash
# Usage: subproject.sh CMAKE COMPILER SOURCE. Configures a project that takes Braze in with
# FetchContent, and expects the library targets, no tests, and untouched settings.
set -euo pipefail
cmake=$1 compiler=$2 source=$3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES CXX)
include(FetchContent)
FetchContent_Declare(braze SOURCE_DIR ${BRAZE_SOURCE})
FetchContent_MakeAvailable(braze)

foreach(target braze::braze braze::runtime)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "no target ${target}")
  endif()
endforeach()
if(TARGET GTest::gtest OR TARGET braze-tool)
  message(FATAL_ERROR "tests and tools belong to the top level project only")
endif()
foreach(variable CMAKE_CXX_FLAGS CMAKE_CXX_STANDARD CMAKE_CXX_COMPILER_LAUNCHER)
  if(${variable})
    message(FATAL_ERROR "${variable} is now ${${variable}}")
  endif()
endforeach()
END
env -u CXXFLAGS "$cmake" -S "$work" -B "$work/build" -G Ninja -DBRAZE_SOURCE="$source" \
  -DCMAKE_CXX_COMPILER="$compiler" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
