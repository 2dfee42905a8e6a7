# Reads ir/ops/elementwise.def. For each row it writes two things: the declaration of the function
# on Tensors goes to braze/elementwise.h, with the row's meaning as its comment, and the definition
# goes to frontend/elementwise_functions.inc. So a new elementwise op needs no more than its row.
set(table ${PROJECT_SOURCE_DIR}/ir/ops/elementwise.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
file(STRINGS ${table} rows REGEX "^(MACHINE|MATH|FORMULA|ROUNDED)\\(")
set(declarations)
set(definitions)
foreach(row IN LISTS rows)
  # The meaning is the last string of the row, because the gradient after it has no quotes.
  string(REGEX MATCH "^[A-Z]+\\(([a-z0-9_]+), ([123]), .*, \"([^\"]*)\", [^\"]*$" matched "${row}")
  if(NOT matched)
    message(FATAL_ERROR "elementwise.def has a row that is not as its first lines say: ${row}")
  endif()
  set(op ${CMAKE_MATCH_1})
  set(name ${op})
  set(arity ${CMAKE_MATCH_2})
  set(meaning "${CMAKE_MATCH_3}")
  # tensor.h declares these: two take a dtype to convert to, and select is called `where`.
  if(name STREQUAL convert OR name STREQUAL bitcast OR name STREQUAL select)
    continue()
  endif()
  # As in NumPy, `max` and `min` are reductions.
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
