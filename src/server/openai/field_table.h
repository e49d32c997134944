// The fields of one JSON object as a table, from which parsing, error messages and the JSON Schema
// come. Built once, const afterwards.
#pragma once

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

// How a field is read, and described in JSON Schema.
class FieldAccess {
 public:
  virtual ~FieldAccess() = default;
  // Checks `value` and moves it into the target; without a target it is only checked and stays.
  virtual bool read(OrderedJson& value, const FieldPath&, void* target, ApiError*) const = 0;
  virtual void describe(const OpenApiOptions&, OrderedJson* schema) const = 0;
};

struct FieldSpec {
  std::string name;
  bool is_required = false;
  bool is_hint = false;  // whatever it holds changes no answer and is not read
  std::string expected;  // "an integer in [1, 128]"
  std::string description;
  std::shared_ptr<const FieldAccess> access;
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

// `schema["default"]`.
void describe_default(bool value, OrderedJson* schema);
void describe_default(int32_t value, OrderedJson* schema);
void describe_default(float value, OrderedJson* schema);
// Other types have no plain default.
template <typename T>
constexpr bool kHasPlainDefault =
    std::is_same_v<T, bool> || std::is_same_v<T, int32_t> || std::is_same_v<T, float>;

// A field that is only checked and stays in the JSON.
template <typename Kind>
class CheckedField : public FieldAccess {
 public:
  explicit CheckedField(const Kind& kind) : kind_(kind) {}
  bool read(OrderedJson& value, const FieldPath& path, void*, ApiError* error) const override {
    return kind_.read(value, path, nullptr, error);
  }
  void describe(const OpenApiOptions& options, OrderedJson* schema) const override {
    kind_.describe(options, schema);
  }

 protected:
  const Kind kind_;
};

// A field that is stored in a Target's member. There are many: what they have in common is one
// class, which finds the member by a pointer to a function.
template <typename Target, typename Kind, typename Value>
class BoundField final : public CheckedField<Kind> {
 public:
  using Member = Value& (*)(Target&);

  BoundField(const Kind& kind, Member member) : CheckedField<Kind>(kind), member_(member) {}
  bool read(OrderedJson& value,
            const FieldPath& path,
            void* target,
            ApiError* error) const override {
    if (target == nullptr) return this->kind_.read(value, path, nullptr, error);
    typename Kind::Value parsed{};
    if (!this->kind_.read(value, path, &parsed, error)) return false;
    member_(*static_cast<Target*>(target)) = std::move(parsed);
    return true;
  }
  void describe(const OpenApiOptions& options, OrderedJson* schema) const override {
    this->kind_.describe(options, schema);
    if constexpr (kHasPlainDefault<Value>) {
      Target target;
      if constexpr (requires { target.sampling; }) target.sampling = options.defaults;
      describe_default(member_(target), schema);
    }
  }

 private:
  const Member member_;
};

FieldSpec make_field(const char* name,
                     std::string expected,
                     const char* description,
                     std::unique_ptr<const FieldAccess> access);

template <typename Kind>
FieldSpec check_field(const char* name, const Kind& kind, const char* description) {
  return make_field(
      name, kind.expected(), description, std::make_unique<const CheckedField<Kind>>(kind));
}

// `member` maps a Target to a reference to the field's member and captures nothing.
template <typename Target, typename Kind, typename Member>
FieldSpec bound_field(const char* name, const Kind& kind, Member member, const char* description) {
  using Value = std::remove_reference_t<decltype(member(std::declval<Target&>()))>;
  using Field = BoundField<Target, Kind, Value>;
  return make_field(
      name, kind.expected(), description, std::make_unique<const Field>(kind, member));
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
