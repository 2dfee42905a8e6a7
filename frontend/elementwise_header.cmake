# Reads ir/ops/elementwise.def and writes, for each row, the declaration of its function on Tensors
# to braze/elementwise.h, documented by the row's meaning, and its definition to
# frontend/elementwise_functions.inc. So one row is all that a new elementwise op takes.
set(table ${PROJECT_SOURCE_DIR}/ir/ops/elementwise.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
file(STRINGS ${table} rows REGEX "^(MACHINE|MATH|FORMULA|ROUNDED)\\(")
set(declarations)
set(definitions)
foreach(row IN LISTS rows)
  # The meaning is the last string of the row; the gradient after it has no quotes.
  string(REGEX MATCH "^[A-Z]+\\(([a-z0-9_]+), ([123]), .*, \"([^\"]*)\", [^\"]*$" matched "${row}")
  if(NOT matched)
    message(FATAL_ERROR "elementwise.def has a row that is not as its first lines say: ${row}")
  endif()
  set(op ${CMAKE_MATCH_1})
  set(name ${op})
  set(arity ${CMAKE_MATCH_2})
  set(meaning "${CMAKE_MATCH_3}")
  # Two take the dtype they lead to, and select is called where; tensor.h has them.
  if(name STREQUAL convert OR name STREQUAL bitcast OR name STREQUAL select)
    continue()
  endif()
  # max and min are reductions, as in NumPy.
  if(name STREQUAL max OR name STREQUAL min)
    string(APPEND name imum)
  endif()
  if(arity EQUAL 1)
    set(operands "const Tensor& x")
  elseif(arity EQUAL 2)
    set(operands "const Operand& x, const Operand& y")
  else()
    set(operands "const Operand& x, const Operand& y, const Operand& z")
  endif()
  string(APPEND declarations
    "/// ${meaning}\nTensor ${name}(${operands}, Where where = Where::current());\n")
  string(APPEND definitions "BRAZE_DEFINE_${arity}(${name}, ${op})\n")
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/frontend/elementwise.h.in
  ${PROJECT_BINARY_DIR}/include/braze/elementwise.h @ONLY)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/frontend/elementwise_functions.inc
  CONTENT "@definitions@" @ONLY)
