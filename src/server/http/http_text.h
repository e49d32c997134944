// Small pieces of HTTP's grammar. Pure functions on bytes, safe from any thread.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace atom::server {

bool is_token(std::string_view text);  // RFC 9110's token, not empty
bool equals_ignoring_case(std::string_view a, std::string_view b);

// The bytes that %XX stand for; nothing when an escape is malformed or the result contains control
// characters.
std::optional<std::string> percent_decode(std::string_view text);

// Whether a client's X-Request-Id may be repeated in answers and logs.
bool is_request_id(std::string_view text);
std::string make_request_id();  // unique, 32 hexadecimal digits

std::string_view reason_phrase(int status);
std::string http_date(std::time_t time);

// Appends "name: value" and a line end, every control character of `value` replaced by a space.
// Appends nothing when `name` is not a token.
void append_header(std::string_view name, std::string_view value, std::string* out);

// An error in OpenAI's shape. `message` needs no escaping.
std::string error_json(int status, std::string_view message);

}  // namespace atom::server
