// {"name": "f", "parameters": {...}}, perhaps after <|python_tag|> and several with ";" between
// them: Llama 3.1 and later. Calls of built-in tools, which are Python, are content.
#pragma once

#include <optional>

#include "server/parsers/call_object_reader.h"
#include "server/parsers/tool_call_reader.h"

namespace atom::server {

class LlamaCallReader : public ToolCallReader {
 public:
  static constexpr std::string_view kTag = "<|python_tag|>";

  // `marker` is the tag, or empty in front of an answer's opening brace. The tag is never given
  // back: as a special token it is no text.
  void start(std::string_view marker) override;
  size_t read(std::string_view text, bool final, DeltaWriter& out) override;
  void finish(DeltaWriter& out) override;

 private:
  enum class State : uint8_t { kObject, kAfterObject, kVerbatim };

  size_t read_object(std::string_view text, DeltaWriter& out);
  size_t read_after_object(char c);

  State state_ = State::kObject;
  std::optional<CallObjectReader> object_;
};

}  // namespace atom::server
