#include "base/json_text.h"

#include <nlohmann/json.hpp>

namespace atom {

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string json_text(const OrderedJson& value, int indent) {
  return value.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson json_literal(std::string_view text) {
  return parse_ordered_json(text, "a literal").value();
}

}  // namespace atom
