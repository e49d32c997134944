// Mistral: [TOOL_CALLS][{"name": "f", "arguments": {...}}, {...}], or the newer form
// [TOOL_CALLS]f[CALL_ID]id[ARGS]{...} with or without the id.
#pragma once

#include <string>

#include "server/parsers/object_call_reader.h"

namespace atom::server {

class MistralCallReader : public ObjectCallReader {
 public:
  static constexpr std::string_view kBegin = "[TOOL_CALLS]";
  static constexpr std::string_view kId = "[CALL_ID]";
  static constexpr std::string_view kArguments = "[ARGS]";

  void start(std::string_view marker) override;
  size_t read(std::string_view text, bool final, DeltaWriter& out) override;

 private:
  enum class State : uint8_t {
    kStart,
    kArray,
    kObject,
    kName,
    kId,
    kBeforeArguments,
    kArguments,
    kVerbatim,
  };

  size_t step(std::string_view text, bool final, DeltaWriter& out);
  size_t read_start(char c);
  size_t read_array(char c);
  void end_object(bool is_whole) override;
  size_t read_header(std::string_view text, bool final);
  size_t read_before_arguments(char c);
  size_t read_arguments(std::string_view text, DeltaWriter& out);
  size_t read_verbatim(std::string_view text, bool final, DeltaWriter& out);

  State state_ = State::kStart;
  bool in_array_ = false;
  bool begun_ = false;  // the newer form's call
  int32_t num_calls_ = 0;
  std::string name_;
  std::string id_;
  std::string arguments_;
  ArgumentsReader arguments_reader_;
};

}  // namespace atom::server
