# Defines braze::runtime (what deployed programs need) and, where it is installed, braze::braze (compiler
# and frontend). find_package(Braze CONFIG REQUIRED COMPONENTS compiler) insists on the second.
include(${CMAKE_CURRENT_LIST_DIR}/braze-runtime-targets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/braze-targets.cmake OPTIONAL)

if(TARGET braze::runtime)
  set(Braze_runtime_FOUND TRUE)
endif()
if(TARGET braze::braze)
  set(Braze_compiler_FOUND TRUE)
endif()
foreach(component ${Braze_FIND_COMPONENTS})
  if(NOT Braze_${component}_FOUND AND Braze_FIND_REQUIRED_${component})
    set(Braze_FOUND FALSE)
    set(Braze_NOT_FOUND_MESSAGE "the component ${component} of Braze is not installed")
  endif()
endforeach()
