// What a client is told when a request fails: OpenAI's error object and its HTTP status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/http/http_message.h"

namespace atom::server {

struct ApiError {
  int http_status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param;    // the field at fault, "messages[2].content"; empty: null
  std::string code;     // "context_length_exceeded", "unknown_field", ...; empty: null
  int retry_after = 0;  // seconds, for 429 and 503; 0: no header
};

// An error of the engine, as the client of a request sees it. kResourceExhausted is a full queue.
ApiError to_api_error(const Status& status);

// An error in what the client sent, found while its text, template or tokens were worked on:
// kResourceExhausted is a limit that the request itself passes.
ApiError to_request_error(const Status& status);

ApiError model_not_found(std::string_view model);

// {"error": {"message", "type", "param", "code"}}
std::string error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);

// `text` as it may stand in a message: valid UTF-8 without control characters, at most about
// `max_bytes` long; "..." marks a cut.
std::string printable(std::string_view text, size_t max_bytes);

}  // namespace atom::server
