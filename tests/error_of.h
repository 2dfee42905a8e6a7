// error_of.h — what an error says, for tests that expect one.
#pragma once

#include <string>

#include "braze/error.h"

namespace braze::test {

/// The text of the Error that `run` throws; "" if it throws none.
template <class Run>
std::string error_of(Run&& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace braze::test
