// Answers of plain text with marked reasoning at the start and marked tool calls: every family but
// harmony.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/parsers/delta_writer.h"
#include "server/parsers/held_text.h"
#include "server/parsers/marker_set.h"
#include "server/parsers/output_parser.h"
#include "server/parsers/tool_call_reader.h"
#include "server/parsers/tool_types.h"

namespace atom::server {

// How a family writes tool calls.
struct ToolSyntax {
  std::string_view name;
  std::vector<std::string> begin_markers;
  std::vector<std::string> end_markers;  // dropped when they come after what was read as the call
  std::vector<std::string> other_markers = {};  // read within calls
  bool bare_object = false;                     // an answer that begins with a brace may be a call
  bool typed = false;                           // the reader needs ToolTypes
  CallIdStyle id_style = CallIdStyle::kOpenAi;
  std::unique_ptr<ToolCallReader> (*make_reader)(std::shared_ptr<const ToolTypes> types);
};

struct ReasoningSyntax {
  std::string_view open;
  std::string_view close;
  // An answer begins with reasoning unless the prompt has closed it: of models that leave the
  // opening mark out.
  bool comes_first = false;
};

// The markers of one family in every situation; made once, const and thread-safe.
class TaggedSyntax {
 public:
  enum Kind { kOpen, kClose, kToolBegin, kToolEnd };

  // Either may be null; both must outlive this.
  TaggedSyntax(const ToolSyntax* tools, const ReasoningSyntax* reasoning);

  const ToolSyntax* tools;
  const ReasoningSyntax* reasoning;
  MarkerSet in_reasoning, in_content;                        // without tools in the request
  MarkerSet in_reasoning_with_tools, in_content_with_tools;  // with them
  MarkerSet after_call;  // content in which ends of calls or of the reasoning may be left over
};

class TaggedParser : public OutputParser {
 public:
  // `tools` null: nothing is a call. It is read during the call only; `syntax` must outlive this.
  TaggedParser(const TaggedSyntax& syntax,
               std::string_view prompt_tail,
               const OrderedJson* tools,
               uint64_t id_seed);

  OutputDelta feed(std::string_view text) override;
  OutputDelta finish() override;
  bool has_tool_calls() const override { return out_.num_calls() > 0; }

 private:
  enum class State : uint8_t { kStart, kReasoning, kContent, kCalls };

  size_t run(std::string_view text, bool final);
  size_t step(std::string_view text, bool final);
  size_t read_start(std::string_view text, bool final);
  size_t read_reasoning(std::string_view text, bool final);
  size_t read_content(std::string_view text, bool final);
  size_t read_calls(std::string_view text, bool final);
  void begin_content();
  void begin_calls(std::string_view marker);
  void end_calls();

  const TaggedSyntax& syntax_;
  const bool with_tools_;
  std::shared_ptr<const ToolTypes> types_;
  std::unique_ptr<ToolCallReader> reader_;
  DeltaWriter out_;
  State state_ = State::kStart;
  bool calls_in_reasoning_ = false;  // the section being read began there
  int32_t num_calls_before_ = 0;     // when it began
  bool left_over_ = false;           // ends of calls or of the reasoning may still come
  std::string space_;                // in front of the answer
  HeldText held_;                    // the beginning of a marker
};

}  // namespace atom::server
