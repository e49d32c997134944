// The first step of reading any body.
#pragma once

#include <string_view>

#include "base/json.h"
#include "server/openai/api_error.h"

namespace atom::server {

// The body as an object, within the limits of JSON in requests.
bool parse_body(std::string_view text, OrderedJson* body, ApiError* error);

}  // namespace atom::server
