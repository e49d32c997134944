// Results as JSON, for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/json.h"
#include "engine/llm_engine.h"

namespace atom::cli {

// One line, a line feed included. What is not UTF-8 becomes U+FFFD, and numbers that JSON does not
// have (a log-probability of minus infinity) null.
std::string to_line(const OrderedJson& json);

// {"index": ..., "error": {...}} or the request's answers. `tokenizer` may be null.
OrderedJson request_json(size_t index, const RequestOutput& output, const Tokenizer* tokenizer);

}  // namespace atom::cli
