// Status and Result<T>: how atom reports that the outside world (a file, JSON, a request, a flag)
// is wrong. A message says what is wrong, where, and what would be right. Our own mistakes are a
// CHECK (base/check.h) instead. Both types are values and safe to pass between threads.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace atom {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller's input is wrong, whatever the state of the system
  kNotFound,           // a file, tensor or name does not exist
  kResourceExhausted,  // memory, blocks, a limit
  kUnimplemented,      // valid, but not supported by atom
  kUnavailable,        // the engine is gone or shutting down
  kAborted,            // the caller gave up
  kInternal,           // our own fault, reported to a client
};

const char* status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same status with `context` and ": " in front of the message.
  Status with_context(const std::string& context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

template <typename... Args>
Status invalid_argument(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status not_found(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kNotFound, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status resource_exhausted(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kResourceExhausted, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kUnimplemented, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kUnavailable, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status internal_error(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInternal, fmt::format(format, std::forward<Args>(args)...)};
}

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}        // NOLINT: implicit by design
  Result(Status status) : value_(std::move(status)) {  // NOLINT: implicit by design
    CHECK(!std::get<Status>(value_).ok());
  }

  bool ok() const { return std::holds_alternative<T>(value_); }
  Status status() const { return ok() ? Status() : std::get<Status>(value_); }
  const T& value() const& {
    check_ok();
    return std::get<T>(value_);
  }
  T& value() & {
    check_ok();
    return std::get<T>(value_);
  }
  T&& value() && {
    check_ok();
    return std::get<T>(std::move(value_));
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  void check_ok() const {
    if (!ok()) check_failed("result.ok()", std::get<Status>(value_).message(), __FILE__, __LINE__);
  }
  std::variant<T, Status> value_;
};

}  // namespace atom

#define RETURN_IF_ERROR(expression)                                           \
  do {                                                                        \
    if (::atom::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define ATOM_CONCAT_(a, b) a##b
#define ATOM_CONCAT(a, b) ATOM_CONCAT_(a, b)
#define ATOM_ASSIGN_OR_RETURN_(result, target, expression) \
  auto result = (expression);                              \
  if (!result.ok()) return result.status();                \
  target = std::move(result).value()

// ASSIGN_OR_RETURN(auto x, make_x()): x is the value, or the enclosing function returns the error.
#define ASSIGN_OR_RETURN(target, expression) \
  ATOM_ASSIGN_OR_RETURN_(ATOM_CONCAT(result_, __LINE__), target, expression)
