# `cpack`, in a build folder: Debian packages and archives, runtime and compiler apart.
set(CPACK_PACKAGE_NAME braze)
set(CPACK_PACKAGE_VENDOR Braze)
set(CPACK_PACKAGE_CONTACT "the Braze developers <braze@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_FILE_NAME braze-${PROJECT_VERSION}-linux-x86_64)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB TXZ)
set(CPACK_COMPONENTS_ALL runtime runtime-development compiler compiler-development)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/cpack-generator.cmake)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libbraze-runtime)
set(CPACK_DEBIAN_RUNTIME-DEVELOPMENT_PACKAGE_NAME libbraze-runtime-dev)
set(CPACK_DEBIAN_COMPILER_PACKAGE_NAME braze)
set(CPACK_DEBIAN_COMPILER-DEVELOPMENT_PACKAGE_NAME libbraze-dev)

include(CPack)
cpack_add_component(runtime GROUP runtime
  DESCRIPTION "Library and tool that run compiled packages; no compiler")
cpack_add_component(runtime-development GROUP runtime DEPENDS runtime
  DESCRIPTION "Headers to build programs on the runtime")
cpack_add_component(compiler GROUP compiler DEPENDS runtime
  DESCRIPTION "The compiler as a library, and its command line tool")
cpack_add_component(compiler-development GROUP compiler DEPENDS compiler runtime-development
  DESCRIPTION "Headers to build programs on the compiler")
cpack_add_component_group(runtime)
cpack_add_component_group(compiler)
