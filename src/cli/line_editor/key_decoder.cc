#include "cli/line_editor/key_decoder.h"

#include <array>

#include "base/utf8.h"

namespace atom::cli {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::string_view kPasteBegin = "\x1b[200~";
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr size_t kMaxSequence = 32;  // bytes; a longer one is none

struct Sequence {
  std::string_view bytes;  // behind the escape
  Key key;
};

// As xterm, the Linux console, rxvt and tmux send them.
constexpr std::array<Sequence, 30> kSequences = {{
    {"[A", Key::kUp},          {"OA", Key::kUp},           {"[B", Key::kDown},
    {"OB", Key::kDown},        {"[C", Key::kRight},        {"OC", Key::kRight},
    {"[D", Key::kLeft},        {"OD", Key::kLeft},         {"[H", Key::kHome},
    {"OH", Key::kHome},        {"[1~", Key::kHome},        {"[7~", Key::kHome},
    {"[F", Key::kEnd},         {"OF", Key::kEnd},          {"[4~", Key::kEnd},
    {"[8~", Key::kEnd},        {"[3~", Key::kDelete},      {"[1;5C", Key::kWordRight},
    {"[1;5D", Key::kWordLeft}, {"[1;3C", Key::kWordRight}, {"[1;3D", Key::kWordLeft},
    {"[5C", Key::kWordRight},  {"[5D", Key::kWordLeft},    {"Oc", Key::kWordRight},
    {"Od", Key::kWordLeft},    {"f", Key::kWordRight},     {"b", Key::kWordLeft},
    {"\r", Key::kNewline},     {"[13;2u", Key::kNewline},  {"[27;2;13~", Key::kNewline},
}};

// Line ends of all kinds as \n, and nothing else that could drive the terminal.
std::string clean_paste(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\r') {
      result += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t') {
      if (c != '\x7f') result += c;
    }
  }
  return to_valid_utf8(result);
}

}  // namespace

std::optional<KeyPress> KeyDecoder::next() {
  KeyPress press{Key::kText};
  for (;;) {
    switch (decode(&press)) {
      case Step::kKey:
        return press;
      case Step::kIncomplete:
        return std::nullopt;
      case Step::kSkipped:
        break;
    }
  }
}

KeyDecoder::Step KeyDecoder::decode(KeyPress* press) {
  if (in_paste_) return decode_paste(press);
  if (buffer_.empty()) return Step::kIncomplete;
  const char first = buffer_[0];
  if (first == kEscape) return decode_escape(press);
  if (static_cast<unsigned char>(first) >= ' ' && first != '\x7f') return decode_text(press);
  drop(1);
  if (first == '\r') {
    *press = {Key::kEnter};
  } else if (first == '\n') {
    *press = {Key::kNewline};
  } else if (first == '\x7f' || first == '\b') {
    *press = {Key::kBackspace};
  } else if (first == '\t') {
    *press = {Key::kText, "\t"};
  } else if (first >= 1 && first <= 26) {
    *press = {Key::kControl, std::string(1, static_cast<char>('a' + first - 1))};
  } else {
    return Step::kSkipped;
  }
  return Step::kKey;
}

KeyDecoder::Step KeyDecoder::decode_escape(KeyPress* press) {
  if (buffer_.size() == 1) return Step::kIncomplete;
  if (buffer_.starts_with(kPasteBegin)) {
    drop(kPasteBegin.size());
    in_paste_ = true;
    return Step::kSkipped;
  }
  const std::string_view rest = std::string_view(buffer_).substr(1);
  for (const Sequence& sequence : kSequences) {
    if (!rest.starts_with(sequence.bytes)) continue;
    drop(1 + sequence.bytes.size());
    *press = {sequence.key};
    return Step::kKey;
  }
  if (rest[0] == '[' || rest[0] == 'O') return decode_sequence(press);
  if (rest[0] == kEscape) {
    drop(1);
    return Step::kSkipped;
  }
  const std::string character(1, rest[0]);
  drop(2);
  *press = {Key::kAlt, character};
  return Step::kKey;
}

// One that means nothing here: up to its final byte (ECMA-48, 5.4).
KeyDecoder::Step KeyDecoder::decode_sequence(KeyPress*) {
  const size_t begin = 2;
  const size_t end = buffer_.find_first_not_of("0123456789:;<=>?!\"#$%&'()*+,-./ ", begin);
  if (end == std::string::npos) {
    if (buffer_.size() < kMaxSequence) return Step::kIncomplete;
    drop(buffer_.size());
    return Step::kSkipped;
  }
  drop(buffer_[end] == kEscape ? end : end + 1);
  return Step::kSkipped;
}

KeyDecoder::Step KeyDecoder::decode_paste(KeyPress* press) {
  const size_t end = buffer_.find(kPasteEnd);
  if (end == std::string::npos) return Step::kIncomplete;
  *press = {Key::kPaste, clean_paste(std::string_view(buffer_).substr(0, end))};
  drop(end + kPasteEnd.size());
  in_paste_ = false;
  return Step::kKey;
}

KeyDecoder::Step KeyDecoder::decode_text(KeyPress* press) {
  const Utf8Prefix prefix = inspect_utf8(buffer_);
  if (prefix.kind == Utf8Prefix::Kind::kIncomplete) return Step::kIncomplete;
  const std::string character = buffer_.substr(0, prefix.length);
  drop(prefix.length);
  // U+0080 to U+009F drive terminals, as bytes below a blank do.
  const bool is_control = character.size() == 2 && character[0] == '\xc2' &&
                          static_cast<unsigned char>(character[1]) < 0xa0;
  if (prefix.kind == Utf8Prefix::Kind::kInvalid || is_control) return Step::kSkipped;
  *press = {Key::kText, character};
  return Step::kKey;
}

}  // namespace atom::cli
