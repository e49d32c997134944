// What a server wants to know about a template before it renders: read off the syntax tree.
#pragma once

#include <set>
#include <string>

#include "tokenizer/chat_template/ast.h"

namespace atom {

struct ChatTemplateTraits {
  bool iterates_content = false;      // loops over the parts of a message's content
  bool tests_string_content = false;  // asks whether a message's content is a string
  bool tests_null_content = false;    // asks whether a message's content is none
  bool mentions_developer = false;    // knows the role "developer"
};

namespace jinja {

// Follows content into variables and macro parameters it is passed to by name.
ChatTemplateTraits find_traits(const Body& body);

std::set<std::string> find_names(const Body& body);  // variables read

}  // namespace jinja
}  // namespace atom
