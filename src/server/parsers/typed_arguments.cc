#include "server/parsers/typed_arguments.h"

#include "server/parsers/json_scanner.h"

namespace atom::server {

void TypedArguments::begin_value(std::string_view key, JsonTypes types, DeltaWriter& out) {
  std::string text = num_values_++ == 0 ? "{\"" : ", \"";
  append_json_escaped(key, &text);
  text += types == kStringType ? "\": \"" : "\": ";
  out.arguments(text);
  types_ = types;
  at_begin_ = true;
  held_newline_ = false;
  buffer_.clear();
}

void TypedArguments::give_out(std::string_view text, DeltaWriter& out) {
  if (types_ != kStringType) {
    buffer_.append(text);
    return;
  }
  std::string escaped;
  append_json_escaped(text, &escaped);
  out.arguments(escaped);
}

void TypedArguments::value(std::string_view text, DeltaWriter& out) {
  if (text.empty()) return;
  if (trim_newlines_) {
    if (at_begin_ && text.front() == '\n') text.remove_prefix(1);
    at_begin_ = false;
    if (text.empty()) return;
    if (held_newline_) give_out("\n", out);
    held_newline_ = text.back() == '\n';
    if (held_newline_) text.remove_suffix(1);
  }
  give_out(text, out);
}

void TypedArguments::end_value(DeltaWriter& out) {
  out.arguments(types_ == kStringType ? "\"" : json_of_text(buffer_, types_));
  buffer_.clear();
}

void TypedArguments::cut_value(DeltaWriter& out) {
  if (held_newline_) give_out("\n", out);
  held_newline_ = false;
  if (types_ == kStringType || buffer_.empty()) return;
  JsonScanner scanner;
  if ((types_ & kStringType) == 0 && scanner.scan(buffer_) == buffer_.size()) {
    out.arguments(buffer_);
    return;
  }
  std::string text = "\"";
  append_json_escaped(buffer_, &text);
  out.arguments(text);
}

}  // namespace atom::server
