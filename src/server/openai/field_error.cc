#include "server/openai/field_error.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace atom::server {
namespace {

constexpr size_t kMaxShownBytes = 60;
constexpr size_t kMaxPathBytes = 200;

bool fail_expected(ApiError* error,
                   const FieldPath& path,
                   const char* code,
                   const OrderedJson& value,
                   std::string_view expected) {
  const std::string where = path.text();
  return fail(
      error,
      path,
      code,
      fmt::format(
          "{} is {}; expected {}", where.empty() ? "the body" : where, show(value), expected));
}

}  // namespace

std::string FieldPath::text() const {
  if (parent == nullptr) return "";
  std::string text = parent->text();
  if (name.data() == nullptr) return text + fmt::format("[{}]", index);
  if (!text.empty()) text += '.';
  return text + printable(name, kMaxPathBytes);
}

std::string FieldPath::pattern() const {
  if (parent == nullptr) return "";
  std::string text = parent->pattern();
  if (name.data() == nullptr) return text + "[]";
  if (!text.empty()) text += '.';
  return text + printable(name, kMaxPathBytes);
}

const BodyContext& FieldPath::body() const {
  static const BodyContext neutral;
  const FieldPath* root = this;
  while (root->parent != nullptr) root = root->parent;
  return root->context == nullptr ? neutral : *root->context;
}

std::string show(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::string:
      return fmt::format("'{}'", printable(value.get_ref<const std::string&>(), kMaxShownBytes));
    case OrderedJson::value_t::array:
      return fmt::format("a list of {}", value.size());
    case OrderedJson::value_t::object:
      return fmt::format("an object of {}", value.size());
    default:
      return json_text(value);
  }
}

bool fail(ApiError* error, const FieldPath& path, const char* code, std::string message) {
  *error = ApiError();
  error->message = std::move(message);
  error->param = path.text();
  error->code = code;
  return false;
}

bool fail_type(ApiError* error,
               const FieldPath& path,
               const OrderedJson& value,
               std::string_view expected) {
  return fail_expected(error, path, kInvalidType, value, expected);
}

bool fail_value(ApiError* error,
                const FieldPath& path,
                const OrderedJson& value,
                std::string_view expected) {
  return fail_expected(error, path, kInvalidValue, value, expected);
}

}  // namespace atom::server
