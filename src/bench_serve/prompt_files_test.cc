#include "bench_serve/prompt_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "bench_serve/random_prompts.h"
#include "bench_serve/request_body.h"
#include "bench_serve/server_url.h"

namespace atom::bench_serve {
namespace {

class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view text) {
    char path[] = "/tmp/atom_prompts_XXXXXX";
    const int fd = mkstemp(path);
    EXPECT_GE(fd, 0);
    path_ = path;
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(fd);
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Tokens are letters here.
PromptFileOptions options_for(const TemporaryFile& file, size_t count) {
  PromptFileOptions options;
  options.path = file.path();
  options.count = count;
  options.shuffle = false;
  options.count_tokens = [](const std::string& text) { return static_cast<int32_t>(text.size()); };
  return options;
}

Result<std::vector<Prompt>> sharegpt(std::string_view text, size_t count = 3) {
  const TemporaryFile file(text);
  Random random(1);
  return load_sharegpt(options_for(file, count), &random);
}

Result<std::vector<Prompt>> lines(std::string_view text, size_t count = 3) {
  const TemporaryFile file(text);
  Random random(1);
  return load_prompt_lines(options_for(file, count), &random);
}

TEST(ShareGpt, TakesTheFirstTwoTurns) {
  const auto prompts = sharegpt(R"([
    {"id": "x", "conversations": [{"from": "human", "value": "question"},
                                  {"from": "gpt", "value": "answer one"},
                                  {"from": "human", "value": "more"}]},
    {"conversations": [{"from": "human", "value": "alone"}]},
    {"conversations": [{"from": "human", "value": "hey"}, {"from": "gpt", "value": "too short"}]},
    {"extra": {"conversations": [{"value": "nested"}, {"value": "nested"}]},
     "messages": [{"role": "user", "content": "second"},
                  {"role": "assistant", "content": "reply"}]}])");
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  ASSERT_EQ(prompts->size(), 3u);  // the two, then the first again
  EXPECT_EQ((*prompts)[0].text, "question");
  EXPECT_EQ((*prompts)[0].prompt_len, 8);
  EXPECT_EQ((*prompts)[0].output_len, 10);
  EXPECT_EQ((*prompts)[1].text, "second");
  EXPECT_EQ((*prompts)[2].text, "question");
}

TEST(ShareGpt, BadFilesAreErrors) {
  const std::string deep = std::string(100000, '[');
  for (const std::string& text :
       {std::string(),
        std::string("{}"),
        std::string("[]"),
        std::string("[{\"conversations\": ["),
        std::string("\xff\xfe"),
        std::string("[1,2]"),
        deep,
        std::string("nonsense"),
        std::string(R"([{"conversations": [{"value": 5}, {"value": null}]}])")}) {
    EXPECT_FALSE(sharegpt(text).ok()) << text.substr(0, 40);
  }
  Random random(1);
  PromptFileOptions options;
  options.path = "/no/such/file";
  options.count_tokens = [](const std::string&) { return 1; };
  EXPECT_FALSE(load_sharegpt(options, &random).ok());
  EXPECT_FALSE(load_prompt_lines(options, &random).ok());
}

TEST(PromptLines, TextAndJson) {
  const auto prompts = lines(
      "a prompt\r\n\n{\"prompt\": \"of JSON\", \"output_tokens\": 9}\n"
      "{\"prompt\": [1, 2, 3]}\n{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n",
      5);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  EXPECT_EQ((*prompts)[0].text, "a prompt");
  EXPECT_EQ((*prompts)[0].output_len, 128);
  EXPECT_EQ((*prompts)[1].text, "of JSON");
  EXPECT_EQ((*prompts)[1].output_len, 9);
  EXPECT_EQ((*prompts)[2].token_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ((*prompts)[2].prompt_len, 3);
  EXPECT_FALSE((*prompts)[3].messages_json.empty());
  EXPECT_EQ((*prompts)[4].text, "a prompt");
}

TEST(PromptLines, BadLinesAreNamed) {
  for (const char* text : {"fine\n{\"prompt\": \n",
                           "fine\n{}\n",
                           "fine\n{\"prompt\": \"\"}\n",
                           "fine\n{\"prompt\": [-1]}\n",
                           "fine\n{\"prompt\": [99999999999]}\n",
                           "fine\n{\"prompt\": \"x\", \"output_len\": 0}\n",
                           "fine\n{\"prompt\": \"x\", \"output_len\": \"1\"}\n"}) {
    const auto prompts = lines(text);
    ASSERT_FALSE(prompts.ok()) << text;
    EXPECT_NE(prompts.status().message().find(":2: "), std::string::npos)
        << prompts.status().message();
  }
  EXPECT_FALSE(lines("\n \n").ok());
}

TEST(PromptLines, ShufflingDependsOnTheSeed) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += std::to_string(i) + "\n";
  const TemporaryFile file(text);
  PromptFileOptions options = options_for(file, 50);
  options.shuffle = true;
  const auto load = [&](uint64_t seed) {
    Random random(seed);
    std::string order;
    const auto prompts = load_prompt_lines(options, &random);
    for (const Prompt& prompt : *prompts) order += prompt.text + " ";
    return order;
  };
  EXPECT_EQ(load(1), load(1));
  EXPECT_NE(load(1), load(2));
}

TEST(RandomPrompts, TokenIdsHaveTheLengthsAskedFor) {
  PromptMaterial material;
  material.token_ids = {5, 6, 7};
  RandomPromptOptions options;
  options.count = 20;
  options.input_len = LengthDistribution::uniform(3, 9);
  options.prefix_len = 4;
  options.num_prefixes = 2;
  Random random(1), again(1);
  const std::vector<Prompt> prompts = make_random_prompts(options, material, &random);
  std::set<std::vector<int32_t>> prefixes;
  for (const Prompt& prompt : prompts) {
    EXPECT_EQ(prompt.prompt_len, static_cast<int32_t>(prompt.token_ids.size()));
    EXPECT_GE(prompt.prompt_len, 7);
    EXPECT_LE(prompt.prompt_len, 13);
    EXPECT_EQ(prompt.output_len, 128);
    prefixes.emplace(prompt.token_ids.begin(), prompt.token_ids.begin() + 4);
  }
  EXPECT_EQ(prefixes.size(), 2u);
  EXPECT_EQ(make_random_prompts(options, material, &again)[7].token_ids, prompts[7].token_ids);
}

TEST(RandomPrompts, WordsFollowTheirCost) {
  PromptMaterial material;
  material.tokens_per_word = 2;
  material.tokens_around = 20;
  RandomPromptOptions options;
  options.count = 1;
  options.input_len = LengthDistribution::fixed(220);
  Random random(1);
  const Prompt prompt = make_random_prompts(options, material, &random)[0];
  EXPECT_EQ(std::count(prompt.text.begin(), prompt.text.end(), ' ') + 1, 100);
  EXPECT_EQ(prompt.prompt_len, 220);
}

Json body_of(const BodyOptions& options, const Prompt& prompt) {
  return *parse_json(*BodyWriter::create(options)->write(prompt), "body");
}

TEST(RequestBody, Fields) {
  BodyOptions options;
  options.model = "m";
  options.extra_body = R"({"top_p": 0.5, "ignore_eos": false})";
  Prompt prompt;
  prompt.text = "bad \xff byte";
  prompt.output_len = 12;
  Json body = body_of(options, prompt);
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["prompt"], "bad \xef\xbf\xbd byte");
  EXPECT_EQ(body["max_tokens"], 12);
  EXPECT_EQ(body["top_p"], 0.5);
  EXPECT_EQ(body["ignore_eos"], false);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  EXPECT_FALSE(body.contains("temperature"));
  options.kind = EndpointKind::kChat;
  options.temperature = 0;
  body = body_of(options, prompt);
  EXPECT_EQ(body["messages"][0]["role"], "user");
  EXPECT_EQ(body["temperature"], 0);
  prompt.text.clear();
  prompt.token_ids = {1, 2};
  EXPECT_FALSE(BodyWriter::create(options)->write(prompt).ok());
  options.kind = EndpointKind::kCompletions;
  EXPECT_EQ(body_of(options, prompt)["prompt"], (std::vector<int>{1, 2}));
  options.extra_body = "[1]";
  EXPECT_FALSE(BodyWriter::create(options).ok());
  options.extra_body = "{";
  EXPECT_FALSE(BodyWriter::create(options).ok());
}

TEST(ServerUrl, Forms) {
  const ServerUrl plain = *ServerUrl::parse("http://localhost:8000/v1/");
  EXPECT_EQ(plain.host, "localhost");
  EXPECT_EQ(plain.port, 8000);
  EXPECT_EQ(plain.base_path, "");
  EXPECT_EQ(plain.authority, "localhost:8000");
  const ServerUrl secure = *ServerUrl::parse("https://api.example.com/llm/v1");
  EXPECT_TRUE(secure.tls);
  EXPECT_EQ(secure.port, 443);
  EXPECT_EQ(secure.base_path, "/llm");
  const ServerUrl ipv6 = *ServerUrl::parse("http://[::1]:81");
  EXPECT_EQ(ipv6.host, "::1");
  EXPECT_EQ(ipv6.port, 81);
  EXPECT_EQ(ServerUrl::parse("127.0.0.1:9")->port, 9);
  EXPECT_EQ(ServerUrl::parse("unix:/run/s")->unix_path, "/run/s");
  for (const char* text : {"",
                           "http://",
                           "ftp://x",
                           "http://x:0",
                           "http://x:70000",
                           "http://x:",
                           "http://x:1a",
                           "http://[::1",
                           "http://[x]",
                           "http://a b",
                           "http://x?y",
                           "http://u@x",
                           "unix:",
                           "unix:relative",
                           "http://x\r\nA: b"}) {
    EXPECT_FALSE(ServerUrl::parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace atom::bench_serve
