#include "server/openai/api_error.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/json_text.h"
#include "base/utf8.h"

namespace atom::server {
namespace {

constexpr size_t kMaxMessageBytes = 2000;

ApiError make_error(int http_status, std::string type, std::string code, std::string_view message) {
  ApiError error;
  error.http_status = http_status;
  error.type = std::move(type);
  error.code = std::move(code);
  error.message = printable(message, kMaxMessageBytes);
  return error;
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= max_bytes) return out + "...";
    const size_t size = utf8_sequence_size(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (size == 0 || byte < 0x20 || byte == 0x7F) {
      out += byte == '\n' ? std::string("\\n") : fmt::format("\\x{:02x}", byte);
      text.remove_prefix(1);
    } else {
      out += text.substr(0, size);
      text.remove_prefix(size);
    }
  }
  return out;
}

ApiError to_api_error(const Status& status) {
  const std::string& message = status.message();
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return make_error(400, "invalid_request_error", "invalid_value", message);
    case StatusCode::kNotFound:
      return make_error(404, "invalid_request_error", "not_found", message);
    case StatusCode::kResourceExhausted: {
      ApiError error = make_error(429, "rate_limit_error", "queue_full", message);
      error.retry_after = 1;
      return error;
    }
    case StatusCode::kUnimplemented:
      return make_error(400, "invalid_request_error", "unsupported", message);
    case StatusCode::kUnavailable:
    case StatusCode::kAborted: {
      ApiError error = make_error(503, "service_unavailable", "unavailable", message);
      error.retry_after = 1;
      return error;
    }
    case StatusCode::kOk:
    case StatusCode::kInternal:
      break;
  }
  return make_error(500, "internal_error", "internal_error", message);
}

ApiError to_request_error(const Status& status) {
  if (status.code() == StatusCode::kResourceExhausted) {
    return make_error(400, "invalid_request_error", "invalid_value", status.message());
  }
  return to_api_error(status);
}

ApiError model_not_found(std::string_view model) {
  ApiError error =
      make_error(404,
                 "invalid_request_error",
                 "model_not_found",
                 fmt::format("the model '{}' does not exist; GET /v1/models lists those served",
                             printable(model, 100)));
  error.param = "model";
  return error;
}

std::string error_json(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? OrderedJson() : OrderedJson(text);
  };
  const OrderedJson body = {{"error",
                             {{"message", error.message},
                              {"type", error.type},
                              {"param", text_or_null(error.param)},
                              {"code", text_or_null(error.code)}}}};
  return json_text(body);
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.http_status;
  if (error.retry_after > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  }
  response.body = error_json(error);
  return response;
}

}  // namespace atom::server
