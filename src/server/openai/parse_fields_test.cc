// The fields of bodies one by one: what each takes and what not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/openai/field_error.h"
#include "server/openai/parse_requests.h"
#include "server/openai/parsed_request_test.h"

namespace atom::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What each field takes and what not: wrong types, values just outside, null.
struct FieldCase {
  const char* name;
  std::vector<const char*> good;
  std::vector<const char*> bad_type;
  std::vector<const char*> bad_value;
};

const std::vector<FieldCase> kGenerationCases = {
    {"model", {R"("")", R"("m/x")"}, {"1", "[]"}, {}},
    {"stream", {"false"}, {"0", "\"true\"", "{}"}, {}},
    {"stream_options", {}, {"true", "[]"}, {}},
    {"max_tokens",
     {"0", "16", "16.0", "1e3", "2147483647"},
     {"\"5\"", "true", "[5]", "0.5"},
     {"-1", "2147483648", "1e300", "18446744073709551615", "-9223372036854775808"}},
    {"min_tokens", {"0", "1"}, {"\"1\"", "false"}, {"-1", "4294967296"}},
    {"n", {"1", "128", "2.0"}, {"\"1\"", "1.5"}, {"0", "129", "-1"}},
    {"temperature",
     {"0", "0.0", "-0.0", "1e-5", "1e-40", "5e-324", "2", "100"},
     {"\"1\"", "true"},
     {"-0.1", "100.1"}},
    {"top_p", {"1", "1e-300", "1e-40", "0.5"}, {"\"1\"", "false"}, {"0", "-0.0", "1.0000001"}},
    {"top_k", {"-1", "0", "50"}, {"\"1\"", "0.5"}, {"-2", "2147483648"}},
    {"min_p", {"0", "1e-300", "1e-40", "1"}, {"\"0\""}, {"-1e-9", "1.1"}},
    {"presence_penalty", {"-2", "-1e-40", "2"}, {"\"0\""}, {"-2.1", "2.1"}},
    {"frequency_penalty", {"-2", "1e-300", "2"}, {"[]"}, {"-2.1", "2.1"}},
    {"repetition_penalty", {"1", "1e-6", "100"}, {"true"}, {"0", "-1", "1e-300", "101"}},
    {"logit_bias",
     {"{}", R"({"0": 100, "2147483647": -100})"},
     {"[]", "1", R"({"1": "2"})", R"({"1": null})"},
     {R"({"-1": 1})",
      R"({"x": 1})",
      R"({"": 1})",
      R"({"01": 1})",
      R"({"1 ": 1})",
      R"({"2147483648": 1})",
      R"({"1": 101})"}},
    {"seed",
     {"0", "-9223372036854775808", "9223372036854775807", "9007199254740992.0", "-9e15"},
     {"\"1\"", "0.5", "true"},
     {"9223372036854775808",
      "-9223372036854775809",
      "18446744073709551616",
      "1e19",
      "-1e19",
      "1e18",
      "-9223372036854775808.0",
      "9007199254740994.0"}},
    {"stop",
     {"[]", "\"a\"", R"(["a"])", R"("\u0000")"},
     {"1", "{}", "[1]", "[null]"},
     {"\"\"", R"([""])"}},
    {"stop_token_ids", {"[]", "[0]"}, {"1", "\"1\"", "[\"1\"]", "[null]"}, {"[-1]"}},
    {"include_stop_str_in_output", {"true", "false"}, {"1"}, {}},
    {"ignore_eos", {"true", "false"}, {"\"false\""}, {}},
    {"skip_special_tokens", {"true", "false"}, {"0"}, {}},
    {"prompt_logprobs", {"0", "64"}, {"true"}, {"-1", "65"}},
    {"priority", {"-2147483648", "2147483647"}, {"\"high\""}, {"2147483648"}},
    {"cache_salt", {"\"x\""}, {"1"}, {"\"\""}},
    {"return_token_ids", {"true"}, {"1"}, {}},
    {"return_tokens_as_token_ids", {"true", "false"}, {"1"}, {}},
    {"truncate_prompt_tokens", {"-1", "0", "5"}, {"\"5\"", "true"}, {"-2"}},
    {"bad_words", {"[]", R"(["a", " b"])"}, {"1", "[1]"}, {R"([""])"}},
    {"allowed_token_ids", {"[]", "[0, 5]"}, {"1", "[null]"}, {"[-1]"}},
    {"request_id", {"\"a-Z_0.9:\""}, {"1"}, {"\"\"", "\"a b\"", R"("a\n")", "\"\u00e9\""}},
    {"user", {"\"someone\""}, {"1", "{}"}, {}},
    {"response_format",
     {R"({"type": "text"})",
      R"({"type": "json_object"})",
      R"({"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strict": true}})",
      R"({"type": "structural_tag", "format": {}})",
      R"({"type": "structural_tag", "structures": [{}], "triggers": ["<"]})"},
     {"\"text\"", R"({"type": 1})", R"({"type": "json_schema", "json_schema": []})"},
     {R"({"type": "xml"})"}},
    {"structured_outputs",
     {"{}",
      R"({"json": {}})",
      R"({"json": "{}", "disable_any_whitespace": true})",
      R"({"regex": "a"})",
      R"({"choice": ["a", "b"]})",
      R"({"grammar": "root ::= 1"})",
      R"({"json_object": true, "regex": null})",
      R"({"structural_tag": "{}"})"},
     {"1", R"({"regex": 1})", R"({"choice": "a"})", R"({"json": 1})"},
     {}},
    {"guided_json", {"{}", "\"{}\""}, {"1", "[]"}, {}},
    {"guided_regex", {"\"a\"", "\"\""}, {"1"}, {}},
    {"guided_choice", {R"(["a"])", "[]"}, {"\"a\"", "[1]"}, {}},
    {"guided_grammar", {"\"a\""}, {"1"}, {}},
    {"guided_decoding_backend", {"\"auto\""}, {}, {}},
    {"json_schema", {"{}", "\"{}\""}, {"1"}, {}},
    {"regex", {"\"a\""}, {"1"}, {}},
    {"ebnf", {"\"a\""}, {"1"}, {}},
    {"grammar", {"\"a\"", "\"\""}, {"1"}, {}},
    {"structural_tag", {"{}"}, {"1"}, {}},
    {"add_special_tokens", {"true", "false"}, {"1"}, {}},
    {"echo", {"true", "false"}, {"1"}, {}},
};

const std::vector<FieldCase> kCompletionCases = {
    {"best_of", {"1", "128"}, {"\"1\""}, {"0", "129"}},
    {"logprobs", {"0", "64"}, {"true", "\"5\""}, {"-1", "65"}},
};

const std::vector<FieldCase> kChatCases = {
    {"max_completion_tokens", {"0", "5"}, {"\"5\""}, {"-1"}},
    {"logprobs", {"true", "false"}, {"1", "\"true\""}, {}},
    {"top_logprobs", {"0"}, {"true"}, {"-1", "65"}},
    {"tools", {"[]"}, {"{}", "\"x\"", "[1]"}, {}},
    {"tool_choice",
     {"\"none\"",
      "\"auto\"",
      "\"required\"",
      R"({"type": "function", "function": {"name": "f"}})",
      R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
          {"type": "function", "function": {"name": "f"}}]}})"},
     {"1",
      "[]",
      R"({"type": "function", "function": "f"})",
      R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": {}}})"},
     {"\"any\"",
      R"({"type": "custom", "function": {"name": "f"}})",
      R"({"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [
          {"type": "function", "function": {"name": "f"}}]}})"}},
    {"parallel_tool_calls", {"true", "false"}, {"1"}, {}},
    {"reasoning_effort", {"\"low\"", "\"none\""}, {"1"}, {"\"huge\"", "\"\""}},
    {"include_reasoning", {"false"}, {"0"}, {}},
    {"chat_template", {"\"\"", "\"{{ messages }}\""}, {"1"}, {}},
    {"chat_template_kwargs",
     {"{}", R"({"enable_thinking": false, "x": [{}]})"},
     {"[]", "1"},
     {R"({"messages": []})", R"({"tools": 1})"}},
    {"documents", {"[]", R"([{"text": "x"}])"}, {"{}", "[1]"}, {}},
    {"add_generation_prompt", {"true", "false"}, {"1"}, {}},
    {"continue_final_message", {"true", "false"}, {"1"}, {}},
    {"metadata", {"{}", R"({"a": "b"})"}, {"[]", R"({"a": 1})", R"({"a": null})"}, {}},
    {"safety_identifier", {"\"x\""}, {"1"}, {}},
    {"prompt_cache_key", {"\"x\""}, {"1"}, {}},
};

template <typename Accept, typename Refuse>
void check_cases(const std::vector<FieldCase>& cases, const Accept& accept, const Refuse& refuse) {
  for (const FieldCase& field : cases) {
    const std::string key = fmt::format("\"{}\": ", field.name);
    accept(key + "null");
    for (const char* value : field.good) accept(key + value);
    const auto expect_refused = [&](const char* value, const char* code) {
      const ApiError error = refuse(key + value);
      EXPECT_EQ(error.code, code) << key << value << ": " << error.message;
      EXPECT_EQ(error.http_status, 400);
      EXPECT_EQ(error.type, "invalid_request_error");
      EXPECT_THAT(error.param, ::testing::StartsWith(field.name));
      EXPECT_THAT(error.message, AllOf(HasSubstr(field.name), HasSubstr("expected")))
          << key << value;
    };
    for (const char* value : field.bad_type) expect_refused(value, kInvalidType);
    for (const char* value : field.bad_value) {
      const ApiError error = refuse(key + value);
      EXPECT_EQ(error.code, kInvalidValue) << key << value << ": " << error.message;
      EXPECT_THAT(error.param, ::testing::StartsWith(field.name));
    }
  }
}

TEST(ParseRequests, ChecksTheTypeAndRangeOfEachFieldOfACompletion) {
  check_cases(kGenerationCases, parsed_completion, completion_error);
  check_cases(kCompletionCases, parsed_completion, completion_error);
}

TEST(ParseRequests, ChecksTheTypeAndRangeOfEachFieldOfAChat) {
  check_cases(kGenerationCases, parsed_chat, chat_error);
  check_cases(kChatCases, parsed_chat, chat_error);
}

TEST(ParseRequests, WhatIsAcceptedIsInTheRangesOfTheEngine) {
  for (const FieldCase& field : kGenerationCases) {
    for (const char* value : field.good) {
      CompletionRequest request = parsed_completion(fmt::format("\"{}\": {}", field.name, value));
      EXPECT_TRUE(request.sampling.validate(int64_t{1} << 31).ok())
          << field.name << " " << value << ": "
          << request.sampling.validate(int64_t{1} << 31).message();
    }
  }
  // Lengths are counted in characters, of up to four bytes.
  std::string character = "\xF0\x9F\x98\x80";
  std::string stop, salt;
  for (int i = 0; i < 1024; ++i) stop += character;
  for (int i = 0; i < 256; ++i) salt += character;
  const CompletionRequest longest =
      parsed_completion(R"("stop": ")" + stop + R"(", "cache_salt": ")" + salt + "\"");
  EXPECT_TRUE(longest.sampling.validate(100).ok());
  EXPECT_EQ(completion_error(R"("stop": ")" + stop + "x\"").code, kInvalidValue);
  EXPECT_EQ(completion_error(R"("cache_salt": ")" + salt + "x\"").code, kInvalidValue);
  std::string stops = "\"a\"";
  for (int i = 1; i < 64; ++i) stops += ",\"a\"";
  EXPECT_TRUE(parsed_completion("\"stop\": [" + stops + "]").sampling.validate(100).ok());
  EXPECT_EQ(completion_error("\"stop\": [" + stops + ",\"a\"]").code, kInvalidValue);
}

// A field, its neutral values, and one that is refused.
struct UnsupportedCase {
  const char* name;
  std::vector<const char*> neutral;
  std::vector<const char*> refused;
};

const std::vector<UnsupportedCase>& unsupported_generation_cases() {
  static const std::vector<UnsupportedCase> cases = {
      {"spaces_between_special_tokens", {"true"}, {"false", "1"}},
      {"length_penalty", {"1", "1.0"}, {"0.5", "true"}},
      {"use_beam_search", {"false"}, {"true", "0"}},
      {"early_stopping", {"false"}, {"true"}},
      {"guided_whitespace_pattern", {}, {"\"\""}},
      {"logits_processors", {"[]"}, {"[\"x\"]"}},
      {"mm_processor_kwargs", {}, {"{}"}},
      {"kv_transfer_params", {}, {"{}"}},
      {"vllm_xargs", {"{}"}, {R"({"a": 1})"}},
      {"repetition_detection", {}, {"{}"}},
      {"typical_p", {"1", "1.0"}, {"0.5"}},
      {"return_hidden_states", {"false"}, {"true"}},
  };
  return cases;
}

template <typename Accept, typename Refuse>
void check_unsupported(const std::vector<UnsupportedCase>& cases,
                       const Accept& accept,
                       const Refuse& refuse) {
  for (const UnsupportedCase& field : cases) {
    const std::string key = fmt::format("\"{}\": ", field.name);
    accept(key + "null");
    for (const char* value : field.neutral) accept(key + value);
    for (const char* value : field.refused) {
      const ApiError error = refuse(key + value);
      EXPECT_EQ(error.code, kUnsupportedField) << error.message;
      EXPECT_THAT(error.param, ::testing::StartsWith(field.name));
      EXPECT_THAT(error.message, AllOf(HasSubstr(field.name), HasSubstr("; expected ")));
    }
  }
}

TEST(ParseRequests, RefusesByNameWhatIsNotSupported) {
  check_unsupported(unsupported_generation_cases(), parsed_completion, completion_error);
  check_unsupported(unsupported_generation_cases(), parsed_chat, chat_error);
  check_unsupported({{"suffix", {}, {"\"\"", "\"x\""}}, {"prompt_embeds", {}, {"\"x\""}}},
                    parsed_completion,
                    completion_error);
  check_unsupported({{"modalities", {"[\"text\"]"}, {"[\"audio\"]", "[]"}},
                     {"audio", {}, {"{}"}},
                     {"web_search_options", {}, {"{}"}},
                     {"functions", {}, {"[]"}},
                     {"function_call", {"\"none\""}, {"\"auto\"", "{}"}}},
                    parsed_chat,
                    chat_error);
  EXPECT_EQ(completion_error(R"("suffix": "x")").message,
            "suffix is 'x'; expected null: inserting before a suffix is not supported");
}

}  // namespace
}  // namespace atom::server
