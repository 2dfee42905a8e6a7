// tile_shrink.h — the shortest tile program that still fails, found by leaving lines out.
#pragma once

#include <functional>
#include <string>

namespace braze::fuzz {

/// `text` without the lines, and the blocks of `{ }`, that `fails` does not need. `fails` should
/// hold for one kind of failure only, and is asked about texts that are no programs, too.
std::string shrink_lines(const std::string& text,
                         const std::function<bool(const std::string&)>& fails);

}  // namespace braze::fuzz
