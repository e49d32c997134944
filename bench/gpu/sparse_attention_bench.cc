// Times attention over 2048 selected positions of each query: Qwen3-Next's full layers, in percent
// of the time that reading the selected rows takes.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "harness.h"
#include "ops/sparse_attention/sparse_attention_kernels.h"

namespace atom::bench {
namespace {

using ops::SparseAttentionArgs;

constexpr int kHeads = 16, kKvHeads = 2, kHeadDim = 256, kBlockSize = 16, kTopK = 2048;
constexpr int64_t kBeyondCaches = 256 << 20;

std::unique_ptr<Buffer> uploaded(const std::vector<int32_t>& host) {
  auto buffer = std::make_unique<Buffer>(static_cast<int64_t>(host.size()) * 4);
  buffer->upload(host);
  return buffer;
}

// Ascending ones of `keys`, for each of `rows` rows.
std::vector<int32_t> random_positions(int64_t rows, int keys) {
  std::mt19937 random(1);
  std::vector<int32_t> all(keys), selected, positions;
  std::iota(all.begin(), all.end(), 0);
  for (int64_t row = 0; row < rows; ++row) {
    selected.clear();
    std::sample(all.begin(), all.end(), std::back_inserter(selected), kTopK, random);
    positions.insert(positions.end(), selected.begin(), selected.end());
  }
  return positions;
}

// Sequences of `keys` keys with a query each; a set has sequences of its own in the cache.
class SparseProblem {
 public:
  SparseProblem(int sequences, int keys, Element cache)
      : sequences_(sequences),
        keys_(keys),
        cache_(cache),
        sets_(static_cast<int>(std::clamp<int64_t>(kBeyondCaches / bytes(), 1, 32))),
        q_(int64_t{sequences} * kHeads * kHeadDim * 2),
        out_(int64_t{sequences} * kHeads * kHeadDim * 2),
        keys_cache_(cache_elements() * element_bytes()),
        values_cache_(cache_elements() * element_bytes()) {
    fill_random(q_.data(), Element::kBFloat16, q_.size() / 2, 1.0f, 1);
    fill_random(keys_cache_.data(), cache, cache_elements(), 1.0f, 2);
    fill_random(values_cache_.data(), cache, cache_elements(), 1.0f, 3);
    std::vector<int32_t> tables(sets_ * sequences * blocks()), starts(sequences + 1);
    std::iota(tables.begin(), tables.end(), 0);
    std::shuffle(tables.begin(), tables.end(), std::mt19937(2));
    std::iota(starts.begin(), starts.end(), 0);
    tables_ = uploaded(tables);
    starts_ = uploaded(starts);
    lens_ = uploaded(std::vector<int32_t>(sequences, keys));
    indices_ = uploaded(random_positions(int64_t{sets_} * sequences, keys));
  }

  int sets() const { return sets_; }
  // Of the selected rows.
  int64_t bytes() const {
    return int64_t{2} * sequences_ * kTopK * kKvHeads * kHeadDim * element_bytes();
  }

  SparseAttentionArgs args(int set) const {
    SparseAttentionArgs args = {};
    args.q = q_.data();
    args.k_cache = keys_cache_.data();
    args.v_cache = values_cache_.data();
    args.indices = indices_->data<int32_t>() + int64_t{set} * sequences_ * kTopK;
    args.out = out_.data();
    args.batch.block_tables = tables_->data<int32_t>() + int64_t{set} * sequences_ * blocks();
    args.batch.query_start = starts_->data<int32_t>();
    args.batch.seq_lens = lens_->data<int32_t>();
    args.batch.block_table_stride = blocks();
    args.batch.num_sequences = sequences_;
    args.batch.num_tokens = sequences_;
    args.batch.max_blocks = blocks();
    args.batch.num_blocks = int64_t{sets_} * sequences_ * blocks();
    args.batch.block_size = kBlockSize;
    args.q_strides[0] = args.out_strides[0] = kHeads * kHeadDim;
    args.q_strides[1] = args.out_strides[1] = kHeadDim;
    args.num_heads = kHeads;
    args.num_kv_heads = kKvHeads;
    args.head_dim = kHeadDim;
    args.top_k = kTopK;
    args.scale = 1.0f / 16;
    args.v_scale = 1;
    args.element = Element::kBFloat16;
    args.float8_cache = cache_ == Element::kFloat8E4M3;
    return args;
  }

 private:
  int64_t element_bytes() const { return cache_ == Element::kFloat8E4M3 ? 1 : 2; }
  int64_t blocks() const { return keys_ / kBlockSize; }
  int64_t cache_elements() const {
    return int64_t{sets_} * sequences_ * keys_ * kKvHeads * kHeadDim;
  }

  int sequences_, keys_;
  Element cache_;
  int sets_;
  Buffer q_, out_, keys_cache_, values_cache_;
  std::unique_ptr<Buffer> tables_, starts_, lens_, indices_;
};

struct Kernel {
  const char* name;
  ops::SparseAttentionGpuKernel* attend;
};
constexpr Kernel kKernels[] = {{"cuda", ops::sparse_attention_cuda},
                               {"mma", ops::sparse_attention_mma}};

void time_kernels(int tokens, int keys, Element cache, const Roofs& roofs) {
  const SparseProblem problem(tokens, keys, cache);
  for (const Kernel& kernel : kKernels) {
    const double us =
        time_call([&](gpuStream_t stream, int set) { kernel.attend(problem.args(set), stream); },
                  false,
                  problem.sets());
    std::printf("sparse %-4s %s cache, %2d tokens, %d of %6d: %8.1f us %5.1f %% of read\n",
                kernel.name,
                cache == Element::kFloat8E4M3 ? "fp8 " : "bf16",
                tokens,
                kTopK,
                keys,
                us,
                100 * static_cast<double>(problem.bytes()) / (us * 1e-6) / roofs.read);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace atom::bench

int main() {
  using namespace atom::bench;
  const Roofs roofs = measure_roofs();
  for (const int keys : {8192, 131072}) {
    for (const int tokens : {1, 8, 64}) {
      time_kernels(tokens, keys, atom::Element::kBFloat16, roofs);
    }
  }
  for (const int tokens : {1, 64}) time_kernels(tokens, 8192, atom::Element::kFloat8E4M3, roofs);
  return 0;
}
