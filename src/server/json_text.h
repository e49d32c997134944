// JSON written piece by piece into a string: the hot path of streams has no document to build.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace atom::server {

// With quotes. What is not UTF-8 becomes U+FFFD.
void append_json_string(std::string* out, std::string_view text);
void append_json_integer(std::string* out, int64_t value);
// The shortest text that gives the same float; what JSON cannot say (infinities, NaN) and what
// is lower becomes -9999, as in vLLM.
void append_json_logprob(std::string* out, float value);
void append_json_integers(std::string* out, std::span<const int32_t> values);

}  // namespace atom::server
