// Where in a body a value stands, and how an error about it is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "config/sampling_params.h"
#include "server/openai/api_error.h"

namespace atom::server {

// Fields of a body that no table knows. They are not read.
struct UnknownFields {
  static constexpr size_t kMaxNames = 32;
  std::vector<std::string> names;  // "messages[].parsed", each once
  size_t count = 0;                // of all, repeats included
};

// What reading a body takes besides its tables.
struct BodyContext {
  UnknownFields* unknown = nullptr;  // collects them; null: they are refused
  int64_t vocab_size = 0;            // bounds token ids; 0: any int32
  int32_t max_logprobs = SamplingParams::kMaxLogprobs;
  bool keeps_responses = false;  // of /v1/responses, for later requests to continue
};

// A chain of stack frames, made into text only for an error. `name`, `parent` and `context` are
// borrowed.
struct FieldPath {
  const FieldPath* parent = nullptr;
  std::string_view name = {};  // no data: the item `index` of the parent's list
  size_t index = 0;
  const BodyContext* context = nullptr;  // of the body's own path; null: the neutral one

  FieldPath field(std::string_view field_name) const { return {this, field_name, 0}; }
  FieldPath item(size_t item_index) const { return {this, {}, item_index}; }
  std::string text() const;     // "messages[2].content"; empty for the body
  std::string pattern() const;  // "messages[].content"
  const BodyContext& body() const;
};

// The codes of errors about fields.
inline constexpr char kInvalidJson[] = "invalid_json";
inline constexpr char kUnknownField[] = "unknown_field";
inline constexpr char kMissingField[] = "missing_field";
inline constexpr char kInvalidType[] = "invalid_type";
inline constexpr char kInvalidValue[] = "invalid_value";
inline constexpr char kUnsupportedField[] = "unsupported_field";
inline constexpr char kConflictingFields[] = "conflicting_fields";

// "5", "'abc'", "a list of 3", "an object of 2", ...: a value as a message shows it, short and
// printable.
std::string show(const OrderedJson& value);

// All fill `error` and return false, for the callers to return.
bool fail(ApiError* error, const FieldPath& path, const char* code, std::string message);
// "<path> is <value>; expected <expected>"
bool fail_type(ApiError* error,
               const FieldPath& path,
               const OrderedJson& value,
               std::string_view expected);
bool fail_value(ApiError* error,
                const FieldPath& path,
                const OrderedJson& value,
                std::string_view expected);

}  // namespace atom::server
