// The families that put calls, with JSON arguments, in a section of special tokens:
//   DeepSeek V3, R1  calls_begin (call_begin function sep f\n```json\n{...}\n``` call_end)*
//   calls_end DeepSeek V3.1    calls_begin (call_begin f sep {...} call_end)* calls_end Kimi K2 the
//   same with functions.f:0 as the name, which is the call's id
// The two forms of DeepSeek are told apart by what follows the separator.
#pragma once

#include "server/parsers/arguments_reader.h"
#include "server/parsers/marker_set.h"
#include "server/parsers/tool_call_reader.h"

namespace atom::server {

struct SectionSyntax {
  std::string section_begin;
  std::string section_end;
  std::string call_begin;
  std::string separator;
  std::string call_end;
  bool name_is_id = false;
};

const SectionSyntax& deepseek_section_syntax();
const SectionSyntax& kimi_section_syntax();

class SectionCallReader : public ToolCallReader {
 public:
  explicit SectionCallReader(const SectionSyntax& syntax);

  // `marker`: the section's or, where the model left that out, a call's.
  void start(std::string_view marker) override;
  size_t read(std::string_view text, bool final, DeltaWriter& out) override;
  void finish(DeltaWriter& out) override;

 private:
  enum class State : uint8_t {
    kBetween,
    kHeader,
    kBody,      // behind the separator
    kNameLine,  // the name, in the older form
    kFence,     // "```json"
    kArguments,
    kAfterArguments,
    kVerbatim,
  };

  size_t step(std::string_view text, bool final, DeltaWriter& out);
  size_t read_between(std::string_view text);
  size_t read_header(std::string_view text);
  size_t read_body(std::string_view text, DeltaWriter& out);
  size_t read_body_byte(char c);
  size_t read_arguments(std::string_view text, DeltaWriter& out);
  size_t read_after_arguments(std::string_view text);
  size_t read_verbatim(std::string_view text, bool final, DeltaWriter& out);
  void begin_header(std::string_view marker);
  void begin_call(DeltaWriter& out);
  void leave();

  const SectionSyntax& syntax_;
  const MarkerSet& markers_;
  State state_ = State::kBetween;
  bool begun_ = false;
  int32_t num_calls_ = 0;
  std::string name_;
  std::string arguments_;
  ArgumentsReader arguments_reader_;
};

}  // namespace atom::server
