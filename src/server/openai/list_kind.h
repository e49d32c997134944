// The type of a field that is a list (field_kinds.h).
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "server/openai/field_error.h"
#include "server/openai/openapi.h"

namespace atom::server {

// What a list kind needs of its JSON.
bool is_list(const OrderedJson& value, size_t min_items, size_t max_items);
bool fail_list(ApiError* error,
               const FieldPath& path,
               const OrderedJson& value,
               std::string_view expected);
size_t list_size(const OrderedJson& value);
OrderedJson& list_item(OrderedJson& value, size_t index);
// The items are freed one by one; a JSON value frees those it has by a stack that it allocates.
void clear_list(OrderedJson* value);
void describe_list(size_t min_items,
                   size_t max_items,
                   const std::function<void(OrderedJson*)>& describe_item,
                   OrderedJson* schema);

template <typename Item>
struct ListKind {
  using Value = std::vector<typename Item::Value>;
  Item item;
  std::string_view items;  // "strings"
  size_t min_items = 0;
  size_t max_items = 0;  // 0: as many as a body may have

  std::string expected() const {
    if (max_items == 0) return fmt::format("a list of {}{}", min_items > 0 ? "some " : "", items);
    return fmt::format("a list of {} to {} {}", min_items, max_items, items);
  }
  bool read(OrderedJson& value, const FieldPath& path, Value* out, ApiError* error) const {
    if (!is_list(value, min_items, max_items)) return fail_list(error, path, value, expected());
    const size_t size = list_size(value);
    if (out != nullptr) out->resize(size);
    for (size_t i = 0; i < size; ++i) {
      auto* slot = out == nullptr ? nullptr : &(*out)[i];
      if (!item.read(list_item(value, i), path.item(i), slot, error)) return false;
    }
    // Copied; of other kinds some stay in the JSON.
    if constexpr (std::is_arithmetic_v<typename Item::Value>) {
      if (out != nullptr) clear_list(&value);
    }
    return true;
  }
  void describe(const OpenApiOptions& options, OrderedJson* schema) const {
    const auto describe_item = [&](OrderedJson* item_schema) {
      item.describe(options, item_schema);
    };
    describe_list(min_items, max_items, describe_item, schema);
  }
};

}  // namespace atom::server
