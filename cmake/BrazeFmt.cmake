# The target braze_fmt: fmt as a static library of our own. Its headers alone would be compiled into
# every file, which doubles the time of the build; its shared library would be one more thing that a
# deployed program needs. What there is to compile is known for fmt 9; others stay headers.
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  add_library(braze_fmt STATIC ir/support/fmt.cpp)
  set_target_properties(braze_fmt PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(braze_fmt SYSTEM PUBLIC
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_options(braze_fmt PRIVATE $<$<CONFIG:Release>:-Os>)
  target_link_libraries(braze_fmt PRIVATE braze_options)
else()
  add_library(braze_fmt INTERFACE)
  target_link_libraries(braze_fmt INTERFACE fmt::fmt-header-only)
endif()
