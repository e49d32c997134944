#include "tokenizer/post_processor.h"

#include <nlohmann/json.hpp>

#include "tokenizer/json_fields.h"
#include "tokenizer/vocabulary.h"

namespace atom {

namespace {

constexpr size_t kMaxSpecialIds = 1024;

// The ids of special token `name`, from the template's own table.
Result<std::vector<int32_t>> template_ids(const Json& component,
                                          const std::string& name,
                                          std::string_view where) {
  const auto table = component.find("special_tokens");
  const Json* entry = nullptr;
  if (table != component.end() && table->is_object()) {
    if (const auto it = table->find(name); it != table->end()) entry = &*it;
  }
  if (entry == nullptr) {
    return invalid_argument(
        "{}: the template names \"{}\", which is not in its special_tokens", where, name);
  }
  ASSIGN_OR_RETURN(const Json* ids, required_array(*entry, "ids", where));
  std::vector<int32_t> result;
  for (const Json& id : *ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxVocabularySize) {
      return invalid_argument("{}: the ids of special token \"{}\" must be in [0, {})",
                              where,
                              name,
                              kMaxVocabularySize);
    }
    result.push_back(id.get<int32_t>());
  }
  return result;
}

}  // namespace

Result<PostProcessor> PostProcessor::parse(const Json& component, std::string_view where) {
  PostProcessor post_processor;
  if (!component.is_null()) RETURN_IF_ERROR(post_processor.add(component, where));
  return post_processor;
}

Status PostProcessor::add(const Json& component, std::string_view where) {
  ASSIGN_OR_RETURN(const std::string type, component_type(component, where));
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return add_template(component, where);
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* parts, required_array(component, "processors", where));
    for (const Json& part : *parts) RETURN_IF_ERROR(add(part, where));
    return {};
  }
  return unimplemented(
      "{}: the post-processor \"{}\" is not supported; supported are ByteLevel, Sequence and "
      "TemplateProcessing",
      where,
      type);
}

Status PostProcessor::add_template(const Json& component, std::string_view where) {
  ASSIGN_OR_RETURN(const Json* pieces, required_array(component, "single", where));
  std::vector<int32_t> before, after;
  bool seen_text = false;
  for (const Json& piece : *pieces) {
    if (piece.is_object() && piece.contains("Sequence") && !seen_text) {
      seen_text = true;
      continue;
    }
    if (!piece.is_object() || !piece.contains("SpecialToken")) {
      return invalid_argument(
          "{}: \"single\" must list {{\"SpecialToken\": ...}} and one {{\"Sequence\": ...}}",
          where);
    }
    ASSIGN_OR_RETURN(const std::string name, required_string(piece["SpecialToken"], "id", where));
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, template_ids(component, name, where));
    std::vector<int32_t>& side = seen_text ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!seen_text) return invalid_argument("{}: \"single\" has no {{\"Sequence\": ...}}", where);
  // A later processor of a sequence wraps what the earlier ones made.
  prefix_.insert(prefix_.begin(), before.begin(), before.end());
  suffix_.insert(suffix_.end(), after.begin(), after.end());
  if (prefix_.size() + suffix_.size() > kMaxSpecialIds) {
    return invalid_argument("{}: more than {} special ids around a text", where, kMaxSpecialIds);
  }
  return {};
}

}  // namespace atom
