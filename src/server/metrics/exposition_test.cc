#include "server/metrics/exposition.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/metrics/exposition_parser.h"

namespace atom::server {
namespace {

TEST(Exposition, WritesTheFormatOfTheSpecification) {
  ExpositionWriter out;
  out.family("atom:x_total", MetricType::kCounter, "What is\ncounted \\ here.");
  out.sample("", uint64_t{12345678901234567890u});
  out.family("temperature", MetricType::kGauge, "Degrees.");
  out.sample(format_labels({{"room", "a"}}), 21.5);
  out.sample(format_labels({{"room", "b"}}), std::nan(""));
  out.sample(format_labels({{"room", "c"}}), -INFINITY);
  out.family("h", MetricType::kHistogram, "Sizes.");
  Histogram histogram({0.25, 1, 100000}, Histogram::kNanoseconds);
  histogram.observe(0.25);
  histogram.observe(3, 2);
  out.histogram(format_labels({{"a", "b"}}), histogram.snapshot(), histogram.bounds());
  EXPECT_EQ(out.take(),
            "# HELP atom:x_total What is\\ncounted \\\\ here.\n"
            "# TYPE atom:x_total counter\n"
            "atom:x_total 12345678901234567890\n"
            "# HELP temperature Degrees.\n"
            "# TYPE temperature gauge\n"
            "temperature{room=\"a\"} 21.5\n"
            "temperature{room=\"b\"} NaN\n"
            "temperature{room=\"c\"} -Inf\n"
            "# HELP h Sizes.\n"
            "# TYPE h histogram\n"
            "h_bucket{a=\"b\",le=\"0.25\"} 1\n"
            "h_bucket{a=\"b\",le=\"1.0\"} 1\n"
            "h_bucket{a=\"b\",le=\"100000.0\"} 3\n"
            "h_bucket{a=\"b\",le=\"+Inf\"} 3\n"
            "h_sum{a=\"b\"} 6.25\n"
            "h_count{a=\"b\"} 3\n");
}

TEST(Exposition, LabelsHoldAnyBytes) {
  EXPECT_EQ(format_labels({}), "");
  EXPECT_EQ(format_labels({{"a", "x\"y\\z\n"}, {"b", ""}}), R"(a="x\"y\\z\n",b="")");
  EXPECT_EQ(format_labels({{"a", "\xff\xc3\xa4"}}), "a=\"\xef\xbf\xbd\xc3\xa4\"");
  for (const std::string value : {"}", "a\"} 5\nevil 1", "\\n", "\\\\\n\"", "{a=\"b\"}", ",", ""}) {
    ExpositionWriter out;
    out.family("g", MetricType::kGauge, "A gauge.");
    out.sample(format_labels({{"v", value}, {"w", "1"}}), uint64_t{5});
    ParsedExposition parsed = parse_exposition(out.take());
    EXPECT_EQ(parsed.value("g", {{"v", value}, {"w", "1"}}), 5);
    EXPECT_TRUE(parsed.problems.empty()) << parsed.problems.front();
  }
}

TEST(ExpositionDeathTest, RefusesWrongNames) {
  ExpositionWriter out;
  EXPECT_DEATH(out.family("1a", MetricType::kGauge, ""), "");
  EXPECT_DEATH(out.family("a-b", MetricType::kGauge, ""), "");
  EXPECT_DEATH(out.family("a_total", MetricType::kGauge, ""), "");
  EXPECT_DEATH(out.family("a", MetricType::kCounter, ""), "");
  EXPECT_DEATH(format_labels({{"a:b", ""}}), "");
  out.family("a", MetricType::kGauge, "");
  EXPECT_DEATH(out.family("a", MetricType::kGauge, ""), "");
}

}  // namespace
}  // namespace atom::server
