# A Debian package for each component; an archive for runtime and compiler, each with its headers.
if(CPACK_GENERATOR STREQUAL DEB)
  set(CPACK_COMPONENTS_GROUPING IGNORE)
else()
  set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
