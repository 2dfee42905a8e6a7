# The installed tree can be moved: every path in it is relative.
include(CMakePackageConfigHelpers)
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/braze)
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS braze braze-runtime EXPORT braze-targets
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT braze-targets NAMESPACE braze:: DESTINATION ${config_folder})
install(DIRECTORY
  ir/include/ runtime/include/ compiler/include/ frontend/include/ ${PROJECT_BINARY_DIR}/include/
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)

write_basic_package_version_file(${PROJECT_BINARY_DIR}/braze-config-version.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES cmake/braze-config.cmake ${PROJECT_BINARY_DIR}/braze-config-version.cmake
  DESTINATION ${config_folder})

file(RELATIVE_PATH relative_prefix /prefix/${pkgconfig_folder} /prefix)
configure_file(cmake/braze.pc.in braze.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/braze.pc DESTINATION ${pkgconfig_folder})

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
