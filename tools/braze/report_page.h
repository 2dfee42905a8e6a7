// report_page.h — the page that `braze report` writes: one file of HTML, with nothing to load and
// nothing that runs.
//
// Names, paths and texts in it may come from anybody, so all of them are escaped; a policy in the
// page forbids scripts and the network besides.
#pragma once

#include <string>

#include "ir/graph/sizes.h"
#include "tools/braze/compile_times.h"
#include "tools/braze/explanation.h"
#include "tools/braze/timing.h"

namespace braze::tool {

struct ReportData {
  Explanation explanation;
  CompileTimes compile;
  Timings timings;     ///< none if times are estimates
  std::string device;  ///< the device of the measurement
  Sizes sizes;         ///< of all symbols, for memory and shares
  std::string file;    ///< the graph's
  std::string text;    ///< what it holds
};

std::string report_page(const ReportData& data);

}  // namespace braze::tool
