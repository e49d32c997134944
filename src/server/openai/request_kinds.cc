#include "server/openai/request_kinds.h"
#include "server/openai/list_kind.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

namespace atom::server {
namespace {

constexpr StringKind kPromptText{.min_length = 1};
constexpr ListKind<StringKind> kPromptTexts{kPromptText, "strings", 1, PromptKind::kMaxPrompts};
constexpr ListKind<TokenIdKind> kPromptIds{{}, "token ids", 1};
constexpr ListKind<ListKind<TokenIdKind>> kPromptIdLists{
    kPromptIds, "lists of token ids", 1, PromptKind::kMaxPrompts};

constexpr StringKind kMetadataValue{.max_length = MetadataKind::kMaxValueLength};
constexpr StringKind kMetadataKey{.max_length = MetadataKind::kMaxKeyLength};

constexpr std::array<std::string_view, 6> kReservedArguments = {"messages",
                                                                "tools",
                                                                "documents",
                                                                "add_generation_prompt",
                                                                "continue_final_message",
                                                                "chat_template"};

template <typename Kind>
OrderedJson schema_of(const Kind& kind, const OpenApiOptions& options) {
  OrderedJson schema = OrderedJson::object();
  kind.describe(options, &schema);
  return schema;
}

template <typename Kind>
bool read_prompts(const Kind& kind,
                  OrderedJson& value,
                  const FieldPath& path,
                  std::vector<PromptInput>* out,
                  ApiError* error) {
  typename Kind::Value prompts;
  if (!kind.read(value, path, &prompts, error)) return false;
  out->assign(std::make_move_iterator(prompts.begin()), std::make_move_iterator(prompts.end()));
  return true;
}

// A decimal number as people write it.
bool parse_token_id(std::string_view text, int32_t* id) {
  if (text.empty() || text[0] == '-' || (text[0] == '0' && text.size() > 1)) return false;
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), *id);
  return status == std::errc() && stop == text.data() + text.size();
}

}  // namespace

std::string PromptKind::expected() const {
  return "a string, a list of strings, a list of token ids or a list of lists of token ids";
}

bool PromptKind::read(OrderedJson& value,
                      const FieldPath& path,
                      Value* out,
                      ApiError* error) const {
  Value ignored;
  if (out == nullptr) out = &ignored;
  if (value.is_string()) {
    std::string text;
    if (!kPromptText.read(value, path, &text, error)) return false;
    out->emplace_back(std::move(text));
    return true;
  }
  if (!value.is_array()) return fail_type(error, path, value, expected());
  if (value.empty()) return fail_value(error, path, value, expected());
  if (value[0].is_string()) return read_prompts(kPromptTexts, value, path, out, error);
  if (value[0].is_array()) return read_prompts(kPromptIdLists, value, path, out, error);
  if (!value[0].is_number()) return fail_type(error, path.item(0), value[0], expected());
  std::vector<int32_t> ids;
  if (!kPromptIds.read(value, path, &ids, error)) return false;
  out->emplace_back(std::move(ids));
  return true;
}

void PromptKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  (*schema)["anyOf"] = {schema_of(kPromptText, options),
                        schema_of(kPromptTexts, options),
                        schema_of(kPromptIds, options),
                        schema_of(kPromptIdLists, options)};
}

std::string TextListKind::expected() const {
  return fmt::format(
      "a string of 1 to {} characters or a list of at most {}", max_length, max_count);
}

bool TextListKind::read(OrderedJson& value,
                        const FieldPath& path,
                        Value* out,
                        ApiError* error) const {
  if (value.is_array()) return texts().read(value, path, out, error);
  if (!value.is_string()) return fail_type(error, path, value, expected());
  std::string only;
  if (!text().read(value, path, &only, error)) return false;
  if (out != nullptr) *out = {std::move(only)};
  return true;
}

void TextListKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  (*schema)["anyOf"] = {schema_of(text(), options), schema_of(texts(), options)};
}

std::string LogitBiasKind::expected() const {
  return fmt::format("an object of at most {} token ids, as strings, and {}",
                     max_entries,
                     bias.expected() + " each");
}

bool LogitBiasKind::read(OrderedJson& value,
                         const FieldPath& path,
                         Value* out,
                         ApiError* error) const {
  if (!value.is_object()) return fail_type(error, path, value, expected());
  if (value.size() > max_entries) return fail_value(error, path, value, expected());
  for (auto entry = value.begin(); entry != value.end(); ++entry) {
    const FieldPath entry_path = path.field(entry.key());
    int32_t id = 0;
    float value_to_add = 0;
    if (!parse_token_id(entry.key(), &id)) {
      return fail(error,
                  entry_path,
                  kInvalidValue,
                  fmt::format("'{}' in {} is not a token id; expected {}",
                              printable(entry.key(), 60),
                              path.text(),
                              expected()));
    }
    const int64_t vocab_size = path.body().vocab_size;
    if (vocab_size > 0 && id >= vocab_size) {
      return fail(error,
                  entry_path,
                  kInvalidValue,
                  fmt::format("{} is for token id {}; expected ids in [0, {}]",
                              entry_path.text(),
                              id,
                              vocab_size - 1));
    }
    if (!bias.read(*entry, entry_path, &value_to_add, error)) return false;
    if (out != nullptr) out->emplace_back(id, value_to_add);
  }
  return true;
}

std::string decimal_pattern(int64_t max) {
  const std::string digits = std::to_string(max);
  const auto any = [](size_t count) {
    return count == 0 ? std::string() : fmt::format("[0-9]{{{}}}", count);
  };
  // Fewer digits; then each number that first falls below `max` at one digit; then `max` itself.
  std::string pattern = "^(0";
  if (digits.size() > 1) pattern += fmt::format("|[1-9][0-9]{{0,{}}}", digits.size() - 2);
  for (size_t i = 0; i < digits.size(); ++i) {
    const char lowest = i == 0 ? '1' : '0';
    if (digits[i] <= lowest) continue;
    pattern += fmt::format("|{}[{}-{}]{}",
                           digits.substr(0, i),
                           lowest,
                           static_cast<char>(digits[i] - 1),
                           any(digits.size() - i - 1));
  }
  return pattern + "|" + digits + ")$";
}

void LogitBiasKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  const int64_t max_id = options.vocab_size > 0 ? options.vocab_size - 1 : INT32_MAX;
  (*schema)["type"] = "object";
  (*schema)["maxProperties"] = max_entries;
  (*schema)["propertyNames"] = {{"pattern", decimal_pattern(max_id)}};
  (*schema)["additionalProperties"] = schema_of(bias, options);
}

std::string MetadataKind::expected() const {
  return fmt::format("an object of at most {} strings", kMaxEntries);
}

bool MetadataKind::read(OrderedJson& value,
                        const FieldPath& path,
                        Value* out,
                        ApiError* error) const {
  if (!value.is_object()) return fail_type(error, path, value, expected());
  if (value.size() > kMaxEntries) return fail_value(error, path, value, expected());
  for (auto entry = value.begin(); entry != value.end(); ++entry) {
    const FieldPath entry_path = path.field(entry.key());
    OrderedJson key = entry.key();
    std::string text;
    if (!kMetadataKey.read(key, entry_path, nullptr, error)) return false;
    if (!kMetadataValue.read(*entry, entry_path, &text, error)) return false;
    if (out != nullptr) out->emplace_back(entry.key(), std::move(text));
  }
  return true;
}

void MetadataKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  (*schema)["type"] = "object";
  (*schema)["maxProperties"] = kMaxEntries;
  (*schema)["propertyNames"] = {{"maxLength", kMaxKeyLength}};
  (*schema)["additionalProperties"] = schema_of(kMetadataValue, options);
}

std::string TemplateArgumentsKind::expected() const {
  return "an object";
}

bool TemplateArgumentsKind::read(OrderedJson& value,
                                 const FieldPath& path,
                                 SharedJson* out,
                                 ApiError* error) const {
  if (!value.is_object()) return fail_type(error, path, value, expected());
  for (auto entry = value.begin(); entry != value.end(); ++entry) {
    if (std::find(kReservedArguments.begin(), kReservedArguments.end(), entry.key()) ==
        kReservedArguments.end()) {
      continue;
    }
    const FieldPath entry_path = path.field(entry.key());
    return fail(
        error,
        entry_path,
        kInvalidValue,
        fmt::format(
            "{} cannot be given: '{}' is a field of the request", entry_path.text(), entry.key()));
  }
  if (out != nullptr) *out = std::make_shared<const OrderedJson>(std::move(value));
  return true;
}

void TemplateArgumentsKind::describe(const OpenApiOptions&, OrderedJson* schema) const {
  (*schema)["type"] = "object";
  (*schema)["propertyNames"]["not"]["enum"] = kReservedArguments;
}

std::string DocumentsKind::expected() const {
  return fmt::format("a list of 0 to {} objects", kMaxDocuments);
}

bool DocumentsKind::read(OrderedJson& value,
                         const FieldPath& path,
                         SharedJson* out,
                         ApiError* error) const {
  if (!is_list(value, 0, kMaxDocuments)) return fail_list(error, path, value, expected());
  for (size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_object()) return fail_type(error, path.item(i), value[i], "an object");
  }
  if (out != nullptr) *out = std::make_shared<const OrderedJson>(std::move(value));
  return true;
}

void DocumentsKind::describe(const OpenApiOptions&, OrderedJson* schema) const {
  const auto describe_item = [](OrderedJson* item) { (*item)["type"] = "object"; };
  describe_list(0, kMaxDocuments, describe_item, schema);
}

}  // namespace atom::server
