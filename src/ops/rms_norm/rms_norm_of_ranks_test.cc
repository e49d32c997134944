// add_rms_norm_of_ranks() has the bits of an all-reduce and add_rms_norm(), on every transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "comm/device/device_group.h"
#include "comm/local/local_group.h"
#include "comm/testing/card_ranks.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/rms_norm_kernels.h"
#include "tensor/copy_rows.h"
#include "tensor/numeric.h"

namespace atom::ops {
namespace {

using Ranks = std::vector<std::unique_ptr<Communicator>>;

enum class Result8 { kNone, kRows, kGroups };

struct Case {
  int64_t num_rows;
  int64_t size;
  bool float_weight;
  Result8 codes;
  bool keeps_rows;  // beside codes
};

const Case kCases[] = {
    {1, 2048, false, Result8::kNone, true},
    {1, 8192, false, Result8::kNone, true},
    {3, 4096, true, Result8::kNone, true},
    {64, 2880, true, Result8::kNone, true},
    {70, 2048, false, Result8::kNone, true},
    {5, 16384, false, Result8::kNone, true},
    {2, 1024, false, Result8::kNone, true},
    {300, 4096, false, Result8::kNone, true},
    {7, 4096, false, Result8::kGroups, false},
    {7, 5120, false, Result8::kRows, false},
    {9, 2048, false, Result8::kGroups, true},
};

class Memory {
 public:
  Memory(std::shared_ptr<void> memory, Device device)
      : memory_(std::move(memory)), device_(device) {}

  Tensor take(const Shape& shape, DType dtype) {
    const Tensor tensor(static_cast<char*>(memory_.get()) + used_, dtype, shape, memory_, device_);
    used_ += (tensor.num_bytes() + 255) / 256 * 256;
    return tensor;
  }

 private:
  std::shared_ptr<void> memory_;
  Device device_;
  int64_t used_ = 0;
};
constexpr int64_t kMemory = 64 << 20;

Tensor host_values(const Shape& shape, DType dtype, int seed, float scale) {
  const Tensor values = Tensor::empty(shape, dtype);
  for (int64_t i = 0; i < values.num_elements(); ++i) {
    const float value = scale * (static_cast<float>((i * 7919 + seed * 131) % 1009) / 504.5f - 1);
    if (dtype == DType::kFloat32) {
      values.data<float>()[i] = value;
    } else {
      values.data<BFloat16>()[i] = from_float<BFloat16>(value);
    }
  }
  return values;
}

void copy(const Stream& stream, const Tensor& from, const Tensor& to) {
  if (stream.device().is_cpu()) {
    std::memcpy(to.raw_data(), from.raw_data(), from.num_bytes());
  } else {
    stream.queue().copy(to.raw_data(), from.raw_data(), from.num_bytes());
    stream.queue().synchronize();
  }
}

void expect_same(const Stream& stream, const Tensor& a, const Tensor& b, const char* what) {
  if (!a.defined()) return;
  const Tensor x = Tensor::empty(a.shape(), a.dtype()), y = Tensor::empty(b.shape(), b.dtype());
  copy(stream, a, x);
  copy(stream, b, y);
  EXPECT_EQ(std::memcmp(x.raw_data(), y.raw_data(), x.num_bytes()), 0) << what;
}

struct Outcome {
  Tensor residual, rows;
  QuantizedRows codes;
};

Outcome make_outcome(const Case& of, Memory& memory) {
  Outcome outcome;
  outcome.residual = memory.take({of.num_rows, of.size}, DType::kBFloat16);
  if (of.codes == Result8::kNone || of.keeps_rows) {
    outcome.rows = memory.take({of.num_rows, of.size}, DType::kBFloat16);
  }
  if (of.codes == Result8::kNone) return outcome;
  outcome.codes.values = memory.take({of.num_rows, of.size}, DType::kFloat8E4M3);
  const bool has_groups = of.codes == Result8::kGroups;
  outcome.codes.granularity = has_groups ? QuantType::kPer1x128 : QuantType::kPerToken;
  outcome.codes.scales = memory.take(
      has_groups ? Shape{of.num_rows, of.size / 128} : Shape{of.num_rows}, DType::kFloat32);
  return outcome;
}

void check_rank(
    Communicator& rank, const Stream& stream, Memory memory, Workspace& scratch, const Case& of) {
  constexpr float kEps = 1e-5f;
  const Shape shape = {of.num_rows, of.size};
  const DType weight_type = of.float_weight ? DType::kFloat32 : DType::kBFloat16;
  const Tensor x = memory.take(shape, DType::kBFloat16), y = memory.take(shape, DType::kBFloat16);
  const Tensor weight = memory.take({of.size}, weight_type);
  const Tensor part = host_values(shape, DType::kBFloat16, 10 + rank.rank(), 3);
  copy(stream, part, x);
  copy(stream, part, y);
  copy(stream, host_values({of.size}, weight_type, 3, 1), weight);
  const Outcome fused = make_outcome(of, memory), apart = make_outcome(of, memory);
  const Tensor residual = host_values(shape, DType::kBFloat16, 5, 2);
  copy(stream, residual, fused.residual);
  copy(stream, residual, apart.residual);

  add_rms_norm_of_ranks(
      stream, rank, x, fused.residual, weight, kEps, fused.rows, fused.codes, scratch);
  rank.all_reduce(stream, y);
  add_rms_norm(stream, y, apart.residual, weight, kEps, apart.rows, apart.codes, scratch);
  if (!stream.device().is_cpu()) stream.queue().synchronize();
  ASSERT_TRUE(rank.status().ok()) << rank.status().message();
  expect_same(stream, fused.residual, apart.residual, "residual");
  expect_same(stream, fused.rows, apart.rows, "rows");
  expect_same(stream, fused.codes.values, apart.codes.values, "codes");
  expect_same(stream, fused.codes.scales, apart.codes.scales, "scales");
}

TEST(RmsNormOfRanks, NormsOfTwoRanksAddUpFewBytes) {
  constexpr int64_t kMost = 1 << 20;
  EXPECT_FALSE(adds_up_in_norm(1, 16 << 10));
  EXPECT_TRUE(adds_up_in_norm(2, 16 << 10));
  EXPECT_TRUE(adds_up_in_norm(2, kMost));
  EXPECT_FALSE(adds_up_in_norm(2, kMost + 16));
  for (int size = 3; size <= 8; ++size) EXPECT_FALSE(adds_up_in_norm(size, 16 << 10)) << size;
}

TEST(RmsNormOfRanks, AddsAsAnAllReduceOnTheHost) {
  for (const Case& of : kCases) {
    const Ranks ranks = make_local_group(2, std::chrono::seconds(20));
    std::vector<std::thread> threads;
    for (const auto& rank : ranks) {
      threads.emplace_back([&] {
        ThreadPool pool(1);
        const Tensor memory = Tensor::empty({kMemory}, DType::kUInt8);
        Workspace scratch(kMemory);
        check_rank(*rank,
                   Stream(&pool),
                   Memory(std::shared_ptr<void>(memory.raw_data(), [memory](void*) {}), {}),
                   scratch,
                   of);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(RmsNormOfRanks, AddsAsAnAllReduceBetweenGpus) {
  // Grids of many rows fill a card, so two ranks of one card would wait for each other. Two ranks
  // have most cases in one kernel, three none.
  if (num_cards() < 2) GTEST_SKIP() << "no two GPUs are here";
  for (int size = 2; size <= std::min(num_cards(), 3); ++size) {
    Result<Ranks> ranks = make_device_group(cards_of(size), std::chrono::seconds(20));
    ASSERT_TRUE(ranks.ok()) << ranks.status().message();
    for (const Case& of : kCases) {
      const auto check = [&](const CardSeat& seat) {
        check_rank(seat.rank, seat.stream, Memory(seat.memory, seat.device), seat.scratch, of);
      };
      on_cards(*ranks, kMemory, check, kMemory);
      ASSERT_FALSE(testing::Test::HasFailure()) << of.num_rows << " rows of " << of.size;
    }
  }
}

}  // namespace
}  // namespace atom::ops
