// Any bytes as a template: parsing and rendering under small limits end, cleanly, whatever it says.
#include <nlohmann/json.hpp>
#include <string_view>

#include "tokenizer/chat_template/chat_template.h"

namespace {

const atom::OrderedJson& conversation() {
  static const auto* const json =
      new atom::OrderedJson(atom::parse_ordered_json(
                                R"([{"role": "system", "content": "Größe 🎉"},
              {"role": "user", "content": [{"type": "text", "text": "a <b> \\ \"c\""}]},
              {"role": "assistant", "content": null, "tool_calls": [{"id": "x", "function":
                  {"name": "f", "arguments": {"n": 1.5, "k": [1, true, null, -7]}}}]}])",
                                "conversation")
                                .value());
  return *json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  atom::ChatTemplateLimits limits;
  limits.max_template_size = 1 << 16;
  limits.max_steps = 100'000;
  limits.max_output_size = 1 << 20;
  limits.max_memory = 4 << 20;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto chat_template = atom::ChatTemplate::parse(source, "fuzz", limits);
  if (!chat_template.ok()) return 0;
  atom::ChatTemplateInput input;
  input.messages = &conversation();
  input.tools = &conversation();
  input.special_tokens["bos_token"] = "<s>";
  input.now = std::tm{};
  const auto text = chat_template->render(input);
  if (text.ok() && text->size() > limits.max_output_size) __builtin_trap();
  return 0;
}
