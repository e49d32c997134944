#include "server/openai/field_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_text.h"
#include "config/suggest.h"

namespace atom::server {
namespace {

constexpr size_t kMaxFields = 128;

// The values that a field takes although nothing comes of them.
struct NeutralKind {
  std::vector<OrderedJson> values;
  std::string reason;

  std::string expected() const {
    std::string names = "null";
    for (size_t i = 0; i < values.size(); ++i) {
      names += (i + 1 < values.size() ? ", " : " or ") + json_text(values[i]);
    }
    return names + ": " + reason;
  }
  bool read(OrderedJson& value, const FieldPath& path, void*, ApiError* error) const {
    for (const OrderedJson& neutral : values) {
      // Compares two booleans or two numbers, never a boolean and a number.
      if (value == neutral) return true;
    }
    return fail(error,
                path,
                kUnsupportedField,
                fmt::format("{} is {}; expected {}", path.text(), show(value), expected()));
  }
  void describe(const OpenApiOptions&, OrderedJson* schema) const {
    if (values.empty()) {
      (*schema)["type"] = "null";
    } else {
      (*schema)["enum"] = values;
    }
  }
};

// What is taken, whatever it holds.
class UnreadField final : public FieldAccess {
 public:
  bool read(OrderedJson&, const FieldPath&, void*, ApiError*) const override { return true; }
  void describe(const OpenApiOptions&, OrderedJson*) const override {}
};

void make_nullable(OrderedJson* schema) {
  if (schema->contains("enum")) {
    (*schema)["enum"].push_back(nullptr);
    if (schema->contains("type")) (*schema)["type"] = {(*schema)["type"], "null"};
  } else if (schema->contains("type")) {
    OrderedJson& type = (*schema)["type"];
    if (type != "null") type = {type, "null"};
  } else if (schema->contains("anyOf")) {
    (*schema)["anyOf"].push_back({{"type", "null"}});
  } else {
    OrderedJson alternatives = {std::move(*schema), {{"type", "null"}}};
    *schema = {{"anyOf", std::move(alternatives)}};
  }
}

}  // namespace

FieldTable::FieldTable(std::vector<FieldSpec> fields) : fields_(std::move(fields)) {
  CHECK(fields_.size() <= kMaxFields);
  for (size_t i = 0; i < fields_.size(); ++i) {
    CHECK(index_.emplace(fields_[i].name, i).second);
  }
}

bool FieldTable::read(OrderedJson& object,
                      const FieldPath& path,
                      void* target,
                      ApiError* error) const {
  if (!object.is_object()) return fail_type(error, path, object, "an object");
  std::bitset<kMaxFields> seen;
  bool has_unread = false;
  for (auto member = object.begin(); member != object.end(); ++member) {
    const FieldPath member_path = path.field(member.key());
    const auto found = index_.find(member.key());
    if (found == index_.end()) {
      if (!take_unknown(member_path, error)) return false;
      has_unread = true;
      continue;
    }
    const FieldSpec& field = fields_[found->second];
    has_unread = has_unread || field.is_hint;
    if (member->is_null() && !field.is_required) continue;
    seen.set(found->second);
    if (!field.access->read(*member, member_path, target, error)) return false;
  }
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (!fields_[i].is_required || seen[i]) continue;
    const FieldPath missing = path.field(fields_[i].name);
    return fail(error,
                missing,
                kMissingField,
                fmt::format("{} is missing; expected {}", missing.text(), fields_[i].expected));
  }
  if (has_unread && target == nullptr) remove_unread(&object);
  return true;
}

bool FieldTable::is_read(const std::string& name) const {
  const auto found = index_.find(name);
  return found != index_.end() && !fields_[found->second].is_hint;
}

// In one pass: erasing one by one would take quadratic time.
void FieldTable::remove_unread(OrderedJson* object) const {
  using Members = std::vector<std::pair<const std::string, OrderedJson>>;
  OrderedJson::object_t read;
  for (auto& [name, value] : object->get_ref<OrderedJson::object_t&>()) {
    if (is_read(name)) static_cast<Members&>(read).emplace_back(name, std::move(value));
  }
  *object = std::move(read);
}

bool FieldTable::take_unknown(const FieldPath& path, ApiError* error) const {
  if (UnknownFields* unknown = path.body().unknown) {
    ++unknown->count;
    std::string name = path.pattern();
    if (unknown->names.size() < UnknownFields::kMaxNames &&
        std::ranges::find(unknown->names, name) == unknown->names.end()) {
      unknown->names.push_back(std::move(name));
    }
    return true;
  }
  std::vector<std::string> names;
  for (const FieldSpec& field : fields_) names.push_back(field.name);
  const std::string nearest = nearest_name(path.name, names);
  return fail(error,
              path,
              kUnknownField,
              nearest.empty()
                  ? fmt::format("unknown field '{}'", path.text())
                  : fmt::format("unknown field '{}'; did you mean '{}'?", path.text(), nearest));
}

void FieldTable::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  (*schema)["type"] = "object";
  OrderedJson& properties = (*schema)["properties"] = OrderedJson::object();
  OrderedJson required_names = OrderedJson::array();
  for (const FieldSpec& field : fields_) {
    OrderedJson property = OrderedJson::object();
    field.access->describe(options, &property);
    if (field.is_required) {
      required_names.push_back(field.name);
    } else if (!field.is_hint) {
      make_nullable(&property);
    }
    if (!field.description.empty()) property["description"] = field.description;
    properties[field.name] = std::move(property);
  }
  if (!required_names.empty()) (*schema)["required"] = std::move(required_names);
  if (options.strict_fields) (*schema)["additionalProperties"] = false;
}

void describe_default(bool value, OrderedJson* schema) {
  (*schema)["default"] = value;
}

void describe_default(int32_t value, OrderedJson* schema) {
  (*schema)["default"] = value;
}

void describe_default(float value, OrderedJson* schema) {
  // As people write it: 0.95, not the 0.949999988079071 of the nearest float.
  (*schema)["default"] = json_literal(fmt::format("{}", value));
}

FieldSpec make_field(const char* name,
                     std::string expected,
                     const char* description,
                     std::unique_ptr<const FieldAccess> access) {
  return {.name = name,
          .expected = std::move(expected),
          .description = description,
          .access = std::move(access)};
}

FieldSpec hint_field(const char* name, const char* reason) {
  const std::string description = std::string("Taken and not heeded: ") + reason;
  FieldSpec spec =
      make_field(name, "anything", description.c_str(), std::make_unique<const UnreadField>());
  spec.is_hint = true;
  return spec;
}

FieldSpec unsupported_field(const char* name, const char* neutral, const char* reason) {
  NeutralKind kind;
  const OrderedJson values = json_literal(neutral);
  CHECK(values.is_array());
  kind.values.assign(values.begin(), values.end());
  kind.reason = reason;
  return check_field(name, kind, reason);
}

}  // namespace atom::server
