// What a server does to the messages of a request before a template sees them, so that one
// conversation fits the conventions of many templates. Optional: a template can also be given the
// messages as they are. Pure functions.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "tokenizer/chat_template/chat_template.h"

namespace atom {

struct MessagePreparation {
  // Pass content that is a list of parts on as one; else join its texts with line ends.
  bool keep_content_parts = false;
  // Make a list of one part of content that is a text.
  bool wrap_text_content = false;
  // Pass null content on; else it becomes "".
  bool keep_null_content = false;
  // Call the role "developer" "system".
  bool rename_developer = false;
  // Tool call arguments as JSON text, not as objects.
  bool arguments_as_text = false;
};

// What this template needs, read off its syntax tree.
MessagePreparation preparation_for(const ChatTemplate& chat_template);

// A copy of `messages`. Arguments of tool calls that are not JSON are repaired (doubled
// backslashes) or become {"_raw": text}; reasoning is given under all names that templates read;
// empty tool_calls are left out. An error names the message that is not one.
Result<OrderedJson> prepare_messages(const OrderedJson& messages,
                                     const MessagePreparation& preparation);

// Prepares and renders. Templates that join arguments to text fail on objects: those are rendered a
// second time with arguments as text.
Result<std::string> render_conversation(const ChatTemplate& chat_template,
                                        const ChatTemplateInput& input,
                                        const std::atomic<bool>* cancelled = nullptr);

}  // namespace atom
