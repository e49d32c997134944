// Single queries of many sequences, whose head items a GPU's blocks take whole where the lengths
// are about the same and share where they are not.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstring>

#include "ops/attention/attention_test_expected.h"

namespace atom::ops {
namespace {

// What the cache holds in FP8.
Tensor rounded_to_float8(const Tensor& values) {
  const Tensor rounded = Tensor::empty(values.shape(), values.dtype());
  dispatch_float(values.dtype(), [&]<typename T>(TypeTag<T>) {
    for (int64_t i = 0; i < values.num_elements(); ++i) {
      const auto code = from_float<Float8E4M3>(to_float(values.data<T>()[i]));
      rounded.data<T>()[i] = from_float<T>(to_float(code));
    }
  });
  return rounded;
}

// Rows by their number: of a few sequences in turn, so that rows side by side differ.
class Crowd {
 public:
  Crowd(const Model& model, DType dtype, bool float8, int64_t max_len) {
    for (uint64_t seed = 1; seed <= kNumSequences; ++seed) {
      Sequence sequence = make_sequence(model, dtype, max_len, seed);
      if (float8) {
        sequence.k = rounded_to_float8(sequence.k);
        sequence.v = rounded_to_float8(sequence.v);
      }
      sequences_.push_back(sequence);
    }
  }

  Chunk chunk(int64_t row, int64_t begin, int64_t end) const {
    return {&sequences_[row % kNumSequences], begin, end};
  }
  Chunk single(int64_t row, int64_t length) const { return chunk(row, length - 1, length); }

 private:
  static constexpr uint64_t kNumSequences = 5;
  std::vector<Sequence> sequences_;
};

struct Lengths {
  const char* name;
  std::vector<Chunk> (*chunks)(const Crowd& crowd, int64_t num_rows);
};

constexpr int64_t kLength = 150;
constexpr int64_t kMaxLength = 1100;

std::vector<Chunk> equal_rows(const Crowd& crowd, int64_t num_rows) {
  std::vector<Chunk> chunks;
  for (int64_t row = 0; row < num_rows; ++row) chunks.push_back(crowd.single(row, kLength));
  return chunks;
}

// One of them of a single key.
std::vector<Chunk> rows_of_about_a_length(const Crowd& crowd, int64_t num_rows) {
  std::vector<Chunk> chunks;
  for (int64_t row = 0; row < num_rows; ++row) {
    chunks.push_back(crowd.single(row, row == 7 ? 1 : kLength - row % 23));
  }
  return chunks;
}

std::vector<Chunk> one_longer_row(const Crowd& crowd, int64_t num_rows) {
  std::vector<Chunk> chunks = equal_rows(crowd, num_rows);
  chunks[num_rows / 2] = crowd.single(num_rows / 2, kMaxLength);
  return chunks;
}

std::vector<Chunk> spread_rows(const Crowd& crowd, int64_t num_rows) {
  std::vector<Chunk> chunks;
  for (int64_t row = 0; row < num_rows; ++row) {
    chunks.push_back(crowd.single(row, 1 + row * 37 % 400));
  }
  return chunks;
}

// Chunks of prompts and sequences without a query, which are no rows.
std::vector<Chunk> rows_among_chunks(const Crowd& crowd, int64_t num_rows) {
  std::vector<Chunk> chunks = equal_rows(crowd, num_rows);
  for (int64_t row = 3; row < num_rows; row += 10) {
    chunks[row] = crowd.chunk(row, kLength - 9, kLength + row % 2 * 20);
    chunks[row - 1] = crowd.chunk(row - 1, kLength, kLength);
  }
  return chunks;
}

constexpr Lengths kLengths[] = {{"equal rows", equal_rows},
                                {"rows of about a length", rows_of_about_a_length},
                                {"one longer row", one_longer_row},
                                {"spread rows", spread_rows},
                                {"rows among chunks", rows_among_chunks}};

void check_crowds(const Model& model,
                  DType dtype,
                  bool float8,
                  const std::vector<int64_t>& nums_rows) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(1);
  const Crowd crowd(model, dtype, float8, kMaxLength);
  for (const int64_t num_rows : nums_rows) {
    for (const Lengths& lengths : kLengths) {
      const std::vector<Chunk> chunks = lengths.chunks(crowd, num_rows);
      const std::vector<double> expected = expected_attention(model, chunks);
      Batch batch(model, dtype, 16, chunks);
      if (float8) {
        batch.params.k_cache = float8_codes(batch.params.k_cache);
        batch.params.v_cache = float8_codes(batch.params.v_cache);
      }
      const Tensor& out = batch.params.out;
      for (const char* variant : {"mma", "sm90"}) {
        std::memset(out.raw_data(), 0xff, out.num_bytes());
        if (!batch.run(variant, pool)) continue;
        const std::string what = fmt::format("{} {} {} {}{}",
                                             variant,
                                             num_rows,
                                             lengths.name,
                                             out.to_string(),
                                             float8 ? " FP8" : "");
        expect_close(out, expected, 1.1 * half_ulp(dtype), 2 * half_ulp(dtype), what);
      }
    }
  }
}

constexpr DType kBFloat16 = DType::kBFloat16;

TEST(AttentionOfManyRows, HeadsOf64MatchDoubleArithmetic) {
  check_crowds({8, 8, 64, 128, true}, kBFloat16, false, {33, 64, 100, 256});
  check_crowds({8, 8, 64}, kBFloat16, true, {64});
}

TEST(AttentionOfManyRows, HeadsOf128MatchDoubleArithmetic) {
  check_crowds({8, 4, 128}, kBFloat16, false, {33, 64, 100, 256});
  check_crowds({8, 4, 128}, kBFloat16, true, {64, 256});
  check_crowds({24, 2, 128, 90}, DType::kFloat16, false, {100});
}

TEST(AttentionOfManyRows, HeadsOf256MatchDoubleArithmetic) {
  check_crowds({9, 1, 256, 0, true}, kBFloat16, false, {33, 64, 100, 256});
  check_crowds({9, 1, 256, 0, true}, kBFloat16, true, {100});
}

}  // namespace
}  // namespace atom::ops
