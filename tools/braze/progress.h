// progress.h — the line on a terminal that shows how far long work is.
#pragma once

namespace braze::tool {

/// While it exists, long work has a line on stderr, if that is a terminal. The line is erased when
/// the work ends.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
};

}  // namespace braze::tool
