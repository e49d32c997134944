// Requests out of bodies: defaults, all fields at once, the rules between them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/openai/field_error.h"
#include "server/openai/parse_requests.h"
#include "server/openai/parsed_request_test.h"

namespace atom::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(ParseRequests, ACompletionOfOnlyAPromptHasTheDefaults) {
  const CompletionRequest request = parsed_completion("");
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
  const CompletionRequest request = parsed_completion(R"(
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
    parsed_completion(hint);
    parsed_chat(hint);
  }
  parsed_chat(R"("prediction": {"type": "content", "content": "x"})");
}

TEST(ParseRequests, SaysByWhichNameALimitCame) {
  EXPECT_STREQ(parsed_chat(R"("max_completion_tokens": 7, "max_tokens": 5)").max_tokens_field,
               "max_completion_tokens");
  EXPECT_STREQ(parsed_chat(R"("max_tokens": 5)").max_tokens_field, "max_tokens");
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
  EXPECT_FALSE(parsed_chat(R"("continue_final_message": true)").add_generation_prompt);
  EXPECT_TRUE(parsed_chat(R"("add_generation_prompt": true)").add_generation_prompt);
}

TEST(ParseRequests, AChatHasTheLimitOfItsContextUnlessItSays) {
  EXPECT_FALSE(parsed_chat("").has_max_tokens);
  EXPECT_EQ(parsed_chat("").sampling.max_tokens, 512);
  EXPECT_EQ(parsed_chat(R"("max_tokens": 5)").sampling.max_tokens, 5);
  const ChatCompletionRequest both = parsed_chat(R"("max_completion_tokens": 7, "max_tokens": 5)");
  EXPECT_TRUE(both.has_max_tokens);
  EXPECT_EQ(both.sampling.max_tokens, 7);
}

TEST(ParseRequests, ReadsTheFieldsOfAChat) {
  const ChatCompletionRequest request = parsed_chat(R"(
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
  EXPECT_EQ(parsed_chat(R"("tools": [])").tools, nullptr);
  EXPECT_EQ(parsed_chat("").chat_template_kwargs, nullptr);
  EXPECT_EQ(parsed_chat(R"("logprobs": false)").sampling.logprobs, std::nullopt);
  EXPECT_EQ(parsed_chat(R"("logprobs": true)").sampling.logprobs, 0);
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
