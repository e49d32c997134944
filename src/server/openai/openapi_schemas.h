// The parts of the OpenAPI document that no endpoint has for itself, as JSON texts.
#pragma once

#include <string_view>

namespace atom::server {

// Members of #/components/schemas: what several answers refer to.
extern const std::string_view kCommonSchemas;
// {"<status>": what it says}: the errors that any endpoint may report.
extern const std::string_view kErrorResponses;

}  // namespace atom::server
