// A chat template: the Jinja program of a checkpoint that turns a conversation into a prompt, run
// as transformers runs it (sandboxed Jinja2, trim_blocks, lstrip_blocks, loop controls). Supported
// is the part of Jinja that chat templates use; anything else is refused by name.
//
// A template is immutable: any number of threads may render it. Both the template and the
// conversation are untrusted, and every rendering is bounded by ChatTemplateLimits.
#pragma once

#include <atomic>
#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "tokenizer/chat_template/limits.h"

namespace atom {

struct ChatTemplateTraits;  // template_traits.h

// What a template sees. The JSON is borrowed for the call.
struct ChatTemplateInput {
  const OrderedJson* messages = nullptr;   // array of objects
  const OrderedJson* tools = nullptr;      // array; null: none
  const OrderedJson* documents = nullptr;  // array; null: none
  bool add_generation_prompt = true;
  std::map<std::string, std::string> special_tokens;  // "bos_token" -> "<s>"
  const OrderedJson* extra = nullptr;  // object of further variables; they win over special tokens
  std::optional<std::tm> now;          // local time for strftime_now; else the clock of the system
};

class ChatTemplate {
 public:
  // `name` (a file, say) begins every message about this template.
  static Result<ChatTemplate> parse(std::string_view source,
                                    std::string name,
                                    const ChatTemplateLimits& limits = {});

  // The prompt. kInvalidArgument: the template and the conversation do not fit together, or the
  // template refuses the conversation; kResourceExhausted: a limit was passed; kAborted:
  // `cancelled`, when there is one, became true meanwhile.
  Result<std::string> render(const ChatTemplateInput& input,
                             const std::atomic<bool>* cancelled = nullptr) const;

  const std::string& name() const;
  const ChatTemplateTraits& traits() const;
  bool uses_variable(std::string_view name) const;  // the template reads a variable of this name

 private:
  struct Program;
  explicit ChatTemplate(std::shared_ptr<const Program> program);

  std::shared_ptr<const Program> program_;
};

}  // namespace atom
