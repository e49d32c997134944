// Schemas of strings and numbers as the grammar's engine takes them, and what json_schema.cc reads
// numbers of a schema with. `place` names the schema in errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace atom {

// The place of a member, whose name may be long.
std::string place_of(const std::string& place, std::string_view name);

// A length or a number of items, `otherwise` where the schema says none.
Result<int64_t> count_of(const OrderedJson& schema,
                         const char* keyword,
                         const std::string& place,
                         int64_t otherwise);
// An error when no count of `what` is within the bounds; a negative `high` is none.
Status check_range(const std::string& place, int64_t low, int64_t high, std::string_view what);

// Lengths, pattern or format are enforced, one of them at once.
Result<OrderedJson> string_schema(const OrderedJson& schema, const std::string& place);

// `type`: "integer" or "number". Multiples within bounds are listed.
Result<OrderedJson> number_schema(const OrderedJson& schema,
                                  const std::string& type,
                                  const std::string& place);

}  // namespace atom
