// <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>: Hermes, Qwen2.5, Qwen3.
#pragma once

#include "server/parsers/object_call_reader.h"

namespace atom::server {

class HermesCallReader : public ObjectCallReader {
 public:
  static constexpr std::string_view kBegin = "<tool_call>";
  static constexpr std::string_view kEnd = "</tool_call>";

  void start(std::string_view marker) override;
  size_t read(std::string_view text, bool final, DeltaWriter& out) override;

 private:
  enum class State : uint8_t { kObject, kAfterObject, kVerbatim };

  void end_object(bool is_whole) override {
    state_ = is_whole ? State::kAfterObject : State::kVerbatim;
  }
  size_t read_after_object(std::string_view text, bool final);
  size_t read_verbatim(std::string_view text, bool final, DeltaWriter& out);

  State state_ = State::kObject;
};

}  // namespace atom::server
