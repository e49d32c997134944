// Large sums between cards whose values travel as codes: the same bits on all ranks, within what
// rounding to codes may change of a sum in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "comm/device/device_group.h"
#include "comm/testing/card_ranks.h"
#include "tensor/numeric.h"

namespace atom {
namespace {

constexpr std::chrono::seconds kCodedPatience{20};
constexpr int64_t kCodedMemory = 64 << 20;

class CodedSums : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (num_cards() == 0) GTEST_SKIP() << "no GPU is here";
  }
};

// What rounding to codes may change of values, of which a group has 32.
std::vector<double> rounding_of(SumFormat format, const std::vector<double>& values) {
  std::vector<double> allowed(values.size());
  for (size_t first = 0; first < values.size(); first += 32) {
    const size_t end = std::min(values.size(), first + 32);
    double largest = 0;
    for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
    // A scale is rounded up by 1/128 of itself at most.
    const double scale = largest / (format == SumFormat::kInt4 ? 7 : 448) * 1.008;
    for (size_t i = first; i < end; ++i) {
      allowed[i] = format == SumFormat::kInt4
                       ? scale / 2
                       : std::max(std::fabs(values[i]) / 16, scale * 0x1p-10);
      allowed[i] *= 1.001;  // of arithmetic in float32
    }
  }
  return allowed;
}

double coded_value(int rank, int64_t i) {
  const double wave = static_cast<double>((i * 7919 + rank * 131) % 1013) / 506.5 - 1;
  // Groups of different sizes, some all zero, and in some a value far from the others.
  const int64_t group = i / 32;
  if (group % 11 == 3) return 0;
  return i % 401 == 17 ? 50 * wave : wave * std::ldexp(1.0, static_cast<int>(group % 9) - 4);
}

TEST_P(CodedSums, LargeSumsTravelAsCodes) {
  const int size = GetParam();
  for (const SumFormat format : {SumFormat::kFloat8, SumFormat::kInt4}) {
    auto group = make_device_group(cards_of(size), kCodedPatience, {format, /*least_bytes=*/1});
    ASSERT_TRUE(group.ok()) << group.status().message();
    // Grids of large sums fill a card, so two ranks of one card would wait for each other.
    const int64_t most = size <= num_cards() ? 17'000'008 : 100'008;
    for (const int64_t count : {int64_t{8}, int64_t{1000}, most}) {
      std::vector<std::vector<BFloat16>> results(size);
      const int64_t spoiled = 40;  // in a group of its own where there is one
      on_cards(*group, kCodedMemory, [&](const CardSeat& seat) {
        const int r = seat.rank.rank();
        std::vector<BFloat16> host(count);
        for (int64_t i = 0; i < count; ++i) {
          host[i] = from_float<BFloat16>(static_cast<float>(coded_value(r, i)));
        }
        if (count > spoiled && r == 1) host[spoiled] = from_float<BFloat16>(INFINITY);
        const Tensor x = seat.tensor({count}, DType::kBFloat16);
        seat.queue.copy(x.raw_data(), host.data(), 2 * count);
        seat.rank.all_reduce(seat.stream, x);
        seat.queue.copy(host.data(), x.raw_data(), 2 * count);
        seat.queue.synchronize();
        results[r] = std::move(host);
      });
      for (const auto& rank : *group) ASSERT_TRUE(rank->status().ok()) << rank->status().message();
      for (int r = 1; r < size; ++r) {
        EXPECT_EQ(std::memcmp(results[r].data(), results[0].data(), 2 * count), 0);
      }
      std::vector<double> sum(count), allowed(count);
      for (int r = 0; r < size; ++r) {
        std::vector<double> part(count);
        for (int64_t i = 0; i < count; ++i) {
          part[i] = to_float(from_float<BFloat16>(static_cast<float>(coded_value(r, i))));
          sum[i] += part[i];
        }
        const std::vector<double> more = rounding_of(format, part);
        for (int64_t i = 0; i < count; ++i) allowed[i] += more[i];
      }
      std::vector<double> reached(count);
      for (int64_t i = 0; i < count; ++i) reached[i] = std::fabs(sum[i]) + allowed[i];
      const std::vector<double> last = rounding_of(format, reached);
      int64_t num_wrong = 0, num_inexact = 0;
      for (int64_t i = 0; i < count; ++i) {
        const double got = to_float(results[0][i]);
        if (count > spoiled && i / 32 == spoiled / 32) {
          num_wrong += got == got;
          continue;
        }
        const double error = std::fabs(got - sum[i]);
        num_wrong += !(error <= allowed[i] + last[i] + std::fabs(got) / 256);
        num_inexact += error > std::fabs(sum[i]) / 256;
      }
      EXPECT_EQ(num_wrong, 0) << count;
      if (count > 1000) {
        EXPECT_GT(num_inexact, count / 10) << "they did not travel as codes";
      }
    }
  }
}

TEST_P(CodedSums, SumsThatNoCodesFitAreWhole) {
  const auto ranks = *make_device_group(
      cards_of(GetParam()), kCodedPatience, {SumFormat::kInt4, /*least_bytes=*/256});
  on_cards(ranks, kCodedMemory, [&](const CardSeat& seat) {
    // Few, unaligned, and of 32 bits.
    for (const auto& [count, offset, dtype] : {std::tuple{64, 0, DType::kBFloat16},
                                               {1024, 2, DType::kBFloat16},
                                               {1001, 0, DType::kBFloat16},
                                               {1024, 0, DType::kFloat32}}) {
      const Tensor x = seat.tensor({count}, dtype, offset);
      std::vector<float> wide(count, 1.0f + 0.25f * static_cast<float>(seat.rank.rank()));
      std::vector<BFloat16> narrow(count);
      std::ranges::transform(wide, narrow.begin(), from_float<BFloat16>);
      const bool is_wide = dtype == DType::kFloat32;
      void* host = is_wide ? static_cast<void*>(wide.data()) : narrow.data();
      seat.queue.copy(x.raw_data(), host, x.num_bytes());
      seat.rank.all_reduce(seat.stream, x);
      seat.queue.copy(host, x.raw_data(), x.num_bytes());
      seat.queue.synchronize();
      float sum = 0;
      for (int r = 0; r < GetParam(); ++r) sum += 1.0f + 0.25f * static_cast<float>(r);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(is_wide ? wide[i] : to_float(narrow[i]), sum) << count;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CodedSums, testing::Values(2, 3, 4));

}  // namespace
}  // namespace atom
