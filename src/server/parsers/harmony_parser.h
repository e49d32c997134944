// Answers of gpt-oss: messages of a header and a body,
//   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
//   <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
// Analysis is reasoning, a message to a function is a call, everything else is content. The prompt
// ends within the first header, and the token that ends the answer is not in the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/parsers/arguments_reader.h"
#include "server/parsers/delta_writer.h"
#include "server/parsers/held_text.h"
#include "server/parsers/output_parser.h"

namespace atom::server {

class HarmonyParser : public OutputParser {
 public:
  struct Options {
    bool with_tools = true;      // otherwise messages to functions are content
    bool with_reasoning = true;  // otherwise analysis is content
    uint64_t id_seed = 0;
  };
  static std::vector<std::string> marker_tokens();

  // `prompt_tail`: from the last <|start|> in it on, it is the beginning of the first message.
  HarmonyParser(std::string_view prompt_tail, const Options& options);

  OutputDelta feed(std::string_view text) override;
  OutputDelta finish() override;
  bool has_tool_calls() const override { return out_.num_calls() > 0; }

 private:
  enum class Channel : uint8_t { kReasoning, kContent, kCall };
  enum class ArgumentsForm : uint8_t { kUnknown, kVerbatim, kString };

  size_t run(std::string_view text, bool final);
  size_t read_header(std::string_view text, bool final);
  size_t read_message(std::string_view text, bool final);
  void begin_message();
  void end_message();
  void give_header_back();
  void write(std::string_view text);
  void write_arguments(std::string_view text);

  const Options options_;
  DeltaWriter out_;
  bool in_header_ = true;
  std::string prompt_header_;  // what the prompt has of the first header
  std::string header_;         // with the names of its markers
  bool header_has_marker_ = false;
  Channel channel_ = Channel::kContent;
  bool is_first_text_ = true;   // of the message
  bool had_reasoning_ = false;  // in an earlier message
  bool had_content_ = false;
  ArgumentsForm arguments_form_ = ArgumentsForm::kUnknown;
  ArgumentsReader arguments_reader_;
  std::string undecided_;  // of a string that may not hold arguments
  std::string scratch_;
  HeldText held_;  // the beginning of a marker
};

}  // namespace atom::server
