// The conversation and the tools of a chat request. They stay JSON, for the chat template, once
// every field was checked; what no template reads is taken out.
#pragma once

#include <string>

#include "server/openai/field_kinds.h"

namespace atom::server {

struct MessagesKind {
  using Value = SharedJson;
  static constexpr size_t kMaxMessages = 2048;

  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, SharedJson* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// An empty list is null, no tools.
struct ToolsKind {
  using Value = SharedJson;
  static constexpr size_t kMaxTools = 256;

  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, SharedJson* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// Adds the schemas that the two refer to: ChatMessage, one per role, and Tool.
void describe_message_components(const OpenApiOptions& options, OrderedJson* schemas);

}  // namespace atom::server
