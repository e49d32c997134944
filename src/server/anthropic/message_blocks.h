// Messages of Anthropic's API: lists of blocks, checked and turned into messages of chat
// completions.
#pragma once

#include <string>

#include "server/openai/field_kinds.h"

namespace atom::server {

// A text, or a list of blocks of text.
struct SystemPromptKind {
  using Value = std::string;  // the texts, a line each
  std::string expected() const { return "a string or a list of text blocks"; }
  bool read(OrderedJson& value, const FieldPath& path, std::string* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// The conversation. What comes out are chat messages: results of tools are messages of their own,
// thoughts are reasoning_content.
struct BlockMessagesKind {
  using Value = SharedJson;
  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, SharedJson* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// {"name", "description", "input_schema"}; out come the tools of chat completions.
struct ClientToolsKind {
  using Value = SharedJson;
  std::string expected() const { return "a list of tools"; }
  bool read(OrderedJson& value, const FieldPath& path, SharedJson* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

}  // namespace atom::server
