// Kinds that only one or two fields have.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/sampling_params.h"
#include "server/openai/field_kinds.h"
#include "server/openai/list_kind.h"

namespace atom::server {

// Text, a list of texts, token ids, or a list of token ids.
struct PromptKind {
  using Value = std::vector<PromptInput>;
  static constexpr size_t kMaxPrompts = 1024;

  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, Value* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// One string or a list of them, none empty.
struct TextListKind {
  using Value = std::vector<std::string>;
  size_t max_count;
  size_t max_length;

  StringKind text() const { return {.min_length = 1, .max_length = max_length}; }
  ListKind<StringKind> texts() const { return {text(), "strings", 0, max_count}; }
  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, Value* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// {"<token id>": bias}
struct LogitBiasKind {
  using Value = LogitBias;
  size_t max_entries;
  NumberKind bias;

  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, Value* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// A regular expression for the decimal numbers in [0, max], without leading zeros.
std::string decimal_pattern(int64_t max);

// {"key": "value"}
struct MetadataKind {
  using Value = std::vector<std::pair<std::string, std::string>>;
  static constexpr size_t kMaxEntries = 16;
  static constexpr size_t kMaxKeyLength = 64;
  static constexpr size_t kMaxValueLength = 512;

  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, Value* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// Variables of the chat template: any but those that have fields of their own.
struct TemplateArgumentsKind {
  using Value = SharedJson;
  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, SharedJson* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

struct DocumentsKind {
  using Value = SharedJson;
  static constexpr size_t kMaxDocuments = 256;

  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, SharedJson* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

}  // namespace atom::server
