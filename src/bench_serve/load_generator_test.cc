#include "bench_serve/load_generator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "bench_serve/http_fetch.h"
#include "bench_serve/metrics.h"
#include "bench_serve/testing/scripted_server.h"

namespace atom::bench_serve {
namespace {

// Machines that test are busy: times have a bound below and a generous one above.
constexpr double kSlack = 0.5;

std::unique_ptr<Connector> connect_to(const std::string& url, bool verify = true) {
  auto connector = Connector::create(*ServerUrl::parse(url), verify, 10);
  EXPECT_TRUE(connector.ok()) << connector.status().message();
  return *std::move(connector);
}

std::vector<PreparedRequest> requests_for(const Connector& connector,
                                          size_t count,
                                          bool streamed = true) {
  const std::string body =
      fmt::format("{{\"prompt\":\"x\",\"stream\":{}}}", streamed ? "true" : "false");
  const std::string bytes = http_request(connector.url(), "POST", "/v1/completions", "", body);
  std::vector<PreparedRequest> requests(count);
  for (PreparedRequest& request : requests) request = {bytes, 3, streamed};
  return requests;
}

LoadResult load(const std::string& url,
                size_t count,
                LoadOptions options = {},
                std::vector<double> schedule = {}) {
  const auto connector = connect_to(url, false);
  const std::vector<PreparedRequest> requests = requests_for(*connector, count);
  schedule.resize(count);
  if (options.timeout == LoadOptions().timeout) options.timeout = 60;
  auto result = run_load(*connector, requests, schedule, options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return *std::move(result);
}

LoadResult load(ScriptedServer::Script script, size_t count = 1, LoadOptions options = {}) {
  ScriptedServer server(std::move(script));
  return load(server.url(), count, options);
}

TEST(LoadGenerator, MeasuresKnownDelays) {
  const LoadResult run = load(ScriptedServer::tokens(4, 0.1, 0.05), 3);
  ASSERT_EQ(run.records.size(), 3u);
  for (const RequestRecord& record : run.records) {
    ASSERT_EQ(record.answer.error_kind, ErrorKind::kNone) << record.answer.error;
    EXPECT_EQ(record.answer.num_token_events, 4);
    EXPECT_EQ(output_tokens(record), 4);
    EXPECT_EQ(input_tokens(record), 7);
    EXPECT_GE(ttft_of(record), 0.1);
    EXPECT_LT(ttft_of(record), 0.1 + kSlack);
    EXPECT_GE(e2el_of(record), 0.25);
    EXPECT_LT(e2el_of(record), 0.25 + kSlack);
    EXPECT_NEAR(tpot_of(record), (e2el_of(record) - ttft_of(record)) / 3, 1e-9);
    ASSERT_EQ(record.answer.gaps.size(), 3u);
    // Two tokens may be read together on a busy machine, but not all.
    EXPECT_GE(record.answer.gaps[0] + record.answer.gaps[1] + record.answer.gaps[2], 0.1);
  }
  EXPECT_GE(run.duration, 0.25);
}

TEST(LoadGenerator, KeepsConnectionsAndTheLimitOfConcurrency) {
  std::atomic<int> now{0}, peak{0};
  const auto script = ScriptedServer::tokens(2, 0.005, 0.005);
  ScriptedServer server([&](const ScriptedRequest& request, ScriptedClient* client) {
    const int count = ++now;
    int known = peak;
    while (count > known && !peak.compare_exchange_weak(known, count)) {
    }
    script(request, client);
    --now;
  });
  LoadOptions options;
  options.max_concurrency = 3;
  const LoadResult run = load(server.url(), 30, options);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.answer.error_kind, ErrorKind::kNone) << record.answer.error;
  }
  // The server counts down after the client saw the end.
  EXPECT_LE(peak, 6);
  EXPECT_LE(run.num_connections, 6u);
  EXPECT_LE(compute_metrics(run, {}).max_concurrent_requests, 3u);
  EXPECT_GT(run.records[29].start, run.records[0].start);
}

TEST(LoadGenerator, SendsOnSchedule) {
  ScriptedServer server(ScriptedServer::tokens(1, 0.2, 0));
  // The answers take longer than the gaps: an open loop does not wait for them.
  const LoadResult run = load(server.url(), 4, {}, {0, 0.05, 0.1, 0.15});
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GE(run.records[i].start, 0.05 * static_cast<double>(i));
    EXPECT_NEAR(
        run.records[i].lateness, run.records[i].start - 0.05 * static_cast<double>(i), 1e-9);
    EXPECT_LT(run.records[i].lateness, 0.15);
  }
}

TEST(LoadGenerator, KindsOfFailure) {
  const auto kind_of = [](ScriptedServer::Script script) {
    return load(std::move(script)).records[0].answer.error_kind;
  };
  EXPECT_EQ(kind_of([](const ScriptedRequest&, ScriptedClient* client) {
              client->respond(500, "application/json", R"({"error":{"message":"broken"}})");
            }),
            ErrorKind::kStatus);
  EXPECT_EQ(kind_of([](const ScriptedRequest&, ScriptedClient* client) { client->close(); }),
            ErrorKind::kCut);
  EXPECT_EQ(kind_of([](const ScriptedRequest&, ScriptedClient* client) {
              client->start_stream();
              client->send_event(R"({"choices":[{"text":"a"}]})");
              client->close();
            }),
            ErrorKind::kCut);
  EXPECT_EQ(kind_of([](const ScriptedRequest&, ScriptedClient* client) {
              client->send(std::string(100000, '\x80'));
            }),
            ErrorKind::kMalformed);
  EXPECT_EQ(kind_of([](const ScriptedRequest&, ScriptedClient* client) {
              client->start_stream();
              client->send_event("{\"error\": \"out of memory\"}");
              client->end_stream();
            }),
            ErrorKind::kReported);
  EXPECT_EQ(kind_of([](const ScriptedRequest&, ScriptedClient* client) {
              client->start_stream();
              client->send_event("[DONE]");
              client->end_stream();
            }),
            ErrorKind::kEmpty);
}

TEST(LoadGenerator, StallsEndInTimeouts) {
  LoadOptions options;
  options.timeout = 0.2;
  const auto start = std::chrono::steady_clock::now();
  const LoadResult run = load(
      [](const ScriptedRequest& request, ScriptedClient* client) {
        if (request.index % 2 == 0) client->start_stream();
        client->sleep(30);
      },
      4,
      options);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.answer.error_kind, ErrorKind::kTimeout);
    EXPECT_GE(e2el_of(record), 0.2);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(LoadGenerator, StalledEndOfMessageHarmsNoAnswer) {
  LoadOptions options;
  options.max_concurrency = 1;
  const LoadResult run = load(
      [](const ScriptedRequest&, ScriptedClient* client) {
        client->start_stream();
        client->send_event(R"({"choices":[{"text":"a","finish_reason":"stop"}]})");
        client->send_event("[DONE]");
        client->sleep(30);
      },
      3,
      options);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.answer.error_kind, ErrorKind::kNone) << record.answer.error;
  }
  EXPECT_EQ(run.num_connections, 3u);
}

TEST(LoadGenerator, IdleConnectionThatTheServerClosedIsReplaced) {
  const auto script = ScriptedServer::tokens(2, 0, 0);
  LoadOptions options;
  options.max_concurrency = 1;
  const LoadResult run = load(
      [&](const ScriptedRequest& request, ScriptedClient* client) {
        script(request, client);
        client->close();  // without having said so
      },
      5,
      options);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.answer.error_kind, ErrorKind::kNone) << record.answer.error;
  }
}

TEST(LoadGenerator, RefusedConnections) {
  auto server = std::make_unique<ScriptedServer>(ScriptedServer::tokens(1, 0, 0));
  const std::string url = server->url();
  const auto connector = connect_to(url);
  server.reset();
  const std::vector<double> schedule(2, 0);
  const auto run = run_load(*connector, requests_for(*connector, 2), schedule, {});
  ASSERT_TRUE(run.ok());
  for (const RequestRecord& record : run->records) {
    EXPECT_EQ(record.answer.error_kind, ErrorKind::kConnect);
    EXPECT_NE(record.answer.error.find("refused"), std::string::npos) << record.answer.error;
  }
  EXPECT_FALSE(Connector::create(*ServerUrl::parse(url), true, 1).ok());
  EXPECT_FALSE(Connector::create(*ServerUrl::parse("unix:/no/such/socket"), true, 1).ok());
}

TEST(LoadGenerator, InterruptLeavesWhatThereIs) {
  ScriptedServer server([](const ScriptedRequest& request, ScriptedClient* client) {
    if (request.index == 0) return ScriptedServer::tokens(1, 0, 0)(request, client);
    client->sleep(30);
  });
  const int stop = eventfd(0, EFD_CLOEXEC);
  LoadOptions options;
  options.stop_fd = stop;
  options.max_concurrency = 2;
  options.progress_interval = 0.01;
  options.on_progress = [&](const LiveFigures& figures) {
    if (figures.num_finished == 1) (void)eventfd_write(stop, 1);
  };
  const LoadResult run = load(server.url(), 5, options);
  close(stop);
  EXPECT_TRUE(run.interrupted);
  const Metrics metrics = compute_metrics(run, {});
  EXPECT_EQ(metrics.completed, 1u);
  EXPECT_EQ(metrics.failed, 0u);
  EXPECT_EQ(metrics.cancelled, 4u);
}

TEST(LoadGenerator, LargeRequestsAndEarlyAnswers) {
  ScriptedServer server([](const ScriptedRequest& request, ScriptedClient* client) {
    EXPECT_EQ(request.body.size(), 20u << 20);
    ScriptedServer::tokens(1, 0, 0)(request, client);
  });
  const auto connector = connect_to(server.url());
  std::string body = R"({"stream":true})";
  body.resize(20 << 20, ' ');
  const std::vector<PreparedRequest> requests = {
      {http_request(connector->url(), "POST", "/v1/completions", "", body), 1, true}};
  const std::vector<double> schedule(1, 0);
  const auto run = run_load(*connector, requests, schedule, {});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->records[0].answer.error_kind, ErrorKind::kNone) << run->records[0].answer.error;
}

TEST(LoadGenerator, UnixSocket) {
  const std::string path = fmt::format("/tmp/atom_bench_{}.sock", getpid());
  ScriptedServer server(ScriptedServer::tokens(2, 0, 0), {path, false});
  const LoadResult run = load(server.url(), 3);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.answer.error_kind, ErrorKind::kNone) << record.answer.error;
  }
}

TEST(LoadGenerator, Tls) {
  ScriptedServer server(ScriptedServer::tokens(5, 0, 0.001), {"", true});
  const LoadResult run = load(server.url(), 6);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.answer.error_kind, ErrorKind::kNone) << record.answer.error;
    EXPECT_EQ(record.answer.num_token_events, 5);
  }
  // The certificate signs itself.
  const auto verified = Connector::create(*ServerUrl::parse(server.url()), true, 10);
  ASSERT_FALSE(verified.ok());
  EXPECT_NE(verified.status().message().find("certificate"), std::string::npos);
  const std::string as_plain = fmt::format("http://127.0.0.1:{}", server.port());
  EXPECT_NE(load(as_plain, 1).records[0].answer.error_kind, ErrorKind::kNone);
}

TEST(LoadGenerator, WholeAnswers) {
  ScriptedServer server(ScriptedServer::tokens(3, 0.01, 0.01));
  const auto connector = connect_to(server.url());
  const std::vector<double> schedule(2, 0);
  const auto run = run_load(*connector, requests_for(*connector, 2, false), schedule, {});
  ASSERT_TRUE(run.ok());
  const Metrics metrics = compute_metrics(*run, {});
  EXPECT_EQ(metrics.completed, 2u);
  EXPECT_EQ(metrics.ttft.count, 0u);
  EXPECT_EQ(metrics.e2el.count, 2u);
  EXPECT_EQ(metrics.total_output, 6);
}

// How many events the whole loop takes from a socket, with the server on another core.
TEST(LoadGenerator, SpeedOfTheWholeLoop) {
  constexpr int kEvents = 100000;
  std::string stream;
  for (int i = 0; i < kEvents; ++i) {
    const std::string event = fmt::format(
        "data: {{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1,\"model\":\"m\","
        "\"choices\":[{{\"index\":0,\"text\":\" word\",\"logprobs\":null,\"finish_reason\":null}}"
        "],\"usage\":null}}\n\n");
    stream += fmt::format("{:x}\r\n{}\r\n", event.size(), event);
  }
  const LoadResult run = load([&](const ScriptedRequest&, ScriptedClient* client) {
    client->start_stream();
    client->send(stream);
    client->send_event("[DONE]");
    client->end_stream();
  });
  EXPECT_EQ(run.records[0].answer.num_token_events, kEvents);
  fmt::print("{:.2f} million events per second of CPU\n", kEvents / run.cpu_seconds / 1e6);
}

}  // namespace
}  // namespace atom::bench_serve
