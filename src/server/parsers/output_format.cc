// The table of formats, and how one is chosen.
#include <algorithm>
#include <utility>

#include "server/parsers/harmony_parser.h"
#include "server/parsers/hermes_call_reader.h"
#include "server/parsers/llama_call_reader.h"
#include "server/parsers/mistral_call_reader.h"
#include "server/parsers/output_parser.h"
#include "server/parsers/section_call_reader.h"
#include "server/parsers/tagged_parser.h"
#include "server/parsers/xml_call_reader.h"

namespace atom::server {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kNone = "none";
constexpr std::string_view kHarmony = "harmony";

using Types = std::shared_ptr<const ToolTypes>;
using Reader = std::unique_ptr<ToolCallReader>;
using Strings = std::vector<std::string>;

Reader make_hermes_reader(Types) {
  return std::make_unique<HermesCallReader>();
}
Reader make_llama_reader(Types) {
  return std::make_unique<LlamaCallReader>();
}
Reader make_mistral_reader(Types) {
  return std::make_unique<MistralCallReader>();
}
Reader make_deepseek_reader(Types) {
  return std::make_unique<SectionCallReader>(deepseek_section_syntax());
}
Reader make_kimi_reader(Types) {
  return std::make_unique<SectionCallReader>(kimi_section_syntax());
}
Reader make_qwen_coder_reader(Types types) {
  return std::make_unique<XmlCallReader>(qwen_coder_syntax(), std::move(types));
}
Reader make_glm_reader(Types types) {
  return std::make_unique<XmlCallReader>(glm_syntax(), std::move(types));
}
Reader make_dsml_reader(Types types) {
  return std::make_unique<XmlCallReader>(dsml_syntax(), std::move(types));
}

ToolSyntax section_tools(std::string_view name,
                         const SectionSyntax& syntax,
                         Reader (*make_reader)(Types)) {
  return {.name = name,
          .begin_markers = {syntax.section_begin, syntax.call_begin},
          .end_markers = {syntax.section_end, syntax.call_end},
          .other_markers = {syntax.separator},
          .make_reader = make_reader};
}

ToolSyntax xml_tools(std::string_view name, const XmlTags& tags, Reader (*make_reader)(Types)) {
  ToolSyntax tools = {
      .name = name,
      .begin_markers = tags.section_begin,
      .end_markers = tags.section_end,
      .other_markers = {tags.key_begin, tags.key_end, tags.value_begin, tags.value_end},
      .typed = true,
      .make_reader = make_reader};
  std::erase(tools.other_markers, "");
  if (!tags.call_begin.empty()) tools.begin_markers.push_back(tags.call_begin);
  if (!tags.call_end.empty()) tools.end_markers.push_back(tags.call_end);
  return tools;
}

// The token that its tags have in common.
ToolSyntax dsml_tools() {
  ToolSyntax tools = xml_tools("deepseek_v32", dsml_syntax().tags, make_dsml_reader);
  tools.other_markers.emplace_back("｜DSML｜");
  return tools;
}

std::vector<ToolSyntax> make_tool_syntaxes() {
  return {
      {.name = "hermes",
       .begin_markers = {std::string(HermesCallReader::kBegin)},
       .end_markers = {std::string(HermesCallReader::kEnd)},
       .make_reader = make_hermes_reader},
      xml_tools("qwen3_coder", qwen_coder_syntax().tags, make_qwen_coder_reader),
      xml_tools("glm45", glm_syntax().tags, make_glm_reader),
      section_tools("deepseek_v3", deepseek_section_syntax(), make_deepseek_reader),
      section_tools("deepseek_v31", deepseek_section_syntax(), make_deepseek_reader),
      dsml_tools(),
      {.name = "llama3_json",
       .begin_markers = {std::string(LlamaCallReader::kTag)},
       .end_markers = {},
       .bare_object = true,
       .make_reader = make_llama_reader},
      {.name = "mistral",
       .begin_markers = {std::string(MistralCallReader::kBegin)},
       .end_markers = {},
       .other_markers = {std::string(MistralCallReader::kId),
                         std::string(MistralCallReader::kArguments)},
       .id_style = CallIdStyle::kMistral,
       .make_reader = make_mistral_reader},
      section_tools("kimi_k2", kimi_section_syntax(), make_kimi_reader),
  };
}

const ToolSyntax* find_tools(std::string_view name) {
  static const std::vector<ToolSyntax> syntaxes = make_tool_syntaxes();
  const auto found = std::find_if(syntaxes.begin(), syntaxes.end(), [&](const ToolSyntax& syntax) {
    return syntax.name == name;
  });
  return found == syntaxes.end() ? nullptr : &*found;
}

constexpr ReasoningSyntax kThink = {"<think>", "</think>"};
constexpr ReasoningSyntax kThinkFirst = {"<think>", "</think>", /*comes_first=*/true};
constexpr ReasoningSyntax kMistralThink = {"[THINK]", "[/THINK]"};

struct Name {
  std::string_view name;
  std::string_view format;
};
// vLLM's names for them, then SGLang's where these differ.
constexpr Name kToolNames[] = {
    {"hermes", "hermes"},
    {"qwen3_coder", "qwen3_coder"},
    {"glm45", "glm45"},
    {"deepseek_v3", "deepseek_v3"},
    {"deepseek_v31", "deepseek_v31"},
    {"deepseek_v32", "deepseek_v32"},
    {"llama3_json", "llama3_json"},
    {"mistral", "mistral"},
    {"kimi_k2", "kimi_k2"},
    {"openai", kHarmony},
    {"qwen3_xml", "qwen3_coder"},
    {"glm46", "glm45"},
    {"glm47", "glm45"},
    {"llama4_json", "llama3_json"},
    {"harmony", kHarmony},
    {"gpt_oss", kHarmony},
    {"gpt-oss", kHarmony},
    {"qwen", "hermes"},
    {"qwen25", "hermes"},
    {"glm", "glm45"},
    {"deepseekv3", "deepseek_v3"},
    {"deepseekv31", "deepseek_v31"},
    {"deepseekv32", "deepseek_v32"},
    {"llama3", "llama3_json"},
};
constexpr std::string_view kThinkName = "think";
constexpr std::string_view kThinkFirstName = "think_first";
constexpr std::string_view kMistralName = "mistral";
constexpr Name kReasoningNames[] = {
    {"qwen3", kThinkName},
    {"deepseek_r1", kThinkFirstName},
    {"deepseek_v3", kThinkName},
    {"deepseek_v31", kThinkName},
    {"deepseek_v32", kThinkName},
    {"glm45", kThinkName},
    {"kimi_k2", kThinkName},
    {"mistral", kMistralName},
    {"openai_gptoss", kHarmony},
    {"harmony", kHarmony},
    {"gpt_oss", kHarmony},
    {"gpt-oss", kHarmony},
    {"qwen3-thinking", kThinkFirstName},
    {"deepseek-r1", kThinkFirstName},
    {"deepseek-v3", kThinkName},
};

template <size_t size>
Result<std::string_view> format_named(const Name (&names)[size],
                                      std::string_view name,
                                      std::string_view what) {
  std::string known = fmt::format("{}, {}", kAuto, kNone);
  for (const Name& entry : names) {
    if (entry.name == name) return entry.format;
    known += fmt::format(", {}", entry.name);
  }
  return invalid_argument("there is no {} '{}'; it can be {}", what, name, known);
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The most telling marker first: several families share "<tool_call>".
std::string_view detect_tools(std::string_view chat_template) {
  struct Rule {
    std::string_view marker;
    std::string_view format;
  };
  constexpr Rule kRules[] = {
      {"｜DSML｜", "deepseek_v32"},
      {"<|tool_calls_section_begin|>", "kimi_k2"},
      {"<arg_key>", "glm45"},
      {"<function=", "qwen3_coder"},
      {"<tool_call>", "hermes"},
      {"[TOOL_CALLS]", "mistral"},
      {"<|python_tag|>", "llama3_json"},
  };
  if (has(chat_template, "<|channel|>") && has(chat_template, "<|message|>")) return kHarmony;
  if (has(chat_template, "<｜tool▁calls▁begin｜>")) {
    return has(chat_template, "```json") ? "deepseek_v3" : "deepseek_v31";
  }
  for (const Rule& rule : kRules) {
    if (has(chat_template, rule.marker)) return rule.format;
  }
  if (has(chat_template, "<|start_header_id|>") && has(chat_template, "\"parameters\"")) {
    return "llama3_json";
  }
  return kNone;
}

std::string_view detect_reasoning(std::string_view chat_template) {
  if (detect_tools(chat_template) == kHarmony) return kHarmony;
  if (has(chat_template, kMistralThink.open)) return kMistralName;
  if (has(chat_template, kThink.open) || has(chat_template, kThink.close)) return kThinkName;
  return kNone;
}

class TaggedFormat : public OutputFormat {
 public:
  TaggedFormat(std::string_view name, const ToolSyntax* tools, const ReasoningSyntax* reasoning)
      : name_(name), syntax_(tools, reasoning) {}

  std::string_view name() const override { return name_; }
  std::vector<std::string> kept_special_tokens(bool with_tools) const override {
    Strings kept;
    if (syntax_.reasoning != nullptr) {
      kept = {std::string(syntax_.reasoning->open), std::string(syntax_.reasoning->close)};
    }
    if (syntax_.tools == nullptr || !with_tools) return kept;
    for (const Strings* markers : {&syntax_.tools->begin_markers,
                                   &syntax_.tools->end_markers,
                                   &syntax_.tools->other_markers}) {
      kept.insert(kept.end(), markers->begin(), markers->end());
    }
    return kept;
  }
  std::string_view tool_syntax() const override {
    return syntax_.tools == nullptr ? std::string_view() : syntax_.tools->name;
  }
  std::optional<ThinkingMarks> thinking_marks() const override {
    if (syntax_.reasoning == nullptr) return std::nullopt;
    const auto& [open, close, comes_first] = *syntax_.reasoning;
    return ThinkingMarks{std::string(open), std::string(close), std::string(close), comes_first};
  }
  std::unique_ptr<OutputParser> make_parser(std::string_view prompt_tail,
                                            const OrderedJson* tools,
                                            uint64_t id_seed) const override {
    return std::make_unique<TaggedParser>(syntax_, prompt_tail, tools, id_seed);
  }

 private:
  const std::string name_;
  const TaggedSyntax syntax_;
};

class HarmonyFormat : public OutputFormat {
 public:
  HarmonyFormat(bool with_tools, bool with_reasoning)
      : with_tools_(with_tools), with_reasoning_(with_reasoning) {}

  std::string_view name() const override { return kHarmony; }
  std::vector<std::string> kept_special_tokens(bool) const override {
    return HarmonyParser::marker_tokens();
  }
  std::string_view tool_syntax() const override { return kHarmony; }
  std::optional<ThinkingMarks> thinking_marks() const override {
    if (!with_reasoning_) return std::nullopt;
    return ThinkingMarks{"<|channel|>analysis<|message|>",
                         "<|end|>",
                         "<|end|><|start|>assistant<|channel|>final<|message|>",
                         /*comes_first=*/false};
  }
  std::unique_ptr<OutputParser> make_parser(std::string_view prompt_tail,
                                            const OrderedJson* tools,
                                            uint64_t id_seed) const override {
    return std::make_unique<HarmonyParser>(prompt_tail,
                                           HarmonyParser::Options{
                                               .with_tools = with_tools_ && tools != nullptr,
                                               .with_reasoning = with_reasoning_,
                                               .id_seed = id_seed,
                                           });
  }

 private:
  const bool with_tools_;
  const bool with_reasoning_;
};

class PlainParser : public OutputParser {
 public:
  OutputDelta feed(std::string_view text) override { return {{}, std::string(text), {}}; }
  OutputDelta finish() override { return {}; }
  bool has_tool_calls() const override { return false; }
};

class PlainFormat : public OutputFormat {
 public:
  std::string_view name() const override { return "plain"; }
  std::vector<std::string> kept_special_tokens(bool) const override { return {}; }
  std::string_view tool_syntax() const override { return {}; }
  std::optional<ThinkingMarks> thinking_marks() const override { return std::nullopt; }
  std::unique_ptr<OutputParser> make_parser(std::string_view,
                                            const OrderedJson*,
                                            uint64_t) const override {
    return std::make_unique<PlainParser>();
  }
};

}  // namespace

Result<std::unique_ptr<OutputFormat>> make_output_format(const OutputFormatChoice& choice,
                                                         std::string_view chat_template) {
  std::string_view tools = choice.tool_call_parser;
  std::string_view reasoning = choice.reasoning_parser;
  if (tools == kAuto) {
    tools = detect_tools(chat_template);
  } else if (tools != kNone) {
    ASSIGN_OR_RETURN(tools, format_named(kToolNames, tools, "tool call parser"));
  }
  if (reasoning == kAuto) {
    reasoning = tools == kHarmony ? kHarmony : detect_reasoning(chat_template);
    if (reasoning == kHarmony && tools != kHarmony && tools != kNone) reasoning = kNone;
  } else if (reasoning != kNone) {
    ASSIGN_OR_RETURN(reasoning, format_named(kReasoningNames, reasoning, "reasoning parser"));
  }
  // Harmony is one syntax for both.
  if (reasoning == kHarmony && choice.tool_call_parser == kAuto) tools = kHarmony;
  if (tools == kHarmony || reasoning == kHarmony) {
    const bool with_tools = tools == kHarmony;
    const bool with_reasoning = reasoning == kHarmony;
    if ((!with_tools && tools != kNone) || (!with_reasoning && reasoning != kNone)) {
      return invalid_argument(
          "tool call parser '{}' and reasoning parser '{}' do not go together: only one is harmony",
          choice.tool_call_parser,
          choice.reasoning_parser);
    }
    return std::unique_ptr<OutputFormat>(new HarmonyFormat(with_tools, with_reasoning));
  }
  if (tools == kNone && reasoning == kNone) {
    return std::unique_ptr<OutputFormat>(new PlainFormat());
  }
  const ReasoningSyntax* syntax = reasoning == kNone             ? nullptr
                                  : reasoning == kThinkName      ? &kThink
                                  : reasoning == kThinkFirstName ? &kThinkFirst
                                                                 : &kMistralThink;
  return std::unique_ptr<OutputFormat>(
      new TaggedFormat(tools == kNone ? reasoning : tools, find_tools(tools), syntax));
}

}  // namespace atom::server
