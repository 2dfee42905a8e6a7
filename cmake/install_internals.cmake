# Some public headers (graph.h, program.h ...) lead into Braze's own tree: "ir/graph/graph.h". Installed,
# whatever they reach stands below include/braze: "braze/ir/graph/graph.h".
# Usage: cmake -DSOURCE=... -DDESTINATION=.../include/braze -P install_internals.cmake
cmake_policy(SET CMP0057 NEW)  # IN_LIST

function(take from to)
  get_property(taken GLOBAL PROPERTY TAKEN)
  if(from IN_LIST taken)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY TAKEN ${from})
  file(READ ${SOURCE}/${from} text)
  string(REGEX MATCHALL "#include \"ir/[^\"]+\"" includes "${text}")
  string(REPLACE "#include \"ir/" "#include \"braze/ir/" text "${text}")
  file(WRITE ${DESTINATION}/${to} "${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include \"(.*)\"" "\\1" next "${include}")
    take(${next} ${next})
  endforeach()
endfunction()

foreach(header graph program host_tensor target)
  take(ir/include/braze/${header}.h ${header}.h)
endforeach()
