// The line of figures behind an answer.
#pragma once

#include <span>
#include <string>

#include "engine/request_output.h"

namespace atom::cli {

// "prompt tokens: 11, generated: 85, time to first token: 3.1 ms, 1234.5 tokens/s"; the rate is
// that of the tokens behind the first.
std::string usage_line(const RequestOutput& output);
// The usage of requests that were served together.
std::string usage_line(std::span<const RequestOutput> outputs);

}  // namespace atom::cli
