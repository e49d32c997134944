#include "structured_output/grammar_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "structured_output/grammar_compiler.h"
#include "structured_output/structural_tag.h"
#include "tests/support/test_folders.h"
#include "tokenizer/tokenizer.h"

namespace atom {
namespace {

constexpr int32_t kEnd = 2;

class GrammarStateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ = Tokenizer::load(demo_model_folder()).value();
    const int32_t ends[] = {kEnd};
    compiler_ = GrammarCompiler::create(*tokenizer_, tokenizer_->vocab_size(), ends).value();
  }

  static std::shared_ptr<const CompiledGrammar> compile(Result<OrderedJson> format) {
    if (!format.ok()) {
      ADD_FAILURE() << format.status().message();
      return nullptr;
    }
    const Result<std::string> text = structural_tag_text(*std::move(format), "test");
    if (!text.ok()) {
      ADD_FAILURE() << text.status().message();
      return nullptr;
    }
    Result<std::shared_ptr<const CompiledGrammar>> grammar = compiler_->compile(*text);
    if (grammar.ok()) return *grammar;
    ADD_FAILURE() << grammar.status().message();
    return nullptr;
  }

  static bool allows(const uint32_t* mask, int32_t id) {
    return mask == nullptr || (mask[id / 32] >> (id % 32) & 1u) != 0;
  }

  // The mask of the next token; empty: every token may come.
  static std::vector<uint32_t> next_mask(GrammarState* state) {
    std::vector<uint32_t> words(state->num_mask_words());
    const uint32_t* allowed[1];
    EXPECT_TRUE(state->fill_masks({}, words, allowed).ok());
    if (allowed[0] == nullptr) return {};
    return words;
  }

  // A text of random tokens that the grammar allows, up to its end.
  static std::string walk(const std::shared_ptr<const CompiledGrammar>& grammar, int seed) {
    std::mt19937 random(seed);
    GrammarState state(grammar, {});
    std::string text;
    for (int step = 0; step < 4'000; ++step) {
      const std::vector<uint32_t> mask = next_mask(&state);
      std::vector<int32_t> ids;
      for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
        if (allows(mask.empty() ? nullptr : mask.data(), id)) ids.push_back(id);
      }
      if (ids.empty()) return text + " (no token may come)";
      const bool can_end = std::ranges::find(ids, kEnd) != ids.end();
      const int32_t id = can_end && random() % 4 == 0 ? kEnd : ids[random() % ids.size()];
      EXPECT_TRUE(state.accept(id).ok());
      if (id == kEnd) {
        EXPECT_TRUE(state.is_terminated());
        return text;
      }
      text += tokenizer_->token_bytes(id);
    }
    return text + " (without end)";
  }

  static std::vector<int32_t> ids_of(const std::string& text) {
    return tokenizer_->encode(text, /*add_special_tokens=*/false).value();
  }

  static inline std::shared_ptr<const Tokenizer> tokenizer_;
  static inline std::unique_ptr<GrammarCompiler> compiler_;
};

TEST_F(GrammarStateTest, RandomAnswersMatchTheirRegex) {
  for (const char* pattern : {"a",
                              "[a-f]{2,5}",
                              "(yes|no)( maybe)?",
                              "\\d{4}-\\d{2}",
                              "x*y+z?",
                              "(a|bc)*d",
                              "[A-Z!-/]{3}",
                              "\\{\"k\": (1|2)\\}",
                              "\\w{1,8}\\.\\w+"}) {
    const auto grammar = compile(regex_format(pattern, "regex"));
    ASSERT_NE(grammar, nullptr);
    for (int seed = 0; seed < 20; ++seed) {
      const std::string text = walk(grammar, seed);
      EXPECT_TRUE(std::regex_match(text, std::regex(pattern))) << pattern << ": " << text;
    }
  }
}

TEST_F(GrammarStateTest, RandomAnswersAreJson) {
  const char* schemas[] = {
      R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 40},
          "b": {"type": "string", "maxLength": 12}}, "required": ["a", "b"]})",
      R"({"type": "array", "items": {"enum": ["x", 1, null]}, "minItems": 2, "maxItems": 5})",
      R"({"type": "string", "pattern": "^[\"\\\\a-c]{4}$"})",
      R"({"type": "string", "minLength": 3, "maxLength": 9})",
      R"({"type": "string", "format": "date"})",
  };
  for (const char* schema : schemas) {
    const auto grammar = compile(json_schema_format(OrderedJson::parse(schema), "schema"));
    ASSERT_NE(grammar, nullptr);
    for (int seed = 0; seed < 20; ++seed) {
      const std::string text = walk(grammar, seed);
      EXPECT_TRUE(OrderedJson::accept(text)) << schema << ": " << text;
    }
  }
}

TEST_F(GrammarStateTest, PatternsOfManyRepetitionsCompileBesideOthers) {
  for (const char* schema : {R"({"type": "string", "pattern": "^[a-z]{0,100}$"})",
                             R"({"type": "string", "pattern": "^[ -p]{1,128}$"})",
                             R"({"type": "string", "pattern": "^([ -p]{60}){3}$"})"}) {
    const auto first = compile(json_schema_format(OrderedJson::parse(schema), "schema"));
    ASSERT_NE(first, nullptr);
    const std::string text = walk(first, 1);
    EXPECT_TRUE(OrderedJson::accept(text)) << schema << ": " << text;
    EXPECT_EQ(compile(json_schema_format(OrderedJson::parse(schema), "schema")), first);
  }
}

TEST_F(GrammarStateTest, LengthsCountCharacters) {
  const auto grammar = compile(json_schema_format(
      OrderedJson::parse(R"({"type": "string", "minLength": 2, "maxLength": 3})"), "schema"));
  for (int seed = 0; seed < 50; ++seed) {
    const auto text = OrderedJson::parse(walk(grammar, seed), nullptr, false);
    ASSERT_TRUE(text.is_string());
    size_t length = 0;
    for (const char c : text.get<std::string>()) length += (c & 0xC0) != 0x80 ? 1 : 0;
    EXPECT_GE(length, 2u);
    EXPECT_LE(length, 3u);
  }
}

TEST_F(GrammarStateTest, MasksOfDraftsLeaveTheStateAsItIs) {
  const auto grammar = compile(regex_format("abcabcabc", "regex"));
  GrammarState state(grammar, {});
  const std::vector<int32_t> right = ids_of("abcabc");
  ASSERT_GE(right.size(), 2u);
  const size_t words = state.num_mask_words();
  std::vector<uint32_t> masks(words * (right.size() + 1));
  std::vector<const uint32_t*> allowed(right.size() + 1);
  ASSERT_TRUE(state.fill_masks(right, masks, allowed).ok());
  for (size_t i = 0; i < right.size(); ++i) {
    ASSERT_NE(allowed[i], nullptr);
    EXPECT_TRUE(allows(allowed[i], right[i]));
  }
  EXPECT_FALSE(allows(allowed.back(), kEnd));
  // Behind a draft that cannot come there is nothing to say.
  const std::vector<int32_t> wrong = {right[0], kEnd, right[1]};
  allowed.resize(4);
  masks.resize(words * 4);
  ASSERT_TRUE(state.fill_masks(wrong, masks, allowed).ok());
  EXPECT_FALSE(allows(allowed[1], kEnd));
  EXPECT_EQ(allowed[2], nullptr);
  for (const int32_t id : right) EXPECT_TRUE(state.accept(id).ok());
  EXPECT_FALSE(state.accept(kEnd).ok());
}

TEST_F(GrammarStateTest, BehindTheEndOnlyEndsMayCome) {
  GrammarState state(compile(choice_format({"a"}, "choice")), {});
  ASSERT_TRUE(state.accept(ids_of("a")[0]).ok());
  EXPECT_FALSE(state.is_terminated());
  for (int i = 0; i < 3; ++i) {
    const std::vector<uint32_t> mask = next_mask(&state);
    for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      EXPECT_EQ(allows(mask.data(), id), id == kEnd);
    }
    ASSERT_TRUE(state.accept(kEnd).ok());
    EXPECT_TRUE(state.is_terminated());
  }
  EXPECT_FALSE(state.accept(ids_of("a")[0]).ok());
}

TEST_F(GrammarStateTest, TheGrammarBeginsBehindTheReasoning) {
  const auto grammar = compile(choice_format({"b"}, "choice"));
  const int32_t b = ids_of("b")[0];
  const int32_t c = ids_of("c")[0];
  const ReasoningMarks marks{.begin = {1}, .end = {b, c}, .has_begun = true};
  GrammarState state(grammar, marks);
  for (const int32_t id : {c, b, b, c}) {
    const std::vector<uint32_t> mask = next_mask(&state);
    EXPECT_TRUE(allows(mask.data(), id));
    EXPECT_FALSE(allows(mask.data(), kEnd));
    ASSERT_TRUE(state.accept(id).ok());
  }
  EXPECT_FALSE(allows(next_mask(&state).data(), c));
  EXPECT_TRUE(allows(next_mask(&state).data(), b));
}

TEST_F(GrammarStateTest, AnAnswerMayBeginWithReasoning) {
  const auto grammar = compile(choice_format({"b"}, "choice"));
  const int32_t b = ids_of("b")[0];
  const int32_t c = ids_of("c")[0];
  const ReasoningMarks marks{.begin = {1}, .end = {c}, .has_begun = false};
  GrammarState thinks(grammar, marks);
  const std::vector<uint32_t> first = next_mask(&thinks);
  EXPECT_TRUE(allows(first.data(), 1));
  EXPECT_TRUE(allows(first.data(), b));
  EXPECT_FALSE(allows(first.data(), c));
  ASSERT_TRUE(thinks.accept(1).ok());
  ASSERT_TRUE(thinks.accept(c).ok());
  EXPECT_FALSE(allows(next_mask(&thinks).data(), 1));
  ASSERT_TRUE(thinks.accept(b).ok());
  GrammarState answers(grammar, marks);
  ASSERT_TRUE(answers.accept(b).ok());
  EXPECT_FALSE(allows(next_mask(&answers).data(), 1));
  EXPECT_TRUE(allows(next_mask(&answers).data(), kEnd));
}

// Every text can be read in as many ways as there are trees over it.
constexpr const char* kAmbiguous = R"(root ::= s
s ::= s s | [a-z] | [a-z] s | "")";

TEST_F(GrammarStateTest, WorkIsCountedAlikeWhoeverDoesIt) {
  const auto grammar = compile(regex_format("([a-z ]|[0-9]){200}", "regex"));
  GrammarState first(grammar, {});
  GrammarState second(grammar, {});
  std::vector<uint32_t> words(first.num_mask_words());
  const uint32_t* allowed[1];
  for (const int32_t id : ids_of("tar and zip")) {
    for (GrammarState* state : {&first, &second}) {
      ASSERT_TRUE(state->fill_masks({}, words, allowed).ok());
      ASSERT_TRUE(state->accept(id).ok());
    }
    const int64_t work = first.take_work();
    EXPECT_GT(work, 0);
    EXPECT_EQ(work, second.take_work());
    EXPECT_EQ(first.take_work(), 0);
  }
}

TEST_F(GrammarStateTest, AnAmbiguousGrammarEndsAtItsLimit) {
  GrammarState state(compile(ebnf_format(kAmbiguous, "ebnf")), {});
  std::vector<uint32_t> words(state.num_mask_words());
  const uint32_t* allowed[1];
  const int32_t id = ids_of("a")[0];
  Status status;
  for (int num_tokens = 0; status.ok() && num_tokens < 10'000; ++num_tokens) {
    status = state.fill_masks({}, words, allowed);
    EXPECT_LE(state.take_work(), 2 * GrammarState::kMaxMaskWork);
    if (status.ok()) status = state.accept(id);
    EXPECT_LE(state.take_work(), 2 * GrammarState::kMaxTokenWork);
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  // It is over then.
  EXPECT_EQ(state.accept(id).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(state.fill_masks({}, words, allowed).code(), StatusCode::kResourceExhausted);
}

TEST_F(GrammarStateTest, SpecialTokensAreNoText) {
  const auto grammar = compile(regex_format("[^q]*", "regex"));
  GrammarState state(grammar, {});
  const std::vector<uint32_t> mask = next_mask(&state);
  ASSERT_FALSE(mask.empty());
  int num_special = 0;
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (!tokenizer_->is_special(id) || id == kEnd) continue;
    ++num_special;
    EXPECT_FALSE(allows(mask.data(), id)) << tokenizer_->id_to_token(id);
  }
  EXPECT_GT(num_special, 0);
}

}  // namespace
}  // namespace atom
