#include "server/openai/parse_requests.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/openai/field_error.h"
#include "server/openai/parsed_request_test.h"

namespace atom::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

SamplingParams defaults() {
  SamplingParams sampling;
  sampling.temperature = 0.6f;
  sampling.top_k = 20;
  sampling.max_tokens = 512;
  return sampling;
}

CompletionRequest completion(const std::string& members) {
  const std::string body = completion_body(members);
  return expect_parsed(parse_completion_request(body, defaults()), body);
}
ChatCompletionRequest chat(const std::string& members) {
  const std::string body = chat_body(members);
  return expect_parsed(parse_chat_completion_request(body, defaults()), body);
}
ChatCompletionRequest conversation(const std::string& messages) {
  const std::string body = R"({"messages": )" + messages + "}";
  return expect_parsed(parse_chat_completion_request(body, defaults()), body);
}
ApiError completion_error(const std::string& members) {
  const std::string body = completion_body(members);
  return expect_error(parse_completion_request(body, defaults()), body);
}
ApiError chat_error(const std::string& members) {
  const std::string body = chat_body(members);
  return expect_error(parse_chat_completion_request(body, defaults()), body);
}
ApiError conversation_error(const std::string& messages) {
  const std::string body = R"({"messages": )" + messages + "}";
  return expect_error(parse_chat_completion_request(body, defaults()), body);
}

TEST(ParseRequests, ACompletionOfOnlyAPromptHasTheDefaults) {
  const CompletionRequest request = completion("");
  EXPECT_THAT(request.prompts, ElementsAre(PromptInput("tar")));
  EXPECT_EQ(request.model, "");
  EXPECT_EQ(request.sampling.temperature, 0.6f);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_TRUE(request.has_max_tokens);
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.sampling.seed);
  EXPECT_TRUE(request.add_special_tokens);
}

TEST(ParseRequests, ReadsEveryFieldOfACompletion) {
  const CompletionRequest request = completion(R"(
    "model": "m", "stream": true, "stream_options": {"include_usage": true,
    "continuous_usage_stats": true}, "max_tokens": 7, "min_tokens": 2, "n": 3, "best_of": 4,
    "temperature": 1.5, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "presence_penalty": 1,
    "frequency_penalty": -1, "repetition_penalty": 1.1, "logit_bias": {"5": -100, "70": 2.5},
    "seed": -1, "stop": ["a", "b"], "stop_token_ids": [1, 2.0], "include_stop_str_in_output": true,
    "ignore_eos": true, "skip_special_tokens": false, "logprobs": 5, "echo": true,
    "add_special_tokens": false, "priority": -3, "cache_salt": "salt", "return_token_ids": true,
    "request_id": "a-1", "user": "u")");
  EXPECT_EQ(request.model, "m");
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.stream_options.include_usage);
  EXPECT_TRUE(request.stream_options.continuous_usage_stats);
  const SamplingParams& sampling = request.sampling;
  EXPECT_EQ(sampling.max_tokens, 7);
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_EQ(sampling.n, 3);
  EXPECT_EQ(request.best_of, 4);
  EXPECT_EQ(sampling.temperature, 1.5f);
  EXPECT_EQ(sampling.top_p, 0.5f);
  EXPECT_EQ(sampling.top_k, -1);
  EXPECT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(sampling.presence_penalty, 1.0f);
  EXPECT_EQ(sampling.frequency_penalty, -1.0f);
  EXPECT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_THAT(sampling.logit_bias, ElementsAre(Pair(5, -100.0f), Pair(70, 2.5f)));
  EXPECT_EQ(sampling.seed, UINT64_MAX);
  EXPECT_THAT(sampling.stop, ElementsAre("a", "b"));
  EXPECT_THAT(sampling.stop_token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(sampling.include_stop_str_in_output);
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_FALSE(sampling.skip_special_tokens);
  EXPECT_EQ(request.logprobs, 5);
  EXPECT_EQ(sampling.logprobs, 5);
  EXPECT_TRUE(request.echo);
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_EQ(sampling.priority, -3);
  EXPECT_EQ(sampling.cache_salt, "salt");
  EXPECT_TRUE(request.return_token_ids);
  EXPECT_EQ(request.request_id, "a-1");
  EXPECT_EQ(request.user, "u");
  EXPECT_TRUE(sampling.validate(100).ok());
}

TEST(ParseRequests, ReadsThePromptsOfACompletion) {
  const auto prompts = [](const std::string& prompt) {
    const std::string body = R"({"prompt": )" + prompt + "}";
    return expect_parsed(parse_completion_request(body, {}), body).prompts;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_THAT(prompts(R"("a\u0000\n\ud83d\ude00")"),
              ElementsAre(PromptInput(std::string("a\0\n\xF0\x9F\x98\x80", 7))));
  EXPECT_THAT(prompts(R"(["a", "b"])"), ElementsAre(PromptInput("a"), PromptInput("b")));
  EXPECT_THAT(prompts("[1, 2, 3.0]"), ElementsAre(PromptInput(Ids{1, 2, 3})));
  EXPECT_THAT(prompts("[[1, 2], [3]]"), ElementsAre(PromptInput(Ids{1, 2}), PromptInput(Ids{3})));
}

TEST(ParseRequests, RefusesPromptsThatAreNone) {
  const auto error = [](const std::string& prompt) {
    const std::string body = R"({"prompt": )" + prompt + "}";
    return expect_error(parse_completion_request(body, {}), body);
  };
  for (const char* prompt : {"null", "5", "true", "{}", "[null]", "[{}]", "[true]"}) {
    EXPECT_EQ(error(prompt).code, kInvalidType) << prompt;
  }
  for (const char* prompt :
       {R"("")", "[]", R"(["a", ""])", "[[]]", "[[1], []]", "[-1]", "[2147483648]"}) {
    EXPECT_EQ(error(prompt).code, kInvalidValue) << prompt;
  }
  EXPECT_EQ(error(R"(["a", 1])").param, "prompt[1]");
  EXPECT_EQ(error("[[1, 2], [3, \"x\"]]").param, "prompt[1][1]");
  EXPECT_EQ(error("[1, 2.5]").message, "prompt[1] is 2.5; expected an integer in [0, 2147483647]");
  std::string many = "[\"a\"";
  for (int i = 0; i < 1024; ++i) many += ",\"a\"";
  EXPECT_EQ(error(many + "]").message,
            "prompt is a list of 1025; expected a list of 1 to 1024 "
            "strings");
  const ApiError missing = expect_error(parse_completion_request("{}", {}), "{}");
  EXPECT_EQ(missing.code, kMissingField);
  EXPECT_EQ(missing.param, "prompt");
  EXPECT_THAT(missing.message, HasSubstr("prompt is missing; expected a string, a list of"));
}

// What each field takes and what not: wrong types, values just outside, null.
struct FieldCase {
  const char* name;
  std::vector<const char*> good;
  std::vector<const char*> bad_type;
  std::vector<const char*> bad_value;
};

const std::vector<FieldCase>& generation_cases() {
  static const std::vector<FieldCase> cases = {
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
  return cases;
}

const std::vector<FieldCase>& completion_cases() {
  static const std::vector<FieldCase> cases = {
      {"best_of", {"1", "128"}, {"\"1\""}, {"0", "129"}},
      {"logprobs", {"0", "64"}, {"true", "\"5\""}, {"-1", "65"}},
  };
  return cases;
}

const std::vector<FieldCase>& chat_cases() {
  static const std::vector<FieldCase> cases = {
      {"max_completion_tokens", {"0", "5"}, {"\"5\""}, {"-1"}},
      {"logprobs", {"true", "false"}, {"1", "\"true\""}, {}},
      {"top_logprobs", {"0"}, {"true"}, {"-1", "65"}},
      {"tools", {"[]"}, {"{}", "\"x\"", "[1]"}, {}},
      {"tool_choice",
       {"\"none\"",
        "\"auto\"",
        "\"required\"",
        R"({"type": "function", "function": {"name": "f"}})"},
       {"1", "[]", R"({"type": "function", "function": "f"})"},
       {"\"any\"", R"({"type": "custom", "function": {"name": "f"}})"}},
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
  return cases;
}

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
  check_cases(generation_cases(), completion, completion_error);
  check_cases(completion_cases(), completion, completion_error);
}

TEST(ParseRequests, ChecksTheTypeAndRangeOfEachFieldOfAChat) {
  check_cases(generation_cases(), chat, chat_error);
  check_cases(chat_cases(), chat, chat_error);
}

TEST(ParseRequests, WhatIsAcceptedIsInTheRangesOfTheEngine) {
  for (const FieldCase& field : generation_cases()) {
    for (const char* value : field.good) {
      CompletionRequest request = completion(fmt::format("\"{}\": {}", field.name, value));
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
      completion(R"("stop": ")" + stop + R"(", "cache_salt": ")" + salt + "\"");
  EXPECT_TRUE(longest.sampling.validate(100).ok());
  EXPECT_EQ(completion_error(R"("stop": ")" + stop + "x\"").code, kInvalidValue);
  EXPECT_EQ(completion_error(R"("cache_salt": ")" + salt + "x\"").code, kInvalidValue);
  std::string stops = "\"a\"";
  for (int i = 1; i < 64; ++i) stops += ",\"a\"";
  EXPECT_TRUE(completion("\"stop\": [" + stops + "]").sampling.validate(100).ok());
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
  check_unsupported(unsupported_generation_cases(), completion, completion_error);
  check_unsupported(unsupported_generation_cases(), chat, chat_error);
  check_unsupported({{"suffix", {}, {"\"\"", "\"x\""}}, {"prompt_embeds", {}, {"\"x\""}}},
                    completion,
                    completion_error);
  check_unsupported({{"modalities", {"[\"text\"]"}, {"[\"audio\"]", "[]"}},
                     {"audio", {}, {"{}"}},
                     {"web_search_options", {}, {"{}"}},
                     {"functions", {}, {"[]"}},
                     {"function_call", {"\"none\""}, {"\"auto\"", "{}"}}},
                    chat,
                    chat_error);
  EXPECT_EQ(completion_error(R"("suffix": "x")").message,
            "suffix is 'x'; expected null: inserting before a suffix is not supported");
}

TEST(ParseRequests, RefusesUnknownFieldsWithTheNearestName) {
  const ApiError error = completion_error(R"("temprature": 1)");
  EXPECT_EQ(error.code, kUnknownField);
  EXPECT_EQ(error.param, "temprature");
  EXPECT_EQ(error.message, "unknown field 'temprature'; did you mean 'temperature'?");
  EXPECT_EQ(chat_error(R"("xyzzyxyzzy": null)").message, "unknown field 'xyzzyxyzzy'");
  EXPECT_EQ(chat_error(R"("": 1)").code, kUnknownField);
  EXPECT_EQ(completion_error(R"("stream": true, "stream_options": {"include_usages": true})").param,
            "stream_options.include_usages");
}

TEST(ParseRequests, TakesHintsWhateverTheyHold) {
  for (const char* hint : {R"("store": true)",
                           R"("service_tier": "flex")",
                           R"("verbosity": "low")",
                           R"("moderation": {"model": "x"})",
                           R"("prompt_cache_options": {})",
                           R"("prompt_cache_retention": "24h")",
                           R"("stream": true, "stream_options": {"include_obfuscation": false})"}) {
    completion(hint);
    chat(hint);
  }
  chat(R"("prediction": {"type": "content", "content": "x"})");
}

TEST(ParseRequests, SaysByWhichNameALimitCame) {
  EXPECT_STREQ(chat(R"("max_completion_tokens": 7, "max_tokens": 5)").max_tokens_field,
               "max_completion_tokens");
  EXPECT_STREQ(chat(R"("max_tokens": 5)").max_tokens_field, "max_tokens");
}

TEST(ParseRequests, TakesOtherRoles) {
  EXPECT_EQ(conversation(R"([{"role": "function", "name": "f", "content": "7"},
                             {"role": "critic", "content": null}])")
                .messages->dump(),
            R"([{"role":"function","name":"f","content":"7"},{"role":"critic","content":null}])");
}

TEST(ParseRequests, ChecksTheRulesBetweenFields) {
  const auto expect_conflict = [](const ApiError& error, const char* param) {
    EXPECT_EQ(error.code, kConflictingFields) << error.message;
    EXPECT_EQ(error.param, param);
  };
  expect_conflict(completion_error(R"("stream_options": {})"), "stream_options");
  expect_conflict(completion_error(R"("stream": true, "prompt_logprobs": 0)"), "prompt_logprobs");
  expect_conflict(completion_error(R"("min_tokens": 17)"), "min_tokens");
  expect_conflict(completion_error(R"("min_tokens": 6, "max_tokens": 5)"), "min_tokens");
  expect_conflict(completion_error(R"("best_of": 2, "n": 3)"), "best_of");
  expect_conflict(chat_error(R"("top_logprobs": 2)"), "top_logprobs");
  expect_conflict(chat_error(R"("add_generation_prompt": true, "continue_final_message": true)"),
                  "continue_final_message");
  EXPECT_FALSE(chat(R"("continue_final_message": true)").add_generation_prompt);
  EXPECT_TRUE(chat(R"("add_generation_prompt": true)").add_generation_prompt);
}

TEST(ParseRequests, AChatHasTheLimitOfItsContextUnlessItSays) {
  EXPECT_FALSE(chat("").has_max_tokens);
  EXPECT_EQ(chat("").sampling.max_tokens, 512);
  EXPECT_EQ(chat(R"("max_tokens": 5)").sampling.max_tokens, 5);
  const ChatCompletionRequest both = chat(R"("max_completion_tokens": 7, "max_tokens": 5)");
  EXPECT_TRUE(both.has_max_tokens);
  EXPECT_EQ(both.sampling.max_tokens, 7);
}

TEST(ParseRequests, ReadsTheFieldsOfAChat) {
  const ChatCompletionRequest request = chat(R"(
    "logprobs": true, "top_logprobs": 3, "tool_choice": "none", "parallel_tool_calls": false,
    "reasoning_effort": "high", "include_reasoning": false, "chat_template": "t",
    "chat_template_kwargs": {"enable_thinking": false}, "documents": [{"text": "d"}],
    "echo": true, "add_special_tokens": true, "user": "u", "safety_identifier": "s",
    "metadata": {"k": "v"},
    "tools": [{"type": "function", "function": {"name": "get.x-1_", "description": "d",
      "parameters": {"type": "object"}, "strict": true}}])");
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.sampling.logprobs, 3);
  EXPECT_EQ(request.tool_choice, ToolChoice::kNone);
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_FALSE(request.include_reasoning);
  EXPECT_EQ(request.chat_template, "t");
  EXPECT_EQ(request.chat_template_kwargs->dump(),
            R"({"enable_thinking":false,"reasoning_effort":"high"})");
  EXPECT_EQ(request.documents->dump(), R"([{"text":"d"}])");
  EXPECT_TRUE(request.echo);
  EXPECT_TRUE(request.add_special_tokens);
  EXPECT_EQ(request.user, "s");
  EXPECT_THAT(request.metadata, ElementsAre(Pair("k", "v")));
  ASSERT_NE(request.tools, nullptr);
  EXPECT_EQ((*request.tools)[0]["function"]["name"], "get.x-1_");
  EXPECT_EQ(chat(R"("tools": [])").tools, nullptr);
  EXPECT_EQ(chat("").chat_template_kwargs, nullptr);
  EXPECT_EQ(chat(R"("logprobs": false)").sampling.logprobs, std::nullopt);
  EXPECT_EQ(chat(R"("logprobs": true)").sampling.logprobs, 0);
}

TEST(ParseRequests, TakesTheMessagesThatClientsSend) {
  EXPECT_EQ(conversation(R"([
      {"role": "system", "content": "s", "name": null},
      {"role": "developer", "content": [{"type": "text", "text": "d"}]},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}],
       "name": "me"},
      {"role": "assistant", "content": null, "refusal": null, "audio": null, "annotations": [],
       "function_call": null, "reasoning_content": "r", "tool_calls": [
         {"id": "c", "type": "function", "index": 0,
          "function": {"name": "f", "arguments": "{not json"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "7"},
      {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "tool_calls": []},
      {"role": "assistant"}])")
                .messages->dump(),
            OrderedJson::parse(R"([
      {"role": "system", "content": "s"},
      {"role": "developer", "content": [{"type": "text", "text": "d"}]},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}],
       "name": "me"},
      {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [
         {"id": "c", "type": "function", "index": 0,
          "function": {"name": "f", "arguments": "{not json"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "7"},
      {"role": "assistant", "content": [{"type": "text", "text": "no"}], "tool_calls": []},
      {"role": "assistant"}])")
                .dump());
}

TEST(ParseRequests, RefusesMessagesWithThePathOfTheFault) {
  struct Case {
    const char* messages;
    const char* param;
    const char* code;
    const char* message;
  };
  const Case cases[] = {
      {"[]", "messages", kInvalidValue, "a list of 0; expected a list of 1 to 2048 messages"},
      {"{}", "messages", kInvalidType, "an object"},
      {"null", "messages", kInvalidType, "messages is null"},
      {"[1]", "messages[0]", kInvalidType, "messages[0] is 1; expected {\"role\""},
      {R"([{"content": "x"}])", "messages[0].role", kMissingField, "'system', 'developer', 'user'"},
      {R"([{"role": 1}])", "messages[0].role", kInvalidType, "is 1"},
      {R"([{"role": "", "content": "x"}])", "messages[0].role", kInvalidValue, "1 to 64"},
      {R"([{"role": "user"}])", "messages[0].content", kMissingField, "a string or a list of 1"},
      {R"([{"role": "user", "content": null}])", "messages[0].content", kInvalidType, "null"},
      {R"([{"role": "user", "content": 1}])", "messages[0].content", kInvalidType, "is 1"},
      {R"([{"role": "user", "content": []}])", "messages[0].content", kInvalidValue, "a list of 0"},
      {R"([{"role": "user", "content": ["x"]}])", "messages[0].content[0]", kInvalidType, "'x'"},
      {R"([{"role": "user", "content": [{"text": "x"}]}])",
       "messages[0].content[0].type",
       kMissingField,
       "'text'"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])",
       "messages[0].content[0].text",
       kMissingField,
       "a string"},
      {R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])",
       "messages[0].content[0].text",
       kInvalidType,
       "is 1"},
      {R"([{"role": "user", "content": "x"}, {"role": "user", "content": [
         {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}])",
       "messages[1].content[1].type",
       kUnsupportedField,
       "is 'image_url'; expected 'text': this model takes text only"},
      {R"([{"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}])",
       "messages[0].content[0].type",
       kInvalidValue,
       "'refusal'"},
      {R"([{"role": "user", "content": "x", "contents": "y"}])",
       "messages[0].contents",
       kUnknownField,
       "did you mean 'content'"},
      {R"([{"role": "user", "content": "x", "tool_calls": null}])",
       "messages[0].tool_calls",
       kUnknownField,
       "unknown"},
      {R"([{"role": "tool", "content": "x"}])", "messages[0].tool_call_id", kMissingField, "a str"},
      {R"([{"role": "assistant", "tool_calls": {}}])",
       "messages[0].tool_calls",
       kInvalidType,
       "li"},
      {R"([{"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "function":
         {"name": "f", "arguments": ""}}]}])",
       "messages[0].tool_calls[0].type",
       kInvalidValue,
       "'custom'"},
      {R"([{"role": "assistant", "tool_calls": [{"id": "a", "function":
         {"name": "f", "arguments": {}}}]}])",
       "messages[0].tool_calls[0].function.arguments",
       kInvalidType,
       "an object of 0; expected a string"},
      {R"([{"role": "assistant", "tool_calls": [{"id": "a", "function":
         {"name": "a b", "arguments": ""}}]}])",
       "messages[0].tool_calls[0].function.name",
       kInvalidValue,
       "'a b'"},
      {R"([{"role": "assistant", "content": "x", "audio": {"id": "a"}}])",
       "messages[0].audio",
       kUnsupportedField,
       "text only"},
  };
  for (const Case& test : cases) {
    const ApiError error = conversation_error(test.messages);
    EXPECT_EQ(error.param, test.param) << test.messages << ": " << error.message;
    EXPECT_EQ(error.code, test.code) << test.messages << ": " << error.message;
    EXPECT_THAT(error.message, HasSubstr(test.message)) << test.messages;
  }
}

TEST(ParseRequests, RefusesToolsWithThePathOfTheFault) {
  const auto expect_refused = [](const char* tool, const char* param, const char* code) {
    const ApiError error = chat_error(R"("tools": [)" + std::string(tool) + "]");
    EXPECT_EQ(error.param, param) << tool << ": " << error.message;
    EXPECT_EQ(error.code, code) << tool << ": " << error.message;
  };
  expect_refused("{}", "tools[0].type", kMissingField);
  expect_refused(R"({"type": "function"})", "tools[0].function", kMissingField);
  expect_refused(R"({"type": "custom", "custom": {}})", "tools[0].type", kUnsupportedField);
  expect_refused(
      R"({"type": "function", "function": {}})", "tools[0].function.name", kMissingField);
  expect_refused(
      R"({"type": "function", "function": {"name": ""}})", "tools[0].function.name", kInvalidValue);
  expect_refused(R"({"type": "function", "function": {"name": "f", "parameters": []}})",
                 "tools[0].function.parameters",
                 kInvalidType);
  expect_refused(R"({"type": "function", "function": {"name": "f", "strict": "yes"}})",
                 "tools[0].function.strict",
                 kInvalidType);
  expect_refused(
      R"({"type": "function", "function": {"name": "f"}, "x": 1})", "tools[0].x", kUnknownField);
  const std::string long_name(65, 'f');
  expect_refused((R"({"type": "function", "function": {"name": ")" + long_name + "\"}}").c_str(),
                 "tools[0].function.name",
                 kInvalidValue);
}

TEST(ParseRequests, RefusesBodiesThatAreNoJsonObject) {
  for (const char* body : {"",
                           " ",
                           "{",
                           "{\"prompt\": \"x\"} x",
                           "{\"prompt\": NaN}",
                           "\xff",
                           "{\"prompt\": \"\xff\"}",
                           R"({"prompt": "\ud800"})",
                           R"({"prompt": "\udc00"})",
                           R"({"prompt": "a", "prompt": "b"})",
                           R"({"prompt": "a", "temperature": 1e999})",
                           "{'prompt': 'a'}"}) {
    EXPECT_EQ(expect_error(parse_completion_request(body, {}), body).code, kInvalidJson) << body;
  }
  for (const char* body : {"[]", "null", "\"x\"", "1", "true"}) {
    const ApiError error = expect_error(parse_detokenize_request(body), body);
    EXPECT_EQ(error.code, kInvalidType) << body;
    EXPECT_EQ(error.param, "");
    EXPECT_THAT(error.message, HasSubstr("the body is "));
  }
  const std::string deep = R"({"prompt": )" + std::string(100000, '[');
  EXPECT_EQ(expect_error(parse_completion_request(deep, {}), "").code, kInvalidJson);
}

TEST(ParseRequests, MessagesAreShortAndPrintable) {
  const std::string long_text(100000, 'x');
  const std::string key_error = completion_error(fmt::format("\"{}\": 1", long_text)).message;
  EXPECT_LT(key_error.size(), 300u);
  EXPECT_LT(completion_error(fmt::format("\"n\": \"{}\"", long_text)).message.size(), 300u);
  EXPECT_EQ(completion_error(R"("n": "a\nb\u0001\u007f\u00e9")").message,
            "n is 'a\\nb\\x01\\x7fé'; expected an integer in [1, 128]");
  EXPECT_LT(expect_error(parse_completion_request(fmt::format("\"{}\xff", long_text), {}), "")
                .message.size(),
            500u);
}

TEST(ParseRequests, ReadsBothFormsOfTokenize) {
  const auto parse = [](const std::string& body) {
    return expect_parsed(parse_tokenize_request(body), body);
  };
  const TokenizeRequest text =
      parse(R"({"model": "m", "prompt": "", "messages": null, "return_token_strs": true})");
  EXPECT_EQ(text.model, "m");
  EXPECT_EQ(text.prompt, "");
  EXPECT_EQ(text.messages, nullptr);
  EXPECT_TRUE(text.add_special_tokens);
  EXPECT_TRUE(text.return_token_strs);
  const TokenizeRequest messages = parse(R"({"messages": [{"role": "user", "content": "x"}],
      "continue_final_message": true, "chat_template": "t", "chat_template_kwargs": {"a": 1},
      "tools": [{"type": "function", "function": {"name": "f"}}], "prompt": null})");
  EXPECT_FALSE(messages.prompt);
  ASSERT_NE(messages.messages, nullptr);
  EXPECT_FALSE(messages.add_special_tokens);
  EXPECT_FALSE(messages.add_generation_prompt);
  EXPECT_EQ(messages.chat_template, "t");
  EXPECT_NE(messages.tools, nullptr);
  EXPECT_NE(messages.chat_template_kwargs, nullptr);

  const auto error = [](const std::string& body) {
    return expect_error(parse_tokenize_request(body), body);
  };
  EXPECT_EQ(error("{}").param, "prompt");
  EXPECT_EQ(error(R"({"prompt": null})").code, kInvalidType);
  EXPECT_EQ(error(R"({"prompt": ["x"]})").code, kInvalidType);
  EXPECT_EQ(error(R"({"prompt": "x", "messages": [{"role": "user", "content": "x"}]})").code,
            kUnsupportedField);
  EXPECT_EQ(error(R"({"prompt": "x", "tools": []})").code, kUnknownField);
}

TEST(ParseRequests, ReadsDetokenize) {
  const std::string body = R"({"tokens": [1, 2147483647], "model": "m"})";
  const DetokenizeRequest request = expect_parsed(parse_detokenize_request(body), body);
  EXPECT_THAT(request.tokens, ElementsAre(1, INT32_MAX));
  EXPECT_EQ(request.model, "m");
  for (const char* bad : {"{}",
                          R"({"tokens": null})",
                          R"({"tokens": [-1]})",
                          R"({"tokens": ["1"]})",
                          R"({"tokens": [1], "x": 1})"}) {
    expect_error(parse_detokenize_request(bad), bad);
  }
}

}  // namespace
}  // namespace atom::server
