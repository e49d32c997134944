#include "bench_serve/benchmark.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/mutex.h"
#include "bench_serve/testing/scripted_server.h"

namespace atom::bench_serve {
namespace {

// A server that also keeps the bodies it got.
class Recorder {
 public:
  ScriptedServer::Script around(ScriptedServer::Script script) {
    return [this, script](const ScriptedRequest& request, ScriptedClient* client) {
      {
        const MutexLock lock(&mutex_);
        if (request.method == "POST") bodies_.push_back(*parse_json(request.body, "body"));
        heads_ += request.head;
      }
      script(request, client);
    };
  }
  std::vector<Json> bodies() const {
    const MutexLock lock(&mutex_);
    return bodies_;
  }
  std::string heads() const {
    const MutexLock lock(&mutex_);
    return heads_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<Json> bodies_ GUARDED_BY(mutex_);
  std::string heads_ GUARDED_BY(mutex_);
};

BenchmarkOptions options_for(const ScriptedServer& server, size_t num_prompts) {
  BenchmarkOptions options;
  options.base_url = server.url();
  options.num_prompts = num_prompts;
  options.timeout = 60;
  return options;
}

Result<BenchmarkReport> run(const BenchmarkOptions& options) {
  return run_benchmark(options, {});
}

TEST(Benchmark, JustAServerIsEnough) {
  Recorder recorder;
  ScriptedServer server(recorder.around(ScriptedServer::tokens(3, 0.01, 0.01)));
  BenchmarkOptions options = options_for(server, 4);
  options.api_key = "secret";
  options.headers = {"X-Test=1"};
  options.metrics.goodput.e2el = 60000;
  const auto report = run(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->model, "scripted");
  EXPECT_EQ(report->metrics.completed, 4u);
  EXPECT_EQ(report->metrics.total_output, 12);
  EXPECT_DOUBLE_EQ(*report->metrics.request_goodput, report->metrics.request_throughput);
  const Json last = recorder.bodies().back();
  EXPECT_EQ(last["model"], "scripted");
  EXPECT_EQ(last["max_tokens"], 128);
  EXPECT_EQ(last["ignore_eos"], true);
  EXPECT_GT(last["prompt"].get<std::string>().size(), 1000u);
  EXPECT_NE(recorder.heads().find("Authorization: Bearer secret\r\n"), std::string::npos);
  EXPECT_NE(recorder.heads().find("X-Test: 1\r\n"), std::string::npos);
}

TEST(Benchmark, TakesTokenIdsFromTokenizeAndFitsTheContext) {
  Recorder recorder;
  const auto tokens = ScriptedServer::tokens(1, 0, 0);
  ScriptedServer server(
      recorder.around([&](const ScriptedRequest& request, ScriptedClient* client) {
        if (request.path == "/v1/models") {
          client->respond(200, "application/json", R"({"data":[{"id":"m","max_model_len":512}]})");
        } else if (request.path == "/tokenize") {
          Json reply;
          for (int i = 100; i < 200; ++i) reply["tokens"].push_back(i);
          client->respond(200, "application/json", reply.dump());
        } else {
          tokens(request, client);
        }
      }));
  const auto report = run(options_for(server, 2));
  ASSERT_TRUE(report.ok()) << report.status().message();
  const Json last = recorder.bodies().back();
  EXPECT_EQ(last["max_tokens"], 64);
  EXPECT_EQ(last["prompt"].size(), 512u - 64 - 64);
  for (const Json& id : last["prompt"]) EXPECT_TRUE(id >= 100 && id < 200);
}

TEST(Benchmark, ChatMeasuresWhatWordsCost) {
  Recorder recorder;
  const auto tokens = ScriptedServer::tokens(2, 0, 0);
  ScriptedServer server(recorder.around([&](const ScriptedRequest& request,
                                            ScriptedClient* client) {
    if (request.method == "POST" && request.body.find(R"("stream":false)") != std::string::npos) {
      const Json body = *parse_json(request.body, "body");
      const std::string text = body["messages"][0]["content"];
      const auto words = std::count(text.begin(), text.end(), ' ') + 1;
      const Json reply = {{"choices", Json::array()},
                          {"usage", {{"prompt_tokens", 2 * words + 9}}}};
      client->respond(200, "application/json", reply.dump());
    } else {
      tokens(request, client);
    }
  }));
  BenchmarkOptions options = options_for(server, 2);
  options.endpoint = EndpointKind::kChat;
  options.input_len = LengthDistribution::fixed(109);
  const auto report = run(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const std::string text = recorder.bodies().back()["messages"][0]["content"];
  EXPECT_EQ(std::count(text.begin(), text.end(), ' ') + 1, 50);
  EXPECT_EQ(report->metrics.completed, 2u);
}

TEST(Benchmark, LeavesOutWhatTheServerRefuses) {
  Recorder recorder;
  const auto tokens = ScriptedServer::tokens(2, 0, 0);
  ScriptedServer server(recorder.around([&](const ScriptedRequest& request,
                                            ScriptedClient* client) {
    for (const char* field : {"ignore_eos", "stream_options"}) {
      if (request.method != "POST" || request.body.find(field) == std::string::npos) continue;
      client->respond(400,
                      "application/json",
                      Json{{"error", {{"message", std::string("unknown field ") + field}}}}.dump());
      return;
    }
    tokens(request, client);
  }));
  const auto report = run(options_for(server, 3));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->metrics.completed, 3u);
  EXPECT_FALSE(recorder.bodies().back().contains("ignore_eos"));
}

TEST(Benchmark, SaysOnceWhatIsWrongWithAll) {
  const auto tokens = ScriptedServer::tokens(2, 0, 0);
  ScriptedServer server([&](const ScriptedRequest& request, ScriptedClient* client) {
    if (request.method == "GET") return tokens(request, client);
    client->respond(401, "application/json", R"({"error":{"message":"wrong key"}})");
  });
  const auto report = run(options_for(server, 3));
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message().find("wrong key"), std::string::npos);
  BenchmarkOptions without_check = options_for(server, 3);
  without_check.num_warmups = 0;
  const auto counted = run(without_check);
  ASSERT_TRUE(counted.ok());
  EXPECT_EQ(counted->metrics.failed, 3u);
}

TEST(Benchmark, BadOptionsAreErrors) {
  ScriptedServer server(ScriptedServer::tokens(1, 0, 0));
  BenchmarkOptions options = options_for(server, 1);
  options.headers = {"no value"};
  EXPECT_FALSE(run(options).ok());
  options = options_for(server, 1);
  options.headers = {"X: a\r\nY: b"};
  EXPECT_FALSE(run(options).ok());
  options = options_for(server, 1);
  options.extra_body = "not JSON";
  EXPECT_FALSE(run(options).ok());
  options = options_for(server, 1);
  options.tokenizer = "/no/such/folder";
  EXPECT_FALSE(run(options).ok());
  options = options_for(server, 1);
  options.dataset = Dataset::kShareGpt;
  options.dataset_path = "/no/such/file";
  EXPECT_FALSE(run(options).ok());
  options = options_for(server, 1);
  options.prompt_format = PromptFormat::kTokenIds;
  EXPECT_FALSE(run(options).ok());
}

}  // namespace
}  // namespace atom::bench_serve
