// Bounded JSON: nlohmann/json behind limits that make a hostile document cheap to refuse.
// Include this in headers (forward declarations only) and <nlohmann/json.hpp> in sources.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace atom {

using Json = nlohmann::json;                 // configuration: object keys sorted
using OrderedJson = nlohmann::ordered_json;  // chat messages: object keys in the order of the text

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;
  int max_depth = 64;
  size_t max_nodes = 4'000'000;        // values and keys together
  size_t max_keys_per_object = 65536;  // OrderedJson looks keys up linearly: keep it small there
};

// Parses one complete UTF-8 document. Duplicate keys, trailing text, NaN and limits passed are
// errors that name the line and column or the limit. `where` (a file name, say) begins each
// message.
Result<Json> parse_json(std::string_view text,
                        std::string_view where,
                        const JsonLimits& limits = {});
Result<OrderedJson> parse_ordered_json(std::string_view text,
                                       std::string_view where,
                                       const JsonLimits& limits = {});

Result<Json> read_json_file(const std::string& path, const JsonLimits& limits = {});

}  // namespace atom
