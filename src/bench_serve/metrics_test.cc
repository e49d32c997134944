#include "bench_serve/metrics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench_serve/html_report.h"
#include "bench_serve/result_json.h"

namespace atom::bench_serve {
namespace {

RequestRecord record(
    double start, double first, std::vector<float> gaps, double end, int64_t tokens = -1) {
  RequestRecord result;
  result.scheduled = result.start = start;
  result.prompt_len = 10;
  Answer& answer = result.answer;
  answer.first_token = answer.last_token = first;
  answer.num_token_events = static_cast<int64_t>(gaps.size()) + 1;
  for (const float gap : gaps) answer.last_token += gap;
  answer.gaps = std::move(gaps);
  answer.end = end;
  answer.completion_tokens = tokens;
  return result;
}

RequestRecord failure(double start, double end, ErrorKind kind) {
  RequestRecord result;
  result.start = start;
  result.answer.end = end;
  result.answer.error_kind = kind;
  result.answer.error = "<b>&\"bad\"";
  return result;
}

BenchmarkReport sample_report() {
  BenchmarkReport report;
  report.model = "<model>";
  report.endpoint_path = "/v1/completions";
  report.options.num_prompts = 5;
  report.options.metrics.goodput.ttft = 150;
  report.options.metrics.goodput.e2el = 450;
  report.run.duration = 2;
  report.run.records = {record(0, 0.1, {0.1f, 0.1f}, 0.4),
                        record(0.2, 0.4, {0.2f}, 0.6),
                        record(1, 1.1, {}, 2, 4),
                        failure(1, 1.5, ErrorKind::kStatus),
                        failure(1, 1.2, ErrorKind::kCancelled),
                        RequestRecord{}};
  report.metrics = compute_metrics(report.run, report.options.metrics);
  return report;
}

TEST(Percentile, InterpolatesAsNumpy) {
  const std::vector<double> values = {1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(values, 50), 3);
  EXPECT_DOUBLE_EQ(percentile(values, 25), 1.75);
  EXPECT_DOUBLE_EQ(percentile(values, 90), 6.8);  // rank 2.7
  EXPECT_DOUBLE_EQ(percentile(values, 100), 8);
  EXPECT_EQ(percentile({}, 50), 0);
  const std::vector<double> one = {3};
  EXPECT_EQ(percentile(one, 99), 3);
}

TEST(Summary, OfKnownValues) {
  std::vector<double> values = {0.004, 0.002, 0.006, 0.008};
  const std::vector<double> percentiles = {99.9};
  const Summary summary = summarize(&values, percentiles);
  EXPECT_DOUBLE_EQ(summary.mean, 5);
  EXPECT_DOUBLE_EQ(summary.median, 5);
  EXPECT_NEAR(summary.std, 2.2360679775, 1e-9);  // of the population
  EXPECT_DOUBLE_EQ(summary.max, 8);
  EXPECT_NEAR(summary.percentiles[0].second, 7.994, 1e-9);
}

TEST(Metrics, ThePeakOfAShortRunIsNoLessThanItsAverage) {
  LoadResult run;
  run.duration = 0.5;
  run.records = {record(0, 0.1, {0.1f, 0.1f, 0.1f}, 0.5)};
  const Metrics metrics = compute_metrics(run, MetricOptions{});
  EXPECT_DOUBLE_EQ(metrics.output_throughput, 8);
  EXPECT_DOUBLE_EQ(metrics.max_output_tokens_per_s, 8);
}

TEST(Metrics, OfKnownRequests) {
  const Metrics metrics = sample_report().metrics;
  EXPECT_EQ(metrics.completed, 3u);
  EXPECT_EQ(metrics.failed, 1u);
  EXPECT_EQ(metrics.cancelled, 2u);
  EXPECT_EQ(metrics.errors[static_cast<size_t>(ErrorKind::kStatus)], 1u);
  EXPECT_EQ(metrics.total_input, 30);
  EXPECT_EQ(metrics.total_output, 3 + 2 + 4);
  EXPECT_TRUE(metrics.output_is_counted);
  EXPECT_DOUBLE_EQ(metrics.request_throughput, 1.5);
  EXPECT_DOUBLE_EQ(metrics.output_throughput, 4.5);
  EXPECT_DOUBLE_EQ(metrics.total_token_throughput, 19.5);
  EXPECT_EQ(metrics.max_concurrent_requests, 3u);
  // In the second from 0: 3 + 2 tokens; from 1: all 4 of the third at its one event.
  EXPECT_DOUBLE_EQ(metrics.max_output_tokens_per_s, 5);
  EXPECT_NEAR(metrics.ttft.mean, (100 + 200 + 100) / 3.0, 1e-6);
  EXPECT_NEAR(metrics.tpot.median, 200, 1e-6);  // 150, 200, 300
  EXPECT_EQ(metrics.itl.count, 3u);
  EXPECT_NEAR(metrics.e2el.median, 400, 1e-6);
  // The second is too slow to its first token, the third takes too long.
  EXPECT_DOUBLE_EQ(metrics.request_goodput.value(), 0.5);
}

TEST(Metrics, OfNothing) {
  const Metrics metrics = compute_metrics({}, {});
  EXPECT_EQ(metrics.completed, 0u);
  EXPECT_EQ(metrics.request_throughput, 0);
  EXPECT_FALSE(metrics.request_goodput.has_value());
}

TEST(ResultJson, HasTheUsualKeys) {
  const OrderedJson json = result_json(sample_report(), {});
  for (const char* key : {"date",
                          "backend",
                          "model_id",
                          "tokenizer_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "mean_tpot_ms",
                          "p50_tpot_ms",
                          "p99_itl_ms",
                          "std_itl_ms",
                          "mean_e2el_ms",
                          "p90_e2el_ms"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_EQ(json["failed_by_kind"]["http_status"], 1);
  EXPECT_FALSE(json.contains("ttfts"));
  ResultJsonOptions options;
  options.metrics = {"ttft"};
  options.detailed = true;
  const OrderedJson detailed = result_json(sample_report(), options);
  EXPECT_FALSE(detailed.contains("mean_itl_ms"));
  EXPECT_EQ(detailed["itls"].size(), 6u);
  EXPECT_EQ(detailed["output_lens"], (std::vector<int>{3, 2, 4, 0, 0, 0}));
}

TEST(HtmlReport, IsWholeAndSafe) {
  const std::string html = html_report(sample_report());
  EXPECT_NE(html.find("&lt;model&gt;"), std::string::npos);
  EXPECT_NE(html.find("&lt;b&gt;&amp;&quot;bad&quot;"), std::string::npos);
  for (const char* outside : {"<model>",
                              "<b>&",
                              "<script",
                              "http-equiv",
                              "src=",
                              "href=",
                              "url(",
                              "@import",
                              "nan",
                              "inf\""}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_TRUE(html.ends_with("</html>\n"));
  BenchmarkReport empty;
  empty.metrics = compute_metrics(empty.run, {});
  EXPECT_TRUE(html_report(empty).ends_with("</html>\n"));
}

}  // namespace
}  // namespace atom::bench_serve
