# Defines braze::braze (compiler and frontend) and braze::runtime (what deployed programs need).
include(${CMAKE_CURRENT_LIST_DIR}/braze-targets.cmake)
