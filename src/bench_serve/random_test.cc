#include "bench_serve/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench_serve/arrivals.h"
#include "bench_serve/length_distribution.h"

namespace atom::bench_serve {
namespace {

struct Moments {
  double mean = 0, variance = 0;
};

template <typename T>
Moments moments(const std::vector<T>& values) {
  Moments result;
  for (const T value : values) result.mean += static_cast<double>(value);
  result.mean /= static_cast<double>(values.size());
  for (const T value : values) {
    const double distance = static_cast<double>(value) - result.mean;
    result.variance += distance * distance;
  }
  result.variance /= static_cast<double>(values.size());
  return result;
}

std::vector<double> gaps_of(const std::vector<double>& times) {
  std::vector<double> gaps;
  for (size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  return gaps;
}

TEST(Random, BetweenReachesBothEnds) {
  Random random(1);
  std::vector<int> counts(3);
  for (int i = 0; i < 3000; ++i) ++counts[static_cast<size_t>(random.between(-1, 1) + 1)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(random.between(5, 5), 5);
}

TEST(Random, GammaHasMeanAndVarianceOfItsShape) {
  for (const double shape : {0.3, 1.0, 4.0}) {
    Random random(7);
    std::vector<double> values(100000);
    for (double& value : values) value = random.gamma(shape);
    const Moments found = moments(values);
    EXPECT_NEAR(found.mean, shape, 0.03 * shape);
    EXPECT_NEAR(found.variance, shape, 0.06 * shape);
  }
}

TEST(Arrivals, UnlimitedIsAllAtOnce) {
  Random random(1);
  EXPECT_EQ(make_schedule({}, 3, &random), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(make_schedule({}, 0, &random).empty());
}

TEST(Arrivals, PoissonGapsAreExponential) {
  Random random(3);
  ArrivalOptions options;
  options.request_rate = 50;
  const std::vector<double> times = make_schedule(options, 50001, &random);
  EXPECT_EQ(times.front(), 0);
  EXPECT_NEAR(times.back(), 1000, 1e-6);
  const std::vector<double> gaps = gaps_of(times);
  const Moments found = moments(gaps);
  EXPECT_NEAR(found.mean, 0.02, 1e-9);
  EXPECT_NEAR(std::sqrt(found.variance), 0.02, 0.001);
  // P(gap > t) = exp(-rate t)
  for (const double t : {0.01, 0.02, 0.06}) {
    const auto longer = std::count_if(gaps.begin(), gaps.end(), [&](double g) { return g > t; });
    EXPECT_NEAR(static_cast<double>(longer) / 50000, std::exp(-50 * t), 0.01);
  }
}

TEST(Arrivals, BurstinessIsTheShapeOfTheGaps) {
  for (const double burstiness : {0.25, 4.0}) {
    Random random(3);
    ArrivalOptions options;
    options.request_rate = 10;
    options.burstiness = burstiness;
    const Moments found = moments(gaps_of(make_schedule(options, 50001, &random)));
    // A gamma distribution's variance is mean^2 / shape.
    EXPECT_NEAR(found.variance, 0.01 / burstiness, 0.06 * 0.01 / burstiness);
  }
}

TEST(Arrivals, ConstantAndBursts) {
  Random random(3);
  ArrivalOptions options;
  options.request_rate = 4;
  options.burstiness = kUnlimited;
  const std::vector<double> even = make_schedule(options, 5, &random);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(even[i], 0.25 * static_cast<double>(i), 1e-12);
  options.burst_size = 2;
  const std::vector<double> bursts = make_schedule(options, 5, &random);
  const std::vector<double> expected = {0, 0, 0.5, 0.5, 1};
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(bursts[i], expected[i], 1e-12);
}

TEST(Arrivals, RampsGrow) {
  Random random(3);
  ArrivalOptions options;
  options.burstiness = kUnlimited;
  options.ramp_up_start = 1;
  options.ramp_up_end = 16;
  options.ramp_up = RampUp::kLinear;
  const std::vector<double> linear = gaps_of(make_schedule(options, 5, &random));
  const std::vector<double> linear_rates = {4.75, 8.5, 12.25, 16};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(linear[i], 1 / linear_rates[i], 1e-12);
  options.ramp_up = RampUp::kExponential;
  const std::vector<double> exponential = gaps_of(make_schedule(options, 5, &random));
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(exponential[i], std::pow(2.0, -double(i + 1)), 1e-12);
  options.ramp_up_start = 0;
  options.ramp_up = RampUp::kLinear;
  EXPECT_NEAR(gaps_of(make_schedule(options, 5, &random))[0], 0.25, 1e-12);
}

std::vector<int32_t> sample(const LengthDistribution& distribution, size_t count) {
  Random random(5);
  std::vector<int32_t> values(count);
  for (int32_t& value : values) value = distribution.sample(&random);
  return values;
}

TEST(LengthDistribution, Statistics) {
  EXPECT_EQ(moments(sample(LengthDistribution::fixed(7), 10)).mean, 7);
  const Moments uniform = moments(sample(*LengthDistribution::parse("uniform:10:20"), 50000));
  EXPECT_NEAR(uniform.mean, 15, 0.1);
  EXPECT_NEAR(uniform.variance, 10, 0.3);  // (11^2 - 1) / 12
  for (const char* text : {"normal:500:50", "lognormal:500:50", "lognormal,500,50"}) {
    const Moments found = moments(sample(*LengthDistribution::parse(text), 50000));
    EXPECT_NEAR(found.mean, 500, 2) << text;
    EXPECT_NEAR(std::sqrt(found.variance), 50, 2) << text;
  }
  for (const int32_t length : sample(*LengthDistribution::parse("normal:2:50"), 1000)) {
    EXPECT_GE(length, 1);
  }
}

TEST(LengthDistribution, RangeRatio) {
  const LengthDistribution spread = *LengthDistribution::fixed(100).spread(0.2);
  const std::vector<int32_t> values = sample(spread, 5000);
  EXPECT_EQ(*std::min_element(values.begin(), values.end()), 80);
  EXPECT_EQ(*std::max_element(values.begin(), values.end()), 120);
  EXPECT_FALSE(LengthDistribution::parse("normal:5:5")->spread(0.5).ok());
  EXPECT_EQ(LengthDistribution::fixed(100).at_most(60).usual_max(), 60);
}

TEST(LengthDistribution, BadTextsAreErrors) {
  for (const char* text : {"",
                           "0",
                           "-1",
                           "1.5",
                           "x",
                           "1048577",
                           "uniform:5",
                           "uniform:5:4",
                           "uniform:0:4",
                           "normal:0:1",
                           "normal:1:-1",
                           "gauss:1:1",
                           "nan",
                           "normal:inf:1",
                           "1:2:3",
                           "uniform:1:2:3",
                           "99999999999999999999"}) {
    EXPECT_FALSE(LengthDistribution::parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace atom::bench_serve
