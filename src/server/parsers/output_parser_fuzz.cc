// Arbitrary text, and text made of the families' own pieces, to every format: never a crash, the
// same result however the text is cut, and nothing out of order.
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "server/parsers/json_scanner.h"
#include "server/parsers/output_parser.h"

using namespace atom;
using namespace atom::server;

namespace {

// Bytes from 0x80 on stand for these, so that mutations find what the parsers look for. The bytes
// in between are taken as they are.
constexpr std::string_view kPieces[] = {
    "<tool_call>",
    "</tool_call>",
    "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
    "{\"name\": \"f\", \"parameters\": ",
    "\"arguments\": ",
    "\"name\": \"",
    "<function=",
    "<function=f>",
    "</function>",
    "<parameter=",
    "<parameter=k>\n",
    "\n</parameter>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<think>",
    "</think>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "function<｜tool▁sep｜>f\n```json\n",
    "\n```",
    "<｜DSML｜function_calls>",
    "<｜DSML｜invoke name=\"f\">",
    "<｜DSML｜parameter name=\"k\" string=\"",
    "true\">",
    "</｜DSML｜parameter>",
    "</｜DSML｜invoke>",
    "</｜DSML｜function_calls>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
    "[THINK]",
    "[/THINK]",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>functions.f:0",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<|start|>assistant",
    "<|channel|>analysis",
    "<|channel|>commentary to=functions.f",
    "<|channel|>final",
    "<|constrain|>json",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|im_end|>",
    "{\"k\": [1, \"x\"]}",
    "\\u00e9",
    "\\ud83c",
    "null",
    "True",
    "\n\n",
};

std::string expand(std::string_view data) {
  std::string text;
  for (const char c : data) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 0x80 && byte - 0x80u < std::size(kPieces)) {
      text += kPieces[byte - 0x80];
    } else {
      text.push_back(c);
    }
  }
  return text;
}

struct Formats {
  Formats() {
    constexpr std::string_view kNames[][2] = {{"none", "none"},
                                              {"none", "qwen3"},
                                              {"hermes", "qwen3"},
                                              {"qwen3_coder", "qwen3"},
                                              {"glm45", "glm45"},
                                              {"deepseek_v3", "deepseek_r1"},
                                              {"deepseek_v32", "deepseek_v3"},
                                              {"llama3_json", "none"},
                                              {"llama3_json", "qwen3"},
                                              {"mistral", "mistral"},
                                              {"kimi_k2", "kimi_k2"},
                                              {"openai", "openai_gptoss"},
                                              {"openai", "none"}};
    for (const auto& [calls, reasoning] : kNames) {
      formats.push_back(
          make_output_format({std::string(calls), std::string(reasoning)}, "").value());
    }
    tools = OrderedJson::parse(R"([{"function": {"name": "f", "parameters": {"properties": {
        "k": {"type": ["integer", "object"]}, "n": {}, "a": {"type": "boolean"}}}}}])");
  }

  std::vector<std::unique_ptr<OutputFormat>> formats;
  OrderedJson tools;
};

struct Answer {
  std::string reasoning;
  std::string content;
  std::string calls;  // id, name and arguments of each
  std::vector<std::string> arguments;

  bool operator==(const Answer&) const = default;
};

void add(const OutputDelta& delta, const OutputParser& parser, Answer* answer) {
  answer->reasoning += delta.reasoning;
  answer->content += delta.content;
  for (const ToolCallDelta& call : delta.tool_calls) {
    const auto index = static_cast<size_t>(call.index);
    if (index == answer->arguments.size()) {
      CHECK(!call.name.empty());
      CHECK(!call.id.empty());
      answer->calls += call.id + ' ' + call.name + '\n';
      answer->arguments.emplace_back();
    }
    CHECK(index + 1 == answer->arguments.size());
    answer->arguments.back() += call.arguments;
  }
  CHECK(parser.has_tool_calls() == !answer->arguments.empty());
}

Answer parse(const OutputFormat& format,
             std::string_view prompt,
             const OrderedJson* tools,
             std::string_view text,
             std::string_view cuts) {
  Answer answer;
  const auto parser = format.make_parser(prompt, tools, 1);
  size_t at = 0;
  for (size_t i = 0; at < text.size() && !cuts.empty(); ++i) {
    const std::string_view piece = text.substr(at, static_cast<uint8_t>(cuts[i % cuts.size()]) % 9);
    at += piece.size();
    // A cut of nothing but zeros would not get anywhere.
    if (piece.empty() && i > 2 * text.size()) break;
    add(parser->feed(piece), *parser, &answer);
  }
  add(parser->feed(text.substr(at)), *parser, &answer);
  add(parser->finish(), *parser, &answer);
  return answer;
}

// The formats that make the arguments themselves make them right, unless the answer was cut off.
bool makes_arguments(std::string_view format) {
  return format == "qwen3_coder" || format == "glm45" || format == "deepseek_v32";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Formats all;
  if (size < 8) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const OutputFormat& format = *all.formats[data[0] % all.formats.size()];
  const OrderedJson* tools = data[1] % 4 == 0 ? nullptr : &all.tools;
  constexpr std::string_view kPrompts[] = {"",
                                           "<think>\n",
                                           "<think></think>",
                                           "<|start|>assistant",
                                           "<|start|>assistant<|channel|>final<|message|>x"};
  const std::string_view prompt = kPrompts[data[2] % std::size(kPrompts)];
  const std::string text = expand(input.substr(7));

  const Answer whole = parse(format, prompt, tools, text, "");
  CHECK(parse(format, prompt, tools, text, input.substr(3, 4)) == whole);
  CHECK(parse(format, prompt, tools, text, "\1") == whole);
  if (tools == nullptr) CHECK(whole.arguments.empty());

  // Nothing is made up: escapes make a byte six at most, and a call has brackets and an id.
  size_t out_size = whole.reasoning.size() + whole.content.size();
  for (const std::string& arguments : whole.arguments) out_size += arguments.size();
  CHECK(out_size <= 6 * text.size() + 2 * whole.arguments.size());

  for (size_t i = 0; i < whole.arguments.size() && makes_arguments(format.name()); ++i) {
    const bool may_be_cut = i + 1 == whole.arguments.size();
    JsonScanner scanner;
    const size_t used = scanner.scan(whole.arguments[i]);
    CHECK(used == whole.arguments[i].size());
    if (!may_be_cut) CHECK(scanner.status() == JsonStatus::kDone);
  }
  return 0;
}
