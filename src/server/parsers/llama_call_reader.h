// {"name": "f", "parameters": {...}}, perhaps after <|python_tag|> and several with ";" between
// them: Llama 3.1 and later. Calls of built-in tools, which are Python, are content.
#pragma once

#include "server/parsers/object_call_reader.h"

namespace atom::server {

class LlamaCallReader : public ObjectCallReader {
 public:
  static constexpr std::string_view kTag = "<|python_tag|>";

  // `marker` is the tag, or empty in front of an answer's opening brace.
  void start(std::string_view marker) override;
  size_t read(std::string_view text, bool final, DeltaWriter& out) override;

 private:
  enum class State : uint8_t { kObject, kAfterObject, kVerbatim };

  void end_object(bool is_whole) override {
    state_ = is_whole ? State::kAfterObject : State::kVerbatim;
  }
  size_t read_after_object(char c);

  State state_ = State::kObject;
};

}  // namespace atom::server
