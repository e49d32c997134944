// Test support: minimal bodies, and requests or errors of what should have been one.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>

#include "server/openai/parse_requests.h"

namespace atom::server {

template <typename T>
T expect_parsed(Parsed<T> parsed, const std::string& body) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << body << "\n" << error->message;
    return {};
  }
  return std::get<T>(std::move(parsed));
}

template <typename T>
ApiError expect_error(const Parsed<T>& parsed, const std::string& body) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) return *error;
  ADD_FAILURE() << "accepted: " << body;
  return {};
}

// `members` added to a minimal body.
inline std::string completion_body(const std::string& members) {
  return fmt::format(R"({{"prompt": "tar"{}{}}})", members.empty() ? "" : ", ", members);
}
inline std::string chat_body(const std::string& members) {
  return fmt::format(R"({{"messages": [{{"role": "user", "content": "hi"}}]{}{}}})",
                     members.empty() ? "" : ", ",
                     members);
}

// What such bodies leave out.
inline SamplingParams request_defaults() {
  SamplingParams sampling;
  sampling.temperature = 0.6f;
  sampling.top_k = 20;
  sampling.max_tokens = 512;
  return sampling;
}

inline CompletionRequest parsed_completion(const std::string& members) {
  const std::string body = completion_body(members);
  return expect_parsed(parse_completion_request(body, request_defaults()), body);
}

inline ChatCompletionRequest parsed_chat(const std::string& members) {
  const std::string body = chat_body(members);
  return expect_parsed(parse_chat_completion_request(body, request_defaults()), body);
}

inline ChatCompletionRequest parsed_conversation(const std::string& messages) {
  const std::string body = R"({"messages": )" + messages + "}";
  return expect_parsed(parse_chat_completion_request(body, request_defaults()), body);
}

inline ApiError completion_error(const std::string& members) {
  const std::string body = completion_body(members);
  return expect_error(parse_completion_request(body, request_defaults()), body);
}

inline ApiError chat_error(const std::string& members) {
  const std::string body = chat_body(members);
  return expect_error(parse_chat_completion_request(body, request_defaults()), body);
}

inline ApiError conversation_error(const std::string& messages) {
  const std::string body = R"({"messages": )" + messages + "}";
  return expect_error(parse_chat_completion_request(body, request_defaults()), body);
}

}  // namespace atom::server
