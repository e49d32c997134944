#include "sampling/logits_row.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "sampling/row_kernels.h"

namespace atom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

RankKey rank_key(float logit, int64_t token_id) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 ranks as 0
  const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return uint64_t{ordered} << 32 | static_cast<uint32_t>(~token_id);
}

int64_t num_blocks(const LogitsRow& row) {
  return (row.vocab_size + kRowBlock - 1) / kRowBlock;
}

// A logit that at least k tokens reach: the k-th largest of the blocks' maxima, each a token's.
float reached_by(const LogitsRow& row, int64_t k, RowScratch& scratch) {
  const int64_t count = num_blocks(row);
  if (k > count) return kLowestLogit;
  scratch.bounds.assign(row.block_max, row.block_max + count);
  const auto kth = scratch.bounds.begin() + (k - 1);
  std::nth_element(scratch.bounds.begin(), kth, scratch.bounds.end(), std::greater<>());
  return std::max(*kth, kLowestLogit);
}

}  // namespace

LogitsRow scan_row(const float* logits, int64_t vocab_size, RowScratch& scratch) {
  LogitsRow row{.logits = logits, .vocab_size = vocab_size};
  scratch.block_max.resize(static_cast<size_t>(num_blocks(row)));
  const bool are_numbers = row_kernels().scan(logits, vocab_size, scratch.block_max.data());
  row.block_max = scratch.block_max.data();
  row.max = *std::max_element(scratch.block_max.begin(), scratch.block_max.end());
  if (!are_numbers || row.max == kInfinity) {
    row.fault = RowFault::kNotANumber;
  } else if (row.max == -kInfinity) {
    row.fault = RowFault::kNoCandidate;
  }
  return row;
}

int32_t best_token(const LogitsRow& row) {
  const float* block = std::find(row.block_max, row.block_max + num_blocks(row), row.max);
  const int64_t begin = (block - row.block_max) * kRowBlock;
  const float* end = row.logits + std::min(begin + kRowBlock, row.vocab_size);
  return static_cast<int32_t>(std::find(row.logits + begin, end, row.max) - row.logits);
}

std::span<RankKey> tokens_from(const LogitsRow& row, float lowest, RowScratch& scratch) {
  const int64_t blocks = num_blocks(row);
  const int64_t passing =
      std::count_if(row.block_max, row.block_max + blocks, [=](float m) { return m >= lowest; });
  if (scratch.keys.size() < static_cast<size_t>(passing * kRowBlock)) {
    scratch.keys.resize(static_cast<size_t>(passing * kRowBlock));
  }
  RankKey* keys = scratch.keys.data();
  size_t count = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    if (row.block_max[block] < lowest) continue;
    const int64_t end = std::min((block + 1) * kRowBlock, row.vocab_size);
    for (int64_t id = block * kRowBlock; id < end; ++id) {
      keys[count] = rank_key(row.logits[id], id);
      count += row.logits[id] >= lowest ? 1 : 0;
    }
  }
  return {keys, count};
}

std::span<RankKey> best_tokens(const LogitsRow& row, int64_t k, float lowest, RowScratch& scratch) {
  const float bound = std::max(lowest, reached_by(row, k, scratch));
  const std::span<RankKey> keys = tokens_from(row, bound, scratch);
  if (keys.size() < static_cast<size_t>(k)) return keys;
  std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.end(), std::greater<>());
  return keys.first(static_cast<size_t>(k));
}

}  // namespace atom
