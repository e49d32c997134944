// Shared by the tests of the template language: renders with a fixed set of variables.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tokenizer/chat_template/chat_template.h"

namespace atom {

struct RenderCase {
  const char* source;
  const char* expected;
};

inline Result<std::string> render_text(std::string_view source,
                                       const ChatTemplateLimits& limits = {}) {
  static const auto* const variables = new OrderedJson(parse_ordered_json(
                                                           R"json({"s": "Hello Wörld ß",
                  "d": {"b": 1, "a": "x", "items": [1], "n": null, "k": {"z": [1, 2.5, true]}},
                  "l": [3, 1, 2],
                  "ls": ["b", "A", "c", "a"],
                  "m": [{"role": "user", "content": "hi", "n": 2},
                        {"role": "assistant", "content": null, "n": 1},
                        {"role": "user", "content": "yo", "n": 3}],
                  "e": "", "t": true, "i": 7, "f": 2.5, "u": "你好🎉 é",
                  "nl": "a\nb\r\nc\n\nd",
                  "q": "it's \"q\" \\ \t\u0001"})json",
                                                           "variables")
                                                           .value());
  auto chat_template = ChatTemplate::parse(source, "test", limits);
  if (!chat_template.ok()) return chat_template.status();
  const OrderedJson messages = OrderedJson::array();
  ChatTemplateInput input;
  input.messages = &messages;
  input.extra = variables;
  return chat_template->render(input);
}

inline void expect_rendering(const RenderCase& test_case) {
  const auto text = render_text(test_case.source);
  if (text.ok()) {
    EXPECT_EQ(*text, test_case.expected) << test_case.source;
  } else {
    ADD_FAILURE() << test_case.source << ": " << text.status().message();
  }
}

// `test_case.expected` is part of the message.
inline void expect_failure(const RenderCase& test_case) {
  const auto text = render_text(test_case.source);
  if (text.ok()) {
    ADD_FAILURE() << test_case.source << " gave: " << *text;
  } else {
    EXPECT_NE(text.status().message().find(test_case.expected), std::string::npos)
        << test_case.source << " failed with: " << text.status().message();
  }
}

}  // namespace atom
