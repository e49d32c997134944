// The fields of one JSON object as a table, from which parsing, error messages and the JSON Schema
// come. Built once, const afterwards.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/openai/field_error.h"
#include "server/openai/openapi.h"

namespace atom::server {

struct FieldSpec {
  std::string name;
  bool is_required = false;
  bool is_hint = false;  // whatever it holds changes no answer and is not read
  std::string expected;  // "an integer in [1, 128]"
  std::string description;
  // Checks `value` and moves it into the target; without a target it is only checked and stays.
  std::function<bool(OrderedJson& value, const FieldPath&, void* target, ApiError*)> read;
  std::function<void(const OpenApiOptions&, OrderedJson* schema)> describe;
};

class FieldTable {
 public:
  // At most 128 fields.
  explicit FieldTable(std::vector<FieldSpec> fields);

  // Every required field must be in `object`. null is skipped where the field is not required.
  // Members that the table does not have are refused or collected, as the body's context says.
  // `target` is what the fields were made for; without one, what was not read is taken out.
  bool read(OrderedJson& object, const FieldPath& path, void* target, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
  const std::vector<FieldSpec>& fields() const { return fields_; }

 private:
  bool is_read(const std::string& name) const;
  bool take_unknown(const FieldPath& path, ApiError* error) const;
  void remove_unread(OrderedJson* object) const;

  std::vector<FieldSpec> fields_;
  std::unordered_map<std::string_view, size_t> index_;
};

// `schema["default"]`; nothing for types that have no plain default.
void describe_default(bool value, OrderedJson* schema);
void describe_default(int32_t value, OrderedJson* schema);
void describe_default(float value, OrderedJson* schema);
template <typename T>
void describe_default(const T&, OrderedJson*) {}

// A field that is only checked and stays in the JSON.
template <typename Kind>
FieldSpec check_field(const char* name, const Kind& kind, const char* description) {
  FieldSpec spec;
  spec.name = name;
  spec.expected = kind.expected();
  spec.description = description;
  spec.read = [kind](OrderedJson& value, const FieldPath& path, void*, ApiError* error) {
    return kind.read(value, path, nullptr, error);
  };
  spec.describe = [kind](const OpenApiOptions& options, OrderedJson* schema) {
    kind.describe(options, schema);
  };
  return spec;
}

// A field that is stored. `member` maps a Target to a reference to the field's member.
template <typename Target, typename Kind, typename Member>
FieldSpec bound_field(const char* name, const Kind& kind, Member member, const char* description) {
  FieldSpec spec = check_field(name, kind, description);
  spec.read = [kind, member](
                  OrderedJson& value, const FieldPath& path, void* target, ApiError* error) {
    if (target == nullptr) return kind.read(value, path, nullptr, error);
    typename Kind::Value parsed{};
    if (!kind.read(value, path, &parsed, error)) return false;
    member(*static_cast<Target*>(target)) = std::move(parsed);
    return true;
  };
  spec.describe = [kind, member](const OpenApiOptions& options, OrderedJson* schema) {
    kind.describe(options, schema);
    Target target;
    if constexpr (requires { target.sampling; }) target.sampling = options.defaults;
    describe_default(member(target), schema);
  };
  return spec;
}

inline FieldSpec required(FieldSpec spec) {
  spec.is_required = true;
  return spec;
}

// A field that says nothing about the answer: any value is taken.
FieldSpec hint_field(const char* name, const char* reason);
// A field that OpenAI or vLLM have and atom has not: only `neutral` (a JSON list of the values that
// change nothing) and null are taken.
FieldSpec unsupported_field(const char* name, const char* neutral, const char* reason);

}  // namespace atom::server
