# Four components, each of use with those before it: the runtime (library, braze-run), what programs
# need to be built on it, the compiler (library, command line tool), and the same for it.
# The installed tree can be moved: every path in it is relative.
include(CMakePackageConfigHelpers)
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/braze)
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# install_library(TARGET COMPONENT HEADER_FOLDERS...)
function(install_library target component)
  install(TARGETS ${target} EXPORT ${target}-targets
    LIBRARY COMPONENT ${component} NAMELINK_COMPONENT ${component}-development
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT ${target}-targets NAMESPACE braze::
    DESTINATION ${config_folder} COMPONENT ${component}-development)
  install(DIRECTORY ${ARGN} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT ${component}-development FILES_MATCHING PATTERN *.h)
  configure_file(cmake/${target}.pc.in ${target}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${target}.pc
    DESTINATION ${pkgconfig_folder} COMPONENT ${component}-development)
endfunction()

file(RELATIVE_PATH relative_prefix /prefix/${pkgconfig_folder} /prefix)
install_library(braze-runtime runtime ir/include/ runtime/include/)
install_library(braze compiler compiler/include/ frontend/include/)
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DSOURCE=${PROJECT_SOURCE_DIR}\"
    \"-DDESTINATION=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/braze\"
    -P \"${PROJECT_SOURCE_DIR}/cmake/install_internals.cmake\" COMMAND_ERROR_IS_FATAL ANY)"
  COMPONENT runtime-development)
set(generated ${PROJECT_BINARY_DIR}/include/braze)
install(FILES ${generated}/version.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/braze COMPONENT runtime-development)
install(FILES ${generated}/elementwise.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/braze COMPONENT compiler-development)

write_basic_package_version_file(${PROJECT_BINARY_DIR}/braze-config-version.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES cmake/braze-config.cmake ${PROJECT_BINARY_DIR}/braze-config-version.cmake
  DESTINATION ${config_folder} COMPONENT runtime-development)
# Plugins for the MPI that was here when Braze was built, and their source for others. No package has
# the former, which would need every implementation.
install(FILES ${BRAZE_MPI_PLUGINS} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi OPTIONAL)
install(FILES runtime/ranks/mpi/braze_mpi.c runtime/ranks/mpi/braze_mpi.h
  DESTINATION ${CMAKE_INSTALL_DATADIR}/braze/mpi COMPONENT runtime)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

# The terms of what is linked into each component, as Debian keeps them.
function(install_notices component)
  foreach(package IN LISTS ARGN)
    file(REAL_PATH /usr/share/doc/${package}/copyright notice)
    install(FILES ${notice} DESTINATION ${CMAKE_INSTALL_DOCDIR}/notices RENAME ${package}
      COMPONENT ${component} OPTIONAL)
  endforeach()
endfunction()
install_notices(runtime libfmt-dev libsodium-dev libxxhash-dev zlib1g-dev libcli11-dev libstdc++-12-dev)
install_notices(compiler llvm-22-dev libpcre2-dev libutf8proc-dev libzstd-dev)

if(PROJECT_IS_TOP_LEVEL)
  include(BrazePackages)
endif()
