#include "tokenizer/chat_template/split_text.h"

#include <algorithm>

#include "base/find_text.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

// How much of a text is searched at a time. It doubles, so that a match close by costs little.
constexpr size_t kFirstWindow = 512;

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::vector<std::string_view> split_at_space(Heap& heap,
                                             std::string_view text,
                                             int64_t max_splits) {
  std::vector<std::string_view> parts;
  Charge charge(&heap, 0);
  std::string_view rest = strip_space(text, true, false);
  while (!rest.empty()) {
    charge.grow(sizeof(std::string_view));
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(rest);
      return parts;
    }
    size_t end = 0;
    while (end < rest.size()) {
      size_t next = end;
      if (is_space(next_code_point(rest, &next))) break;
      end = next;
    }
    parts.push_back(rest.substr(0, end));
    rest = strip_space(rest.substr(end), true, false);
  }
  return parts;
}

std::vector<std::string_view> split_at_space_from_right(Heap& heap,
                                                        std::string_view text,
                                                        int64_t max_splits) {
  std::vector<std::string_view> parts;
  Charge charge(&heap, 0);
  std::string_view rest = strip_space(text, false, true);
  while (!rest.empty()) {
    charge.grow(sizeof(std::string_view));
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(rest);
      break;
    }
    size_t begin = rest.size();
    while (begin > 0) {
      const size_t previous = previous_position(rest, begin);
      size_t position = previous;
      if (is_space(next_code_point(rest, &position))) break;
      begin = previous;
    }
    parts.push_back(rest.substr(begin));
    rest = strip_space(rest.substr(0, begin), false, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

size_t find_in(Heap& heap, std::string_view text, std::string_view wanted, size_t from) {
  if (wanted.empty() || from >= text.size())
    return from <= text.size() && wanted.empty() ? from : std::string_view::npos;
  for (size_t window = kFirstWindow + 2 * wanted.size(); from + wanted.size() <= text.size();
       window *= 2) {
    const std::string_view part = text.substr(from, window);
    heap.step_bytes(2 * part.size());
    if (const size_t at = find_first(part, wanted); at != std::string_view::npos) return from + at;
    if (part.size() < window) break;
    from += window - (wanted.size() - 1);
  }
  return std::string_view::npos;
}

size_t find_last_in(Heap& heap, std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return text.size();
  for (size_t window = kFirstWindow + 2 * wanted.size(); wanted.size() <= text.size();
       window *= 2) {
    const size_t begin = text.size() - std::min(window, text.size());
    heap.step_characters(text.size() - begin);
    const size_t at = find_last(text.substr(begin), wanted);
    if (at != std::string_view::npos) return begin + at;
    if (begin == 0) break;
    text = text.substr(0, begin + wanted.size() - 1);
  }
  return std::string_view::npos;
}

std::vector<std::string_view> split_text(Heap& heap,
                                         std::string_view text,
                                         const std::string* separator,
                                         int64_t max_splits,
                                         bool from_right) {
  if (separator == nullptr) {
    return from_right ? split_at_space_from_right(heap, text, max_splits)
                      : split_at_space(heap, text, max_splits);
  }
  std::vector<std::string_view> parts;
  Charge charge(&heap, 0);
  std::string_view rest = text;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    charge.grow(sizeof(std::string_view));
    const size_t at =
        from_right ? find_last_in(heap, rest, *separator) : find_in(heap, rest, *separator);
    if (at == std::string_view::npos) break;
    const std::string_view behind = rest.substr(at + separator->size());
    parts.push_back(from_right ? behind : rest.substr(0, at));
    rest = from_right ? rest.substr(0, at) : behind;
  }
  parts.push_back(rest);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(Heap& heap, std::string_view text, bool keep_ends) {
  heap.step_characters(text.size());
  Charge charge(&heap, 0);
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t end = position;
    const char32_t c = next_code_point(text, &position);
    if (!is_line_break(c)) continue;
    charge.grow(sizeof(std::string_view));
    if (c == '\r' && position < text.size() && text[position] == '\n') ++position;
    lines.push_back(text.substr(start, (keep_ends ? position : end) - start));
    start = position;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string replace_text(
    Heap& heap, std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  heap.step_bytes(text.size());
  std::string out;
  Charge charge(&heap, text.size());
  size_t position = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    size_t at = from.empty() ? position : find_in(heap, text, from, position);
    if (at == std::string_view::npos) break;
    charge.grow(to.size());
    heap.step_bytes(to.size());
    out.append(text.substr(position, at - position)).append(to);
    position = at + from.size();
    if (!from.empty()) continue;
    // An empty pattern matches before every code point and at the end.
    if (position == text.size()) return out;
    next_code_point(text, &at);
    out.append(text.substr(position, at - position));
    position = at;
  }
  out.append(text.substr(position));
  return out;
}

std::string pad_text(Heap& heap,
                     std::string_view text,
                     int64_t width,
                     std::string_view fill,
                     bool at_left,
                     bool at_right) {
  heap.step_characters(text.size());
  const int64_t size = static_cast<int64_t>(count_code_points(text));
  const int64_t padding = std::max<int64_t>(0, width - size);
  if (padding > 0) {
    heap.require(static_cast<size_t>(std::min<int64_t>(padding, int64_t{1} << 40)) * fill.size());
    heap.step_bytes(static_cast<size_t>(padding) * fill.size());
  }
  // Python's center puts the odd character at the left when the width is odd.
  const int64_t left = !at_left ? 0 : !at_right ? padding : padding / 2 + (padding & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < padding; ++i) out += fill;
  return out;
}

}  // namespace atom::jinja
