#include "server/metrics/server_metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "server/metrics/exposition_parser.h"

namespace atom::server {
namespace {

using LabelMap = std::map<std::string, std::string>;

const LabelMap kModel = {{"model_name", "m"}, {"engine", "0"}};

ServerMetricsOptions test_options() {
  ServerMetricsOptions options;
  options.model_name = std::string("m");  // gcc 12 warns wrongly of a plain literal
  options.max_model_len = 4096;
  options.block_size = 16;
  options.num_blocks = 200;
  options.enable_prefix_caching = true;
  options.cache_dtype = "bfloat16";
  return options;
}

LabelMap with(LabelMap labels, const std::string& name, const std::string& value) {
  labels[name] = value;
  return labels;
}

ParsedExposition parse(const ServerMetrics& metrics, const EngineSample& engine = {}) {
  ParsedExposition parsed = parse_exposition(metrics.render(engine));
  EXPECT_TRUE(parsed.problems.empty()) << parsed.problems.front();
  return parsed;
}

TEST(ServerMetrics, ExportsTheNamesOfVllmUnderBothPrefixes) {
  const ServerMetrics metrics(test_options());
  const ParsedExposition parsed = parse(metrics);
  for (const char* name : {"num_requests_running",
                           "num_requests_waiting",
                           "kv_cache_usage_perc",
                           "num_preemptions_total",
                           "prefix_cache_queries_total",
                           "prefix_cache_hits_total",
                           "prompt_tokens_total",
                           "generation_tokens_total",
                           "request_success_total",
                           "time_to_first_token_seconds",
                           "inter_token_latency_seconds",
                           "request_time_per_output_token_seconds",
                           "e2e_request_latency_seconds",
                           "request_queue_time_seconds",
                           "request_inference_time_seconds",
                           "request_prefill_time_seconds",
                           "request_decode_time_seconds",
                           "request_prompt_tokens",
                           "request_generation_tokens",
                           "request_params_n",
                           "request_params_max_tokens",
                           "cache_config_info"}) {
    ASSERT_TRUE(parsed.families.contains(std::string("vllm:") + name)) << name;
    ASSERT_TRUE(parsed.families.contains(std::string("atom:") + name)) << name;
    const ParsedFamily& vllm = parsed.families.at(std::string("vllm:") + name);
    const ParsedFamily& atom = parsed.families.at(std::string("atom:") + name);
    EXPECT_EQ(vllm.type, atom.type);
    EXPECT_EQ(vllm.samples.size(), atom.samples.size());
    for (const ParsedSample& sample : vllm.samples) {
      EXPECT_EQ(sample.labels.at("engine"), "0");
      if (std::string_view(name) != "cache_config_info") {
        EXPECT_EQ(sample.labels.at("model_name"), "m");
      }
    }
  }
}

TEST(ServerMetrics, ShowsTheEngine) {
  const ServerMetrics metrics(test_options());
  EngineSample engine;
  engine.up = true;
  engine.num_restarts = 2;
  engine.num_unresponsive = 1;
  engine.core.num_steps = 1000;
  engine.core.num_running = 7;
  engine.core.num_waiting = 5;
  engine.core.num_blocks = 200;
  engine.core.num_free_blocks = 50;
  engine.core.num_state_slots = 6;
  engine.core.num_free_state_slots = 4;
  engine.core.num_state_checkpoints = 3;
  engine.core.num_preemptions = 9;
  engine.core.prefix_cache_queries = 400;
  engine.core.prefix_cache_hits = 300;
  engine.core.execute_ns = 1'500'000'000;
  engine.core.device_wait_ns = 250'000'000;
  engine.core.num_device_allocations = 1;
  engine.num_http_connections = 11;
  ParsedExposition parsed = parse(metrics, engine);
  EXPECT_EQ(parsed.value("vllm:num_requests_running", kModel), 7);
  EXPECT_EQ(parsed.value("atom:num_requests_waiting", kModel), 5);
  EXPECT_EQ(parsed.value("vllm:kv_cache_usage_perc", kModel), 0.75);
  EXPECT_EQ(parsed.value("atom:state_slots", kModel), 6);
  EXPECT_EQ(parsed.value("atom:free_state_slots", kModel), 4);
  EXPECT_EQ(parsed.value("atom:state_checkpoints", kModel), 3);
  EXPECT_EQ(parsed.value("vllm:num_preemptions_total", kModel), 9);
  EXPECT_EQ(parsed.value("vllm:prefix_cache_queries_total", kModel), 400);
  EXPECT_EQ(parsed.value("vllm:prefix_cache_hits_total", kModel), 300);
  EXPECT_EQ(parsed.value("atom:engine_up", kModel), 1);
  EXPECT_EQ(parsed.value("atom:engine_restarts_total", kModel), 2);
  EXPECT_EQ(parsed.value("atom:engine_unresponsive_total", kModel), 1);
  EXPECT_EQ(parsed.value("atom:steps_total", kModel), 1000);
  EXPECT_EQ(parsed.value("atom:execute_seconds_total", kModel), 1.5);
  EXPECT_EQ(parsed.value("atom:device_wait_seconds_total", kModel), 0.25);
  EXPECT_EQ(parsed.value("atom:device_allocations_total", kModel), 1);
  EXPECT_EQ(parsed.value("atom:http_connections", {}), 11);
  EXPECT_EQ(parsed.value("vllm:cache_config_info",
                         {{"block_size", "16"},
                          {"cache_dtype", "bfloat16"},
                          {"enable_prefix_caching", "True"},
                          {"engine", "0"},
                          {"num_gpu_blocks", "200"}}),
            1);
  EXPECT_TRUE(parsed.problems.empty());
}

TEST(ServerMetrics, AnEngineThatIsDownHasNoUsage) {
  ParsedExposition parsed = parse(ServerMetrics(test_options()));
  EXPECT_EQ(parsed.value("vllm:kv_cache_usage_perc", kModel), 0);
  EXPECT_EQ(parsed.value("atom:engine_up", kModel), 0);
}

TEST(ServerMetrics, CountsTokensAndGaps) {
  ServerMetrics metrics(test_options());
  metrics.observe_first_token(0.03, 100);
  metrics.observe_tokens(1, kNoGap);
  metrics.observe_tokens(1, 0.02);
  metrics.observe_tokens(4, 0.2);  // four tokens of 50 ms
  metrics.observe_tokens(0, 0.5);
  metrics.observe_tokens(-1, 0.5);
  ParsedExposition parsed = parse(metrics);
  EXPECT_EQ(parsed.value("vllm:prompt_tokens_total", kModel), 100);
  EXPECT_EQ(parsed.value("vllm:generation_tokens_total", kModel), 6);
  const std::string gap = "vllm:inter_token_latency_seconds";
  EXPECT_EQ(parsed.value(gap + "_bucket", with(kModel, "le", "0.01")), 0);
  EXPECT_EQ(parsed.value(gap + "_bucket", with(kModel, "le", "0.025")), 1);
  EXPECT_EQ(parsed.value(gap + "_bucket", with(kModel, "le", "0.05")), 5);
  EXPECT_EQ(parsed.value(gap + "_count", kModel), 5);
  EXPECT_NEAR(parsed.value(gap + "_sum", kModel), 0.22, 1e-9);
  const std::string first = "vllm:time_to_first_token_seconds";
  EXPECT_EQ(parsed.value(first + "_bucket", with(kModel, "le", "0.02")), 0);
  EXPECT_EQ(parsed.value(first + "_bucket", with(kModel, "le", "0.04")), 1);
  EXPECT_TRUE(parsed.problems.empty());
}

TEST(ServerMetrics, SplitsTheTimeOfAnAnswer) {
  ServerMetrics metrics(test_options());
  metrics.observe_finished({.arrival = 100,
                            .scheduled = 101,
                            .first_token = 103,
                            .finished = 108,
                            .num_prompt_tokens = 37,
                            .num_generated_tokens = 11,
                            .n = 2,
                            .max_tokens = 64,
                            .finish_reason = FinishReason::kLength});
  ParsedExposition parsed = parse(metrics);
  const auto sum = [&](const std::string& name) {
    return parsed.value("vllm:" + name + "_sum", kModel);
  };
  EXPECT_EQ(sum("e2e_request_latency_seconds"), 8);
  EXPECT_EQ(sum("request_queue_time_seconds"), 1);
  EXPECT_EQ(sum("request_inference_time_seconds"), 7);
  EXPECT_EQ(sum("request_prefill_time_seconds"), 2);
  EXPECT_EQ(sum("request_decode_time_seconds"), 5);
  EXPECT_EQ(sum("request_time_per_output_token_seconds"), 0.5);
  EXPECT_EQ(sum("request_prompt_tokens"), 37);
  EXPECT_EQ(sum("request_generation_tokens"), 11);
  EXPECT_EQ(sum("request_params_n"), 2);
  EXPECT_EQ(sum("request_params_max_tokens"), 64);
  EXPECT_EQ(parsed.value("vllm:request_success_total", with(kModel, "finished_reason", "length")),
            1);
  EXPECT_EQ(parsed.value("vllm:request_success_total", with(kModel, "finished_reason", "stop")), 0);
  EXPECT_TRUE(parsed.problems.empty());
}

TEST(ServerMetrics, LeavesOutWhatIsNotKnown) {
  ServerMetrics metrics(test_options());
  metrics.observe_finished(
      {.arrival = 100, .finished = 101, .finish_reason = FinishReason::kAbort});
  metrics.observe_finished({.arrival = 100,
                            .first_token = 101,
                            .finished = 102,
                            .num_generated_tokens = 1,
                            .finish_reason = FinishReason::kStop});
  ParsedExposition parsed = parse(metrics);
  const auto count = [&](const std::string& name) {
    return parsed.value("vllm:" + name + "_count", kModel);
  };
  EXPECT_EQ(count("e2e_request_latency_seconds"), 2);
  EXPECT_EQ(count("request_queue_time_seconds"), 0);
  EXPECT_EQ(count("request_inference_time_seconds"), 0);
  EXPECT_EQ(count("request_prefill_time_seconds"), 0);
  EXPECT_EQ(count("request_decode_time_seconds"), 1);
  EXPECT_EQ(count("request_time_per_output_token_seconds"), 0);
  EXPECT_EQ(count("request_params_n"), 0);
  EXPECT_EQ(count("request_params_max_tokens"), 0);
}

TEST(ServerMetrics, HistogramsOfTokensReachTheModelsLength) {
  for (const auto& [length, last] : std::vector<std::pair<int32_t, std::string>>{
           {0, "1.0"}, {1, "1.0"}, {4096, "2000.0"}, {5000, "5000.0"}, {1 << 30, "1000000000.0"}}) {
    ServerMetricsOptions options = test_options();
    options.max_model_len = length;
    const ParsedExposition parsed = parse(ServerMetrics(options));
    const auto& samples = parsed.families.at("vllm:request_prompt_tokens").samples;
    // The last are the bucket of infinity, the sum and the count.
    EXPECT_EQ(samples.at(samples.size() - 4).labels.at("le"), last);
  }
}

TEST(ServerMetrics, CountsHttpWithBoundedLabels) {
  ServerMetrics metrics(test_options());
  metrics.count_http("POST", "/v1/completions", 200, 0.5);
  metrics.count_http("POST", "/v1/completions", 200, 0.7);
  metrics.count_http("POST", "/v1/completions", 400, 0.001);
  metrics.count_http("BREW", "/v1/completions", 999, 0.001);
  for (int i = 0; i < 1000; ++i) metrics.count_http("GET", fmt::format("/{}", i), 404, 0.001);
  ParsedExposition parsed = parse(metrics);
  const auto count = [&](const char* method, const char* endpoint, const char* status) {
    return parsed.value("atom:http_requests_total",
                        {{"method", method}, {"endpoint", endpoint}, {"status", status}});
  };
  EXPECT_EQ(count("POST", "/v1/completions", "200"), 2);
  EXPECT_EQ(count("POST", "/v1/completions", "400"), 1);
  EXPECT_EQ(count("other", "/v1/completions", "other"), 1);
  EXPECT_EQ(count("GET", "other", "404"), 1000 - 63);
  EXPECT_EQ(
      parsed.value("atom:http_request_duration_seconds_count", {{"endpoint", "/v1/completions"}}),
      4);
  EXPECT_LE(parsed.families.at("atom:http_requests_total").samples.size(), 70u);
  EXPECT_TRUE(parsed.problems.empty());
}

TEST(ServerMetrics, CountsRefusalsAndDisconnects) {
  ServerMetrics metrics(test_options());
  metrics.count_rejected(RejectReason::kQueueFull);
  metrics.count_rejected(RejectReason::kInvalid);
  metrics.count_rejected(RejectReason::kInvalid);
  metrics.count_disconnect();
  ParsedExposition parsed = parse(metrics);
  const auto rejected = [&](const char* reason) {
    return parsed.value("atom:requests_rejected_total", {{"reason", reason}});
  };
  EXPECT_EQ(rejected("queue_full"), 1);
  EXPECT_EQ(rejected("invalid"), 2);
  EXPECT_EQ(rejected("draining"), 0);
  EXPECT_EQ(rejected("engine_down"), 0);
  EXPECT_EQ(rejected("unauthorized"), 0);
  EXPECT_EQ(parsed.value("atom:disconnects_total", {}), 1);
  EXPECT_TRUE(parsed.problems.empty());
}

TEST(ServerMetrics, ShowsTheProcess) {
  ParsedExposition parsed = parse(ServerMetrics(test_options()));
  const auto now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(parsed.value("process_start_time_seconds", {}), now, 3600);
  EXPECT_LT(parsed.value("process_start_time_seconds", {}), now + 2);
  EXPECT_GT(parsed.value("process_resident_memory_bytes", {}), 1e6);
  EXPECT_GE(parsed.value("process_virtual_memory_bytes", {}),
            parsed.value("process_resident_memory_bytes", {}));
  EXPECT_GE(parsed.value("process_open_fds", {}), 3);
  EXPECT_GE(parsed.value("process_cpu_seconds_total", {}), 0);
  EXPECT_GE(parsed.value("process_threads", {}), 1);
  EXPECT_TRUE(parsed.problems.empty());
}

TEST(ServerMetrics, HostileModelNameStaysInItsLabel) {
  ServerMetricsOptions options = test_options();
  options.model_name = "a\"} 1\nvllm:fake_total 7\\\xff";
  ParsedExposition parsed = parse(ServerMetrics(options));
  const LabelMap labels = {{"model_name", "a\"} 1\nvllm:fake_total 7\\\xef\xbf\xbd"},
                           {"engine", "0"}};
  EXPECT_EQ(parsed.value("vllm:num_requests_running", labels), 0);
  EXPECT_TRUE(parsed.problems.empty());
}

TEST(ServerMetrics, OrderIsTheSameAtEveryScrape) {
  ServerMetrics first(test_options());
  ServerMetrics second(test_options());
  first.count_http("GET", "/b", 200, 0);
  first.count_http("GET", "/a", 404, 0);
  first.count_http("GET", "/a", 200, 0);
  second.count_http("GET", "/a", 200, 0);
  second.count_http("GET", "/a", 404, 0);
  second.count_http("GET", "/b", 200, 0);
  const auto without_process = [](const std::string& text) {
    return text.substr(0, text.find("# HELP process_"));
  };
  EXPECT_EQ(without_process(first.render({})), without_process(second.render({})));
}

TEST(ServerMetrics, IsSafeBetweenThreads) {
  constexpr int kNumThreads = 3;
  constexpr int kNumEach = 3000;
  ServerMetrics metrics(test_options());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kNumThreads; ++thread) {
    threads.emplace_back([&metrics, thread] {
      for (int i = 0; i < kNumEach; ++i) {
        metrics.observe_first_token(0.01, 3);
        metrics.observe_tokens(2, 0.02);
        metrics.observe_finished({.arrival = 1,
                                  .scheduled = 2,
                                  .first_token = 3,
                                  .finished = 4,
                                  .finish_reason = FinishReason::kStop});
        metrics.count_http("GET", thread == 0 ? "/a" : "/b", 200 + i % 2, 0.01);
        metrics.count_rejected(RejectReason::kDraining);
        metrics.count_disconnect();
      }
    });
  }
  for (int i = 0; i < 10; ++i) parse(metrics);
  for (std::thread& thread : threads) thread.join();
  ParsedExposition parsed = parse(metrics);
  constexpr int kTotal = kNumThreads * kNumEach;
  EXPECT_EQ(parsed.value("vllm:generation_tokens_total", kModel), 2 * kTotal);
  EXPECT_EQ(parsed.value("vllm:prompt_tokens_total", kModel), 3 * kTotal);
  EXPECT_EQ(parsed.value("vllm:e2e_request_latency_seconds_count", kModel), kTotal);
  EXPECT_EQ(parsed.value("atom:disconnects_total", {}), kTotal);
  EXPECT_EQ(parsed.value("atom:http_requests_total",
                         {{"method", "GET"}, {"endpoint", "/a"}, {"status", "200"}}),
            kNumEach / 2);
  EXPECT_TRUE(parsed.problems.empty());
}

}  // namespace
}  // namespace atom::server
