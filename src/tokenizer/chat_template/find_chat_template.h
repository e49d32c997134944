// Where a checkpoint keeps its chat template.
#pragma once

#include <string>

#include "base/status.h"

namespace atom {

struct ChatTemplateSource {
  std::string text;
  std::string origin;  // the file, and the name in it: for messages
};

// The template of the checkpoint in `folder`: chat_template.jinja and additional_chat_templates/
// before tokenizer_config.json before chat_template.json. Where there are several by name,
// "tool_use" is taken for requests with tools, else "default". kNotFound when there is none.
Result<ChatTemplateSource> find_chat_template(const std::string& folder, bool with_tools);

// The template in the file `override_path` if one is given, or that this is itself; else that of
// the folder.
Result<ChatTemplateSource> load_chat_template(const std::string& folder,
                                              const std::string& override_path,
                                              bool with_tools);

}  // namespace atom
