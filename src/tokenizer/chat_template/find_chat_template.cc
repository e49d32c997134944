#include "tokenizer/chat_template/find_chat_template.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/chat_template/limits.h"

namespace atom {
namespace {

constexpr const char* kToolUse = "tool_use";
constexpr const char* kDefault = "default";

// Templates by name, "default" for the only one.
using NamedTemplates = std::map<std::string, ChatTemplateSource>;

Status add_file(const std::string& path, const std::string& name, NamedTemplates* templates) {
  if (!file_exists(path)) return {};
  ASSIGN_OR_RETURN(std::string text, read_file(path, ChatTemplateLimits().max_template_size));
  (*templates)[name] = {std::move(text), path};
  return {};
}

Status bad_field(const std::string& path) {
  return invalid_argument(
      "{}: chat_template must be a string or a list of {{\"name\": string, \"template\": string}}",
      path);
}

Status add_field(const std::string& path, NamedTemplates* templates) {
  if (!file_exists(path)) return {};
  ASSIGN_OR_RETURN(const Json config, read_json_file(path));
  if (!config.is_object()) return invalid_argument("{}: the file must hold an object", path);
  const auto field = config.find("chat_template");
  if (field == config.end() || field->is_null()) return {};
  if (field->is_string()) {
    (*templates)[kDefault] = {field->get<std::string>(), path};
    return {};
  }
  if (!field->is_array()) return bad_field(path);
  for (const Json& entry : *field) {
    const bool is_named = entry.is_object() && entry.contains("name") &&
                          entry["name"].is_string() && entry.contains("template") &&
                          entry["template"].is_string();
    if (!is_named) return bad_field(path);
    const std::string name = entry["name"].get<std::string>();
    (*templates)[name] = {entry["template"].get<std::string>(), path + " (" + name + ")"};
  }
  return {};
}

Result<NamedTemplates> collect(const std::string& folder) {
  NamedTemplates templates;
  RETURN_IF_ERROR(add_file(folder + "/chat_template.jinja", kDefault, &templates));
  for (const char* name : {kDefault, kToolUse}) {
    if (templates.contains(name)) continue;
    const std::string path = folder + "/additional_chat_templates/" + name + ".jinja";
    RETURN_IF_ERROR(add_file(path, name, &templates));
  }
  if (templates.empty()) RETURN_IF_ERROR(add_field(folder + "/tokenizer_config.json", &templates));
  if (templates.empty()) RETURN_IF_ERROR(add_field(folder + "/chat_template.json", &templates));
  return templates;
}

bool is_template_text(const std::string& text) {
  return text.find("{{") != std::string::npos || text.find("{%") != std::string::npos;
}

}  // namespace

Result<ChatTemplateSource> find_chat_template(const std::string& folder, bool with_tools) {
  ASSIGN_OR_RETURN(const NamedTemplates templates, collect(folder));
  if (templates.empty()) {
    return not_found(
        "{}: no chat template: neither chat_template.jinja, nor chat_template in "
        "tokenizer_config.json or chat_template.json",
        folder);
  }
  auto found = with_tools ? templates.find(kToolUse) : templates.end();
  if (found == templates.end()) found = templates.find(kDefault);
  if (found != templates.end()) return found->second;
  std::string names;
  for (const auto& [name, source] : templates) names += (names.empty() ? "" : ", ") + name;
  return not_found("{}: no chat template is named 'default'; there are: {}", folder, names);
}

Result<ChatTemplateSource> load_chat_template(const std::string& folder,
                                              const std::string& override_path,
                                              bool with_tools) {
  if (override_path.empty()) {
    Result<ChatTemplateSource> found = find_chat_template(folder, with_tools);
    if (found.ok() || found.status().code() != StatusCode::kNotFound) return found;
    return not_found("{}; give one with --chat-template", found.status().message());
  }
  if (!file_exists(override_path)) {
    if (is_template_text(override_path))
      return ChatTemplateSource{override_path, "--chat-template"};
    return invalid_argument("--chat-template: there is no file {}", override_path);
  }
  ASSIGN_OR_RETURN(std::string text,
                   read_file(override_path, ChatTemplateLimits().max_template_size));
  return ChatTemplateSource{std::move(text), override_path};
}

}  // namespace atom
