#include "server/parsers/answer_grammar.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "structured_output/grammar_compiler.h"
#include "structured_output/grammar_state.h"
#include "structured_output/structural_tag.h"
#include "tests/support/test_folders.h"
#include "tokenizer/tokenizer.h"

namespace atom::server {
namespace {

constexpr int32_t kEnd = 2;

// How a family writes calls: a call with the number of it, and what stands around and between
// calls.
struct CallMarks {
  const char* syntax;
  const char* section_begin;
  const char* call_begin;
  const char* name_end;
  const char* call_end;
  const char* separator;
  const char* section_end;
};

constexpr CallMarks kCallMarks[] = {
    {"hermes",
     "",
     "<tool_call>\n{\"name\": \"",
     "\", \"arguments\": ",
     "}\n</tool_call>",
     "\n",
     ""},
    {"deepseek_v3",
     "<｜tool▁calls▁begin｜>",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     "\n```json\n",
     "\n```<｜tool▁call▁end｜>",
     "\n",
     "<｜tool▁calls▁end｜>"},
    {"deepseek_v31",
     "<｜tool▁calls▁begin｜>",
     "<｜tool▁call▁begin｜>",
     "<｜tool▁sep｜>",
     "<｜tool▁call▁end｜>",
     "",
     "<｜tool▁calls▁end｜>"},
    {"mistral", "[TOOL_CALLS][", "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]"},
};

class AnswerGrammarTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ = Tokenizer::load(demo_model_folder()).value();
    const int32_t ends[] = {kEnd};
    compiler_ = GrammarCompiler::create(*tokenizer_, tokenizer_->vocab_size(), ends).value();
  }

  // The text is an answer that the request allows.
  static bool allows(const AnswerGrammarRequest& request, const std::string& text) {
    const std::string tag = structural_tag_text(answer_grammar(request).value(), "test").value();
    GrammarState state(compiler_->compile(tag).value(), {});
    const auto ids = tokenizer_->encode(text, /*add_special_tokens=*/false).value();
    for (const int32_t id : ids) {
      if (!state.accept(id).ok()) return false;
    }
    return state.accept(kEnd).ok();
  }

  static inline std::shared_ptr<const Tokenizer> tokenizer_;
  static inline std::unique_ptr<GrammarCompiler> compiler_;
};

AnswerGrammarRequest strict_request(const CallMarks& marks) {
  const auto schema = std::make_shared<const OrderedJson>(OrderedJson::parse(
      R"({"type": "object", "properties": {"up": {"type": "boolean"}}, "required": ["up"]})"));
  AnswerGrammarRequest request;
  request.syntax = marks.syntax;
  request.calls = AnswerGrammarRequest::Calls::kAllowed;
  for (const char* name : {"ping", "pong"}) {
    request.tools.push_back({.name = name, .parameters = schema, .where = "tools", .strict = true});
  }
  return request;
}

std::string call(const CallMarks& marks, const std::string& name, const std::string& arguments) {
  return marks.call_begin + name + marks.name_end + arguments + marks.call_end;
}

TEST_F(AnswerGrammarTest, StrictToolsMayBeCalledSeveralTimes) {
  for (const CallMarks& marks : kCallMarks) {
    SCOPED_TRACE(marks.syntax);
    const AnswerGrammarRequest request = strict_request(marks);
    const std::string right = R"({"up": true})";
    const std::string wrong = R"({"up": 1})";
    const std::string begin = std::string("Text. ") + marks.section_begin;
    const std::string one = call(marks, "ping", right);
    const std::string other = call(marks, "pong", right);
    const std::string end = marks.section_end;
    EXPECT_TRUE(allows(request, "Text."));
    EXPECT_TRUE(allows(request, begin + one + end));
    EXPECT_TRUE(allows(request, begin + one + marks.separator + other + end));
    EXPECT_FALSE(allows(request, begin + call(marks, "ping", wrong) + end));
    EXPECT_FALSE(allows(request, begin + one + marks.separator + call(marks, "pong", wrong) + end));
    EXPECT_FALSE(allows(request, begin + call(marks, "nobody", right) + end));
  }
}

TEST_F(AnswerGrammarTest, ASectionHasOneCallWhereCallsAreNotParallel) {
  for (const CallMarks& marks : kCallMarks) {
    if (*marks.section_begin == '\0') continue;
    SCOPED_TRACE(marks.syntax);
    AnswerGrammarRequest request = strict_request(marks);
    request.parallel = false;
    const std::string one = call(marks, "ping", R"({"up": true})");
    EXPECT_TRUE(allows(request, marks.section_begin + one + marks.section_end));
    EXPECT_FALSE(
        allows(request, marks.section_begin + one + marks.separator + one + marks.section_end));
  }
}

}  // namespace
}  // namespace atom::server
