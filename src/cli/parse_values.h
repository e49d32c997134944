// Values of options.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/parse_number.h"
#include "base/status.h"

namespace atom::cli {

// "1, 2 3" or "[1, 2, 3]". An error names the first entry that is no token id.
Result<std::vector<int32_t>> parse_token_ids(std::string_view text);

}  // namespace atom::cli
