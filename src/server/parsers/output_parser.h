// Splits what a model writes into reasoning, content and tool calls, while it is being written.
// One parser per answer; not thread-safe. Total: any text is taken, what does not parse as the
// family's syntax is content.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace atom::server {

// What is new of one tool call. The name comes whole, with the first delta of its index; arguments
// are pieces of a JSON text, in order.
struct ToolCallDelta {
  int32_t index = 0;
  std::string id;    // with the first delta only
  std::string name;  // with the first delta only
  std::string arguments;
};

struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> tool_calls;

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};

class OutputParser {
 public:
  virtual ~OutputParser() = default;

  // Text may be cut anywhere between characters. What could still become part of a marker is held
  // back.
  virtual OutputDelta feed(std::string_view text) = 0;
  // The answer is complete: whatever was held back.
  virtual OutputDelta finish() = 0;
  // Whether a tool call has been seen: then finish_reason is "tool_calls".
  virtual bool has_tool_calls() const = 0;
};

// The texts around a model's reasoning.
struct ThinkingMarks {
  std::string begin;
  std::string end;      // as the model writes it
  std::string closing;  // what leads from within the reasoning to the answer
  bool comes_first;     // an answer begins with reasoning even where nothing says so
};

// How the answers of one model are parsed; made once per server, const and thread-safe.
class OutputFormat {
 public:
  virtual ~OutputFormat() = default;

  virtual std::string_view name() const = 0;  // "hermes", "deepseek_v3", "harmony", ...
  // The special tokens that the parser of an answer must see: it reads them as its markers, and
  // they do not come out as text unless what they mark does not parse. A request that skips special
  // tokens skips all others. Texts that are no special tokens of the model may be among them.
  virtual std::vector<std::string> kept_special_tokens(bool with_tools) const = 0;
  // The name of the way in which tool calls are written (answer_grammar.h), empty where none are
  // understood.
  virtual std::string_view tool_syntax() const = 0;
  // None where reasoning is not told apart.
  virtual std::optional<ThinkingMarks> thinking_marks() const = 0;
  // `prompt_tail`: the end of the rendered prompt, which may have opened the reasoning. `tools`:
  // the request's tools, null without; without them nothing is taken for a tool call. `id_seed`
  // makes the ids of the calls.
  virtual std::unique_ptr<OutputParser> make_parser(std::string_view prompt_tail,
                                                    const OrderedJson* tools,
                                                    uint64_t id_seed) const = 0;
};

struct OutputFormatChoice {
  std::string tool_call_parser = "auto";  // a parser's name, "auto" or "none"
  std::string reasoning_parser = "auto";
};

// Chosen by name, or under "auto" from what the chat template writes. An error lists the names.
Result<std::unique_ptr<OutputFormat>> make_output_format(const OutputFormatChoice& choice,
                                                         std::string_view chat_template);

}  // namespace atom::server
