#include "cli/prompts.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/parse_values.h"

namespace atom::cli {
namespace {

constexpr size_t kMaxInput = size_t{1} << 30;  // bytes

Result<std::string> read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  while (const size_t size = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, size);
    if (text.size() > kMaxInput) {
      return invalid_argument("standard input is longer than {} bytes", kMaxInput);
    }
  }
  return text;
}

Result<std::vector<int32_t>> to_token_ids(const Json& json) {
  if (!json.is_array()) {
    return invalid_argument("\"prompt_token_ids\" is no list; expected integers");
  }
  std::vector<int32_t> ids;
  for (const Json& entry : json) {
    // Ids outside 32 bits are outside every vocabulary as well.
    if (!entry.is_number_integer() || entry.get<int64_t>() != int32_t(entry.get<int64_t>())) {
      return invalid_argument("\"prompt_token_ids\" holds {}; expected integers",
                              json_text(entry).substr(0, 40));
    }
    ids.push_back(entry.get<int32_t>());
  }
  return ids;
}

PromptEntry parse_json_line(std::string_view line, const std::string& where, bool as_token_ids) {
  ASSIGN_OR_RETURN(const Json json, parse_json(line, where));
  constexpr const char* kExpected =
      "expected {\"prompt\": TEXT} or {\"prompt_token_ids\": [ID, ...]}";
  if (!json.is_object() || json.size() != 1) return invalid_argument("{}: {}", where, kExpected);
  const std::string& key = json.begin().key();
  const Json& value = json.front();
  if (key == "prompt_token_ids") {
    Result<std::vector<int32_t>> ids = to_token_ids(value);
    if (!ids.ok()) return ids.status().with_context(where);
    return Prompt(*std::move(ids));
  }
  if (key != "prompt" || !value.is_string()) return invalid_argument("{}: {}", where, kExpected);
  return make_prompt(value.get_ref<const std::string&>(), as_token_ids);
}

void split_lines(std::string_view text,
                 const std::string& name,
                 bool as_token_ids,
                 std::vector<PromptEntry>* prompts) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  const bool is_json =
      name.ends_with(".jsonl") || (start != std::string_view::npos && text[start] == '{');
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    prompts->push_back(is_json
                           ? parse_json_line(line, fmt::format("{}:{}", name, number), as_token_ids)
                           : make_prompt(line, as_token_ids));
  }
}

}  // namespace

PromptEntry make_prompt(std::string_view text, bool as_token_ids) {
  if (!as_token_ids) return Prompt(std::string(text));
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, parse_token_ids(text));
  return Prompt(std::move(ids));
}

Result<std::vector<PromptEntry>> read_prompts(const std::vector<std::string>& arguments,
                                              const std::string& file,
                                              bool as_token_ids) {
  std::vector<PromptEntry> prompts;
  for (const std::string& argument : arguments) {
    if (argument != "-") {
      prompts.push_back(make_prompt(argument, as_token_ids));
      continue;
    }
    ASSIGN_OR_RETURN(std::string text, read_standard_input());
    // The line end that echo and editors put behind it is no part of the prompt.
    if (text.ends_with('\n')) text.pop_back();
    prompts.push_back(make_prompt(text, as_token_ids));
  }
  if (file.empty()) return prompts;
  const bool from_stdin = file == "-";
  ASSIGN_OR_RETURN(const std::string text,
                   from_stdin ? read_standard_input() : read_file(file, kMaxInput));
  split_lines(text, from_stdin ? "standard input" : file, as_token_ids, &prompts);
  return prompts;
}

}  // namespace atom::cli
