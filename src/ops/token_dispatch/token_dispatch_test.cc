// Tokens go to the ranks that have their experts, and results come back, between cards as the text
// of the header says: places against what the host computes of all ranks' choices.
#include "ops/token_dispatch/token_dispatch.h"

#include <gtest/gtest.h>

#include <cstring>

#include "comm/device/device_group.h"
#include "comm/testing/card_ranks.h"
#include "ops/quantize/quantize.h"
#include "tensor/float8.h"
#include "tensor/numeric.h"

namespace atom::ops {
namespace {

using Ranks = std::vector<std::unique_ptr<Communicator>>;

struct Case {
  int64_t places;
  int64_t size;
  DType dtype;
  bool in_float8;
  bool has_shared;  // a last choice of an expert that every rank has
};

const Case kCases[] = {
    {1, 64, DType::kFloat32, false, false},
    {8, 2048, DType::kBFloat16, false, true},
    {8, 2048, DType::kBFloat16, true, false},
    {33, 200, DType::kFloat16, true, true},
    {128, 7168, DType::kBFloat16, true, true},
    {128, 160, DType::kFloat32, true, false},
    {700, 1024, DType::kBFloat16, false, true},
    {1500, 2880, DType::kBFloat16, true, false},
};
constexpr int64_t kExperts = 10, kTopK = 4;
constexpr int64_t kMemory = 256 << 20;

// Of rank r: all places but for a few, none, or all.
int64_t num_tokens(int rank, const Case& of) {
  return rank == 0 ? of.places : rank == 1 ? (of.places - 1) / 2 : 0;
}

ExpertRanges ranges_of(int size) {
  ExpertRanges ranges;
  for (int r = 0; r < size; ++r) {
    ranges.first[r + 1] = ranges.first[r] + static_cast<int32_t>(kExperts / size + (r == 0));
  }
  ranges.first[size] = kExperts;
  return ranges;
}

int owner_of(const ExpertRanges& ranges, int size, int32_t id, int own) {
  if (id >= ranges.first[size]) return own;
  int rank = 0;
  while (id >= ranges.first[rank + 1]) ++rank;
  return rank;
}

// A rank's tokens, and what its experts would give of all places.
struct Inputs {
  Tensor x, ids, weights, y;
};

Tensor values(const Shape& shape, DType dtype, int seed) {
  const Tensor tensor = Tensor::empty(shape, DType::kFloat32);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    tensor.data<float>()[i] = static_cast<float>((i * 7919 + seed * 131) % 2027) / 300.0f - 3.3f;
  }
  const Tensor rounded = Tensor::empty(shape, dtype);
  copy_convert(tensor, rounded);
  return rounded;
}

Inputs inputs_of(int rank, int size, const Case& of) {
  const int64_t n = num_tokens(rank, of), k = kTopK + of.has_shared;
  Inputs in = {values({n, of.size}, of.dtype, 3 + rank),
               Tensor::empty({n, k}, DType::kInt32),
               values({n, k}, DType::kFloat32, 50 + rank),
               values({size * of.places, of.size}, of.dtype, 100 + rank)};
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      // All of some tokens' are one rank's; one has none.
      const int64_t id = t % 3 == 0 ? j % 2 : (5 * t + rank + 3 * j) % kExperts;
      in.ids.data<int32_t>()[t * k + j] = static_cast<int32_t>(j >= kTopK ? kExperts
                                                               : t == 5   ? -1
                                                                          : id);
    }
  }
  return in;
}

// x as it arrives.
Tensor sent(const Tensor& x, bool in_float8) {
  if (!in_float8 || x.size(0) == 0) return x;
  ThreadPool pool(1);
  const Stream stream(&pool);
  Workspace scratch(64 << 20);
  const QuantizedRows codes =
      quantized_rows({QuantType::kPer1x128, DType::kFloat8E4M3}, x.size(0), x.size(1), scratch);
  quantize(stream, x, codes);
  const Tensor wide = Tensor::empty(x.shape(), DType::kFloat32);
  for (int64_t t = 0; t < x.size(0); ++t) {
    for (int64_t k = 0; k < x.size(1); ++k) {
      const float scale = codes.scales.data<float>()[t * codes.scales.size(1) + k / 128];
      wide.data<float>()[t * x.size(1) + k] =
          to_float(codes.values.data<Float8E4M3>()[t * x.size(1) + k]) * scale;
    }
  }
  const Tensor rounded = Tensor::empty(x.shape(), x.dtype());
  copy_convert(wide, rounded);
  return rounded;
}

bool same(const Tensor& a, int64_t row, const Tensor& b, int64_t other) {
  const int64_t bytes = a.size(1) * dtype_size(a.dtype());
  return std::memcmp(static_cast<char*>(a.raw_data()) + row * bytes,
                     static_cast<char*>(b.raw_data()) + other * bytes,
                     bytes) == 0;
}

class Card {
 public:
  Card(Device device, std::shared_ptr<void> memory, const Stream& stream)
      : stream_(stream), device_(device), memory_(std::move(memory)) {}

  Tensor empty(const Shape& shape, DType dtype) {
    const Tensor tensor(static_cast<char*>(memory_.get()) + used_, dtype, shape, memory_, device_);
    used_ += (tensor.num_bytes() + 255) / 256 * 256;
    CHECK(used_ <= kMemory);
    return tensor;
  }
  Tensor upload(const Tensor& host) {
    const Tensor tensor = empty(host.shape(), host.dtype());
    if (host.num_bytes() > 0) queue().copy(tensor.raw_data(), host.raw_data(), host.num_bytes());
    return tensor;
  }
  Tensor download(const Tensor& tensor) {
    const Tensor host = Tensor::empty(tensor.shape(), tensor.dtype());
    queue().synchronize();
    if (host.num_bytes() > 0) queue().copy(host.raw_data(), tensor.raw_data(), host.num_bytes());
    queue().synchronize();
    return host;
  }
  DeviceQueue& queue() const { return stream_.queue(); }
  const Stream& stream() const { return stream_; }

 private:
  const Stream& stream_;
  Device device_;
  std::shared_ptr<void> memory_;
  int64_t used_ = 0;
};

void check_places(const Case& of,
                  int size,
                  int rank,
                  const std::vector<Inputs>& all,
                  const Tensor& x,
                  const Tensor& ids,
                  const Tensor& weights) {
  const ExpertRanges ranges = ranges_of(size);
  const int64_t k = ids.size(1);
  int num_rows = 0, num_wrong = 0;
  for (int from = 0; from < size; ++from) {
    const Tensor arrives = sent(all[from].x, of.in_float8);
    for (int64_t t = 0; t < of.places; ++t) {
      const int64_t place = from * of.places + t;
      bool comes = false;
      for (int64_t j = 0; j < k; ++j) {
        const bool exists = t < num_tokens(from, of);
        const int32_t id = exists ? all[from].ids.data<int32_t>()[t * k + j] : -1;
        const bool is_mine = id >= 0 && owner_of(ranges, size, id, from) == rank;
        comes |= is_mine;
        num_wrong += ids.data<int32_t>()[place * k + j] != (is_mine ? id : -1);
        if (is_mine) {
          num_wrong +=
              weights.data<float>()[place * k + j] != all[from].weights.data<float>()[t * k + j];
        }
      }
      num_rows += comes;
      if (comes) num_wrong += !same(x, place, arrives, t);
    }
  }
  EXPECT_EQ(num_wrong, 0) << "rank " << rank;
  if (of.places > 1 && rank < 2) {
    EXPECT_GT(num_rows, 0);
  }
}

void check_sums(
    const Case& of, int size, int rank, const std::vector<Inputs>& all, const Tensor& out) {
  const ExpertRanges ranges = ranges_of(size);
  const Inputs& own = all[rank];
  const Tensor sums = Tensor::empty(out.shape(), DType::kFloat32);
  const Tensor expected = Tensor::empty(out.shape(), out.dtype());
  const int64_t k = own.ids.size(1);
  for (int64_t t = 0; t < out.size(0); ++t) {
    uint32_t ranks = 0;
    for (int64_t j = 0; j < k; ++j) {
      const int32_t id = own.ids.data<int32_t>()[t * k + j];
      if (id >= 0) ranks |= 1u << owner_of(ranges, size, id, rank);
    }
    float* sum = sums.data<float>() + t * of.size;
    std::fill_n(sum, of.size, 0.0f);
    for (int r = 0; r < size; ++r) {
      if ((ranks >> r & 1) == 0) continue;
      const Tensor row = Tensor::empty({1, of.size}, DType::kFloat32);
      copy_convert(all[r].y.narrow(0, rank * of.places + t, 1), row);
      for (int64_t i = 0; i < of.size; ++i) sum[i] += row.data<float>()[i];
    }
  }
  if (out.size(0) == 0) return;
  copy_convert(sums, expected);
  EXPECT_EQ(std::memcmp(expected.raw_data(), out.raw_data(), out.num_bytes()), 0)
      << "rank " << rank;
}

void check_rank(const Communicator& rank, Card& card, Workspace& scratch, const Case& of) {
  const int size = rank.size();
  std::vector<Inputs> all;
  for (int r = 0; r < size; ++r) all.push_back(inputs_of(r, size, of));
  const Inputs& own = all[rank.rank()];
  const Tensor x = card.upload(own.x), ids = card.upload(own.ids), y = card.upload(own.y);
  const Tensor weights = card.upload(own.weights), out = card.empty(own.x.shape(), of.dtype);
  const Workspace::Scope scope(scratch);
  const DispatchedTokens to =
      dispatched_tokens(size, of.places, x, ids.size(1), of.in_float8, scratch);
  card.queue().synchronize();
  card.queue().begin_recording();
  dispatch_tokens(card.stream(), rank, ranges_of(size), x, ids, weights, to);
  combine_tokens(card.stream(), rank, ranges_of(size), ids, to.ids, y, out);
  Result<std::unique_ptr<DeviceGraph>> graph = card.queue().end_recording();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  for (int round = 0; round < 3; ++round) {
    card.queue().fill_rows(
        to.memory.raw_data(), to.memory.num_bytes(), 0x7f, to.memory.num_bytes(), 1);
    if (out.num_bytes() > 0) card.queue().fill_zero(out.raw_data(), out.num_bytes());
    (*graph)->launch();
    const Tensor got = card.download(to.x);
    ASSERT_TRUE(rank.status().ok()) << rank.status().message();
    check_places(of, size, rank.rank(), all, got, card.download(to.ids), card.download(to.weights));
    check_sums(of, size, rank.rank(), all, card.download(out));
  }
}

TEST(TokenDispatch, TokensComeToTheirExpertsAndSumsBack) {
  if (num_cards() < 2) GTEST_SKIP() << "no two GPUs are here";
  for (int size = 2; size <= std::min(num_cards(), 8); ++size) {
    Result<Ranks> ranks = make_device_group(cards_of(size), std::chrono::seconds(20));
    ASSERT_TRUE(ranks.ok()) << ranks.status().message();
    for (const Case& of : kCases) {
      const auto check = [&](const CardSeat& seat) {
        Card card(seat.device, seat.memory, seat.stream);
        check_rank(seat.rank, card, seat.scratch, of);
      };
      on_cards(*ranks, kMemory, check, kMemory);
      ASSERT_FALSE(testing::Test::HasFailure())
          << of.places << " places of " << of.size << (of.in_float8 ? " in FP8" : "");
    }
  }
}

TEST(TokenDispatch, PlansTakeTheMemoryOfSteps) {
  const Tensor x = Tensor::meta({3, 200}, DType::kBFloat16);
  for (const bool in_float8 : {false, true}) {
    Workspace measured, real(1 << 20);
    const DispatchedTokens planned = dispatched_tokens(4, 8, x, 6, in_float8, measured);
    const DispatchedTokens taken = dispatched_tokens(4, 8, x, 6, in_float8, real);
    EXPECT_EQ(measured.peak_size(), real.peak_size());
    EXPECT_EQ(planned.memory.num_bytes(), taken.memory.num_bytes());
    EXPECT_EQ(taken.x.size(0), 32);
    const auto* begin = static_cast<const char*>(taken.memory.raw_data());
    const auto* end = begin + taken.memory.num_bytes();
    for (const Tensor& part : {taken.ids, taken.weights, in_float8 ? taken.ids : taken.x}) {
      const auto* first = static_cast<const char*>(part.raw_data());
      EXPECT_GE(first, begin);
      EXPECT_LE(first + part.num_bytes(), end);
    }
  }
}

}  // namespace
}  // namespace atom::ops
