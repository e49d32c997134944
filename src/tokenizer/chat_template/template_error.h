// The one way the template engine reports that a template or a conversation is wrong. It is thrown
// inside this folder only: ChatTemplate::parse and ChatTemplate::render turn it into a Status.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <string>
#include <utility>

#include "base/status.h"

namespace atom::jinja {

class TemplateError : public std::exception {
 public:
  TemplateError(StatusCode code, std::string message, int line = 0)
      : code_(code), message_(std::move(message)), line_(line) {}

  const char* what() const noexcept override { return message_.c_str(); }
  StatusCode code() const { return code_; }
  int line() const { return line_; }  // 0: where the evaluator stands

 private:
  StatusCode code_;
  std::string message_;
  int line_;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(StatusCode::kInvalidArgument,
                      fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_at(int line, fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(
      StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...), line);
}

template <typename... Args>
[[noreturn]] void fail_limit(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(StatusCode::kResourceExhausted,
                      fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace atom::jinja
