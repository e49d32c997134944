// Checks and times the selection of keys by an indexer.
//
// usage: indexer_bench [check|time]
//
// Checks compare with the plain kernel: of small integers, whose scores are exact and often equal,
// the selected positions are the same.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>

#include "harness.h"
#include "ops/indexer_top_k/sm90/indexer_sm90.h"

namespace atom::bench {
namespace {

using ops::IndexerTopKArgs;

constexpr int kKeySize = 128, kBlockSize = 64, kTopK = 2048;

// Integers of -2 .. 2.
__global__ void make_integers(gpu_bfloat16* data, int64_t count) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    data[i] = __float2bfloat16(rintf(__bfloat162float(data[i]) * 2));
  }
}

// Sequences of `queries` tokens each that see up to `keys`.
class IndexerProblem {
 public:
  IndexerProblem(int sequences, int queries, int keys, int heads, int sets, bool integers)
      : sequences_(sequences),
        queries_(queries),
        keys_(keys),
        heads_(heads),
        q_(int64_t{sequences} * queries * heads * kKeySize * 2),
        weights_(int64_t{sequences} * queries * heads * 4),
        indices_(int64_t{sequences} * queries * kTopK * 4),
        scores_(int64_t{sequences} * queries * stride() * 4) {
    const int64_t blocks = stride() / kBlockSize;
    for (int set = 0; set < sets; ++set) {
      caches_.push_back(std::make_unique<Buffer>(sequences * stride() * kKeySize * 2));
      fill(*caches_.back(), Element::kBFloat16, 7 + set, integers);
    }
    fill(q_, Element::kBFloat16, 1, integers);
    fill_random(weights_.data(), Element::kFloat32, weights_.size() / 4, 1.0f, 2);
    if (integers) {
      std::vector<float> weights = weights_.download<float>();
      for (float& weight : weights) weight = std::rint(weight * 3);
      weights_.upload(weights);
    }
    std::vector<int32_t> tables(sequences * blocks), starts(sequences + 1), lens(sequences, keys);
    const std::vector<int32_t> settled(sequences, keys - queries);
    std::iota(tables.begin(), tables.end(), 0);
    std::reverse(tables.begin(), tables.end());
    for (int s = 0; s <= sequences; ++s) starts[s] = s * queries;
    tables_ = uploaded(tables);
    starts_ = uploaded(starts);
    lens_ = uploaded(lens);
    settled_ = uploaded(settled);
  }

  int64_t stride() const { return (int64_t{keys_} + kBlockSize - 1) / kBlockSize * kBlockSize; }
  int64_t num_tokens() const { return int64_t{sequences_} * queries_; }

  double flops() const {
    const double seen = keys_ - (queries_ - 1) / 2.0;
    return 2.0 * num_tokens() * seen * heads_ * kKeySize;
  }
  float* scores() const { return scores_.data<float>(); }

  IndexerTopKArgs args(int set = 0) const {
    IndexerTopKArgs args = {};
    args.q = q_.data();
    args.weights = weights_.data();
    args.key_cache = caches_[set]->data();
    args.indices = indices_.data<int32_t>();
    args.batch.block_tables = tables_->data<int32_t>();
    args.batch.query_start = starts_->data<int32_t>();
    args.batch.seq_lens = lens_->data<int32_t>();
    args.batch.settled_lens = settled_->data<int32_t>();
    args.batch.block_table_stride = stride() / kBlockSize;
    args.batch.num_sequences = sequences_;
    args.batch.num_tokens = num_tokens();
    args.batch.max_blocks = stride() / kBlockSize;
    args.batch.num_blocks = sequences_ * stride() / kBlockSize;
    args.batch.block_size = kBlockSize;
    args.q_stride = heads_ * kKeySize;
    args.weights_stride = heads_;
    args.num_heads = heads_;
    args.head_dim = kKeySize;
    args.top_k = kTopK;
    args.scale = 0.25f;
    args.element = Element::kBFloat16;
    args.weight_element = Element::kFloat32;
    args.activation = ops::IndexerActivation::kRelu;
    return args;
  }

  std::vector<int32_t> selected() {
    auto indices = indices_.download<int32_t>();
    indices_.fill_bytes(0x80);
    return indices;
  }

 private:
  static std::unique_ptr<Buffer> uploaded(const std::vector<int32_t>& host) {
    auto buffer = std::make_unique<Buffer>(static_cast<int64_t>(host.size()) * 4);
    buffer->upload(host);
    return buffer;
  }
  static void fill(const Buffer& buffer, Element element, uint64_t seed, bool integers) {
    fill_random(buffer.data(), element, buffer.size() / 2, 1.0f, seed);
    if (integers) make_integers<<<1024, 256>>>(buffer.data<gpu_bfloat16>(), buffer.size() / 2);
  }

  int sequences_, queries_, keys_, heads_;
  Buffer q_, weights_, indices_, scores_;
  std::vector<std::unique_ptr<Buffer>> caches_;
  std::unique_ptr<Buffer> tables_, starts_, lens_, settled_;
};

// The one that serves, and the candidate.
struct Kernel {
  const char* name;
  decltype(ops::indexer_top_k_sm90)* top_k;
};
constexpr Kernel kKernels[] = {{"sm90", ops::indexer_top_k_sm90},
                               {"stream", ops::indexer_top_k_stream_sm90}};

int check_indexer(const Kernel& kernel, int sequences, int queries, int keys, int heads) {
  IndexerProblem problem(sequences, queries, keys, heads, 1, true);
  const IndexerTopKArgs args = problem.args();
  const int64_t tokens = problem.num_tokens();
  problem.selected();
  kernel.top_k(args, 0, tokens, problem.scores(), problem.stride(), nullptr);
  const auto got = problem.selected();
  ops::indexer_top_k_cuda(args, 0, tokens, problem.scores(), problem.stride(), nullptr);
  const auto expected = problem.selected();
  const bool same = got == expected;
  std::printf("indexer %s %d x %d of %d, %d heads: %s\n",
              kernel.name,
              sequences,
              queries,
              keys,
              heads,
              same ? "PASS" : "FAIL");
  if (!same) {
    const auto at = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
    std::printf("  row %ld place %ld: %d, should be %d\n",
                static_cast<long>(at / kTopK),
                static_cast<long>(at % kTopK),
                got[at],
                expected[at]);
  }
  std::fflush(stdout);
  return same ? 0 : 1;
}

void time_kernel(
    const Kernel& kernel, int sequences, int queries, int keys, int heads, const Roofs& roofs) {
  const int64_t bytes = int64_t{sequences} * keys * kKeySize * 2;
  const int sets = sets_beyond_caches(bytes);
  const IndexerProblem problem(sequences, queries, keys, heads, sets, false);
  const int64_t tokens = problem.num_tokens();
  const bool large = problem.flops() > 1e12;
  const double both = time_call(
      [&](gpuStream_t stream, int set) {
        kernel.top_k(problem.args(set), 0, tokens, problem.scores(), problem.stride(), stream);
      },
      large,
      sets);
  const double select = time_call(
      [&](gpuStream_t stream, int set) {
        ops::indexer_select_sm90(
            problem.args(set), 0, tokens, problem.scores(), problem.stride(), stream);
      },
      large,
      sets);
  const double scores = both - select;
  std::printf(
      "indexer %-6s %2d x %4d of %6d, %2d heads: %8.1f us; scores %8.1f us %5.1f %% of read %6.1f "
      "TFLOP/s; top-k %7.1f us, %6.2f us a row\n",
      kernel.name,
      sequences,
      queries,
      keys,
      heads,
      both,
      scores,
      100 * static_cast<double>(bytes) / (scores * 1e-6) / roofs.read,
      problem.flops() / scores * 1e-6,
      select,
      select / tokens);
  std::fflush(stdout);
}

void time_indexer(int sequences, int queries, int keys, int heads, const Roofs& roofs) {
  for (const Kernel& kernel : kKernels) {
    time_kernel(kernel, sequences, queries, keys, heads, roofs);
  }
}

void time_all() {
  const Roofs roofs = measure_roofs();
  for (const int keys : {4096, 16384, 131072}) time_indexer(1, 1, keys, 64, roofs);
  time_indexer(1, 1, 163840, 32, roofs);
  time_indexer(1, 2, 131072, 64, roofs);
  time_indexer(64, 1, 4096, 64, roofs);
  time_indexer(64, 1, 16384, 64, roofs);
  time_indexer(64, 1, 131072, 64, roofs);
  time_indexer(1, 4096, 8192, 64, roofs);
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  using namespace atom::bench;
  const std::string mode = argc > 1 ? argv[1] : "";
  int failed = 0;
  if (mode != "time") {
    for (const Kernel& kernel : kKernels) {
      failed += check_indexer(kernel, 1, 1, 131072, 64);
      failed += check_indexer(kernel, 3, 2, 5000, 32);
      failed += check_indexer(kernel, 1, 300, 4000, 64);
      failed += check_indexer(kernel, 70, 1, 2500, 16);
      failed += check_indexer(kernel, 2, 1, 2048, 64);
    }
    std::printf("indexer_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  }
  if (mode != "check") time_all();
  return failed == 0 ? 0 : 1;
}
