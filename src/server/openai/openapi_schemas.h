// The fixed part of the OpenAPI document: the schemas of answers, as JSON texts.
#pragma once

#include <string_view>

namespace atom::server {

// An object of named schemas, for #/components/schemas.
extern const std::string_view kAnswerSchemas;
// {"<status>": what it says}: the errors that any endpoint may report.
extern const std::string_view kErrorResponses;

}  // namespace atom::server
