// The input of the Responses API: a text or a list of items, checked and turned into messages of
// chat completions.
#pragma once

#include <string>

#include "server/openai/field_kinds.h"

namespace atom::server {

struct ResponseInputKind {
  using Value = SharedJson;  // chat messages
  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, SharedJson* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// Appends what an answer's items say, as the messages of chat completions.
void append_items(const OrderedJson& items, OrderedJson* messages);

// {"type": "function", "name", "description", "parameters", "strict"}
struct ResponseToolsKind {
  using Value = SharedJson;  // as given
  std::string expected() const { return "a list of tools"; }
  bool read(OrderedJson& value, const FieldPath& path, SharedJson* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// The tools of a chat completion.
SharedJson chat_tools_of(const OrderedJson& tools);

}  // namespace atom::server
