#include "server/parsers/delta_writer.h"

#include <utility>

namespace atom::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
// More white space than this before a call is content: what is held back is bounded.
constexpr size_t kMaxHeldSpace = 256;

uint64_t next_random(uint64_t* state) {  // splitmix64
  uint64_t z = (*state += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

std::string DeltaWriter::make_id() {
  constexpr std::string_view kCharacters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool mistral = style_.id_style == CallIdStyle::kMistral;
  std::string id = mistral ? "" : "call_";
  for (size_t i = 0; i < (mistral ? 9 : 24); ++i) {
    id.push_back(kCharacters[next_random(&id_state_) % kCharacters.size()]);
  }
  return id;
}

void DeltaWriter::reasoning(std::string_view text) {
  if (!style_.trim_reasoning) {
    delta_.reasoning.append(text);
    return;
  }
  const size_t first = text.find_first_not_of('\n');
  if (!reasoning_begun_) {
    if (first == std::string_view::npos) return;
    text.remove_prefix(first);
    reasoning_begun_ = true;
  } else if (first == std::string_view::npos) {
    held_newlines_ += text.size();
    return;
  }
  delta_.reasoning.append(held_newlines_, '\n');
  const size_t end = text.find_last_not_of('\n') + 1;
  held_newlines_ = text.size() - end;
  delta_.reasoning.append(text.substr(0, end));
}

void DeltaWriter::end_reasoning() {
  held_newlines_ = 0;
  skip_ = Skip::kNewlines;
}

void DeltaWriter::content(std::string_view text) {
  if (skip_ != Skip::kNothing) {
    const size_t first = text.find_first_not_of(skip_ == Skip::kNewlines ? "\n" : kSpace);
    if (first == std::string_view::npos) return;
    text.remove_prefix(first);
    skip_ = Skip::kNothing;
  }
  if (!style_.trim_content) {
    delta_.content.append(text);
    return;
  }
  const size_t end = text.find_last_not_of(kSpace) + 1;
  if (end > 0) {
    delta_.content.append(held_space_);
    held_space_.clear();
    delta_.content.append(text.substr(0, end));
  }
  held_space_.append(text.substr(end));
  if (held_space_.size() > kMaxHeldSpace) {
    const size_t excess = held_space_.size() - kMaxHeldSpace;
    delta_.content.append(held_space_, 0, excess);
    held_space_.erase(0, excess);
  }
}

void DeltaWriter::begin_call(std::string_view name, std::string_view id) {
  held_newlines_ = 0;
  if (style_.trim_content) {
    held_space_.clear();
    skip_ = Skip::kSpace;
  }
  ToolCallDelta& call = delta_.tool_calls.emplace_back();
  call.index = num_calls_++;
  call.id = id.empty() ? make_id() : std::string(id);
  call.name = name;
}

void DeltaWriter::arguments(std::string_view text) {
  if (text.empty()) return;
  if (delta_.tool_calls.empty()) delta_.tool_calls.emplace_back().index = num_calls_ - 1;
  delta_.tool_calls.back().arguments.append(text);
}

void DeltaWriter::finish() {
  delta_.reasoning.append(held_newlines_, '\n');
  delta_.content.append(held_space_);
  held_newlines_ = 0;
  held_space_.clear();
}

OutputDelta DeltaWriter::take() {
  return std::exchange(delta_, OutputDelta());
}

}  // namespace atom::server
