#include "bench_serve/stream_event.h"

#include <charconv>
#include <cstring>

namespace atom::bench_serve {
namespace {

struct Found {
  bool text = false;
  bool empty_text = false;
  bool role = false;
};

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

const char* skip_spaces(const char* p, const char* end) {
  while (p < end && is_space(*p)) ++p;
  return p;
}

// The quote that ends the string whose first character is at `p`, or null.
const char* closing_quote(const char* p, const char* end) {
  const char* begin = p;
  while (p < end) {
    const char* quote = static_cast<const char*>(std::memchr(p, '"', end - p));
    if (quote == nullptr) return nullptr;
    const char* escape = quote;
    while (escape > begin && escape[-1] == '\\') --escape;
    if ((quote - escape) % 2 == 0) return quote;
    p = quote + 1;
  }
  return nullptr;
}

std::optional<int64_t> number_at(const char* p, const char* end) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(p, end, value);
  // Beyond any answer: a server that says so is not believed.
  if (error != std::errc() || value < 0 || value > INT32_MAX) return std::nullopt;
  return value;
}

void note_text(const char* value, const char* end, Found* found) {
  if (*value != '"') return;
  (value + 1 < end && value[1] == '"' ? found->empty_text : found->text) = true;
}

// A non-empty array.
bool has_elements(const char* value, const char* end) {
  if (*value != '[') return false;
  value = skip_spaces(value + 1, end);
  return value < end && *value != ']';
}

void note_key(
    std::string_view key, const char* value, const char* end, StreamEvent* event, Found* found) {
  switch (key.size()) {
    case 4:
      if (key == "text") note_text(value, end, found);
      if (key == "role") found->role |= *value == '"';
      break;
    case 5:
      if (key == "error") event->may_be_error |= *value == '{' || *value == '"';
      break;
    case 7:
      if (key == "content" || key == "refusal") note_text(value, end, found);
      break;
    case 9:
      if (key == "reasoning") note_text(value, end, found);
      if (key == "token_ids") found->text |= has_elements(value, end);
      break;
    case 10:
      if (key == "tool_calls") found->text |= has_elements(value, end);
      break;
    case 13:
      if (key == "finish_reason") event->is_final |= *value == '"';
      if (key == "prompt_tokens") event->prompt_tokens = number_at(value, end);
      break;
    case 17:
      if (key == "reasoning_content") note_text(value, end, found);
      if (key == "completion_tokens") event->completion_tokens = number_at(value, end);
      break;
    default:
      break;
  }
}

}  // namespace

StreamEvent scan_event(std::string_view json) {
  StreamEvent event;
  const char* p = skip_spaces(json.data(), json.data() + json.size());
  const char* end = json.data() + json.size();
  while (end > p && is_space(end[-1])) --end;
  if (end - p < 2 || *p != '{' || end[-1] != '}') return event;
  Found found;
  while ((p = static_cast<const char*>(std::memchr(p, '"', end - p))) != nullptr) {
    const char* begin = p + 1;
    const char* quote = closing_quote(begin, end);
    if (quote == nullptr) return event;
    p = skip_spaces(quote + 1, end);
    if (p >= end || *p != ':') continue;
    p = skip_spaces(p + 1, end);
    if (p >= end) return event;
    note_key({begin, static_cast<size_t>(quote - begin)}, p, end, &event, &found);
  }
  event.is_object = true;
  event.carries_token = found.text || (found.empty_text && !event.is_final && !found.role);
  return event;
}

}  // namespace atom::bench_serve
