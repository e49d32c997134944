// --recorded-batch-sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace atom {

// The sizes that a list such as "1,2,4" or "[1, 2, 4]" names, ascending, each once, those above
// `largest` left out with a line in the log; nothing for "". An error says what a list looks like.
Result<std::optional<std::vector<int64_t>>> resolve_recorded_batches(const std::string& list,
                                                                     int32_t largest);

}  // namespace atom
