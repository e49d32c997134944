// Checks and times attention of expanded latents for Hopper: keys of 192 elements, values of 128,
// each query head with its own.
//
// usage: mla_prefill_bench [check|time]
//
// Checks compare rows with sums in double; slots that hold no token are NaN. Rates are those of the
// products of visible keys.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>

#include "harness.h"
#include "ops/attention/prefill/expanded_sm90.h"

namespace atom::bench {
namespace {

constexpr int kKeyDim = 192, kValueDim = 128, kBlock = 128;

struct Shape {
  std::string name;
  int num_heads = 128;
  std::vector<int32_t> num_queries;
  std::vector<int32_t> seq_lens;

  double flops() const {
    double pairs = 0;
    for (size_t s = 0; s < seq_lens.size(); ++s) {
      const double before = seq_lens[s] - num_queries[s];
      pairs += num_queries[s] * (before + (num_queries[s] + 1) / 2.0);
    }
    return 2 * pairs * num_heads * (kKeyDim + kValueDim);
  }
};

class Problem {
 public:
  explicit Problem(const Shape& shape) : shape_(shape), starts_{0} {
    int32_t width = 0, num_blocks = 0;
    for (size_t s = 0; s < shape.seq_lens.size(); ++s) {
      starts_.push_back(starts_.back() + shape.num_queries[s]);
      const int32_t blocks = (shape.seq_lens[s] + kBlock - 1) / kBlock;
      width = std::max(width, blocks);
      num_blocks += blocks;
    }
    make_tables(width, num_blocks);
    const int64_t slots = int64_t{num_blocks} * kBlock * shape.num_heads;
    keys_ = random_tensor(slots * kKeyDim, 1);
    values_ = random_tensor(slots * kValueDim, 2);
    queries_ = random_tensor(int64_t{starts_.back()} * shape.num_heads * kKeyDim, 3);
    out_ = std::make_unique<Buffer>(int64_t{starts_.back()} * shape.num_heads * kValueDim * 2);
    counter_ = std::make_unique<Buffer>(16);
    counter_->fill_bytes(0);
    spoil_unused();
    set_args(width, num_blocks);
  }

  const ops::AttentionArgs& args() const { return args_; }
  int32_t* counter() const { return counter_->data<int32_t>(); }
  const Buffer& out() const { return *out_; }
  void poison() { out_->fill_bytes(0xff); }
  int32_t num_tokens() const { return starts_.back(); }

  // What a row of the result is.
  std::vector<double> expected(const std::vector<uint16_t>& queries,
                               const std::vector<uint16_t>& keys,
                               const std::vector<uint16_t>& values,
                               int32_t token,
                               int head) const {
    size_t s = 0;
    while (token >= starts_[s + 1]) ++s;
    const int32_t num_keys = shape_.seq_lens[s] - shape_.num_queries[s] + (token - starts_[s]) + 1;
    const auto at = [](const std::vector<uint16_t>& data, int64_t i) {
      return element_value(Element::kBFloat16, data.data(), i);
    };
    std::vector<double> scores(num_keys);
    double top = -INFINITY;
    for (int32_t key = 0; key < num_keys; ++key) {
      const int64_t row = row_of(s, key, head) * kKeyDim;
      const int64_t query = (int64_t{token} * shape_.num_heads + head) * kKeyDim;
      for (int d = 0; d < kKeyDim; ++d) scores[key] += at(queries, query + d) * at(keys, row + d);
      scores[key] *= args_.scale;
      top = std::max(top, scores[key]);
    }
    std::vector<double> out(kValueDim);
    double sum = 0;
    for (int32_t key = 0; key < num_keys; ++key) {
      const double weight = std::exp(scores[key] - top);
      const int64_t row = row_of(s, key, head) * kValueDim;
      sum += weight;
      for (int d = 0; d < kValueDim; ++d) out[d] += weight * at(values, row + d);
    }
    for (double& value : out) value /= sum;
    return out;
  }

  std::vector<uint16_t> queries() const { return queries_->download<uint16_t>(); }
  std::vector<uint16_t> keys() const { return keys_->download<uint16_t>(); }
  std::vector<uint16_t> values() const { return values_->download<uint16_t>(); }

 private:
  static std::unique_ptr<Buffer> random_tensor(int64_t count, uint64_t seed) {
    auto buffer = std::make_unique<Buffer>(count * 2);
    fill_random(buffer->data(), Element::kBFloat16, count, 1.0f, seed);
    return buffer;
  }

  template <typename T>
  static std::unique_ptr<Buffer> uploaded(const std::vector<T>& host) {
    auto buffer = std::make_unique<Buffer>(static_cast<int64_t>(host.size() * sizeof(T)));
    buffer->upload(host);
    return buffer;
  }

  int64_t row_of(size_t sequence, int32_t key, int head) const {
    const int64_t block = tables_[sequence * width_ + key / kBlock];
    return (block * kBlock + key % kBlock) * shape_.num_heads + head;
  }

  void make_tables(int32_t width, int32_t num_blocks) {
    width_ = width;
    std::vector<int32_t> order(num_blocks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    tables_.assign(shape_.seq_lens.size() * width, -1);
    size_t next = 0;
    for (size_t s = 0; s < shape_.seq_lens.size(); ++s) {
      for (int32_t b = 0; b * kBlock < shape_.seq_lens[s]; ++b) {
        tables_[s * width + b] = order[next++];
      }
    }
    device_tables_ = uploaded(tables_);
    device_starts_ = uploaded(starts_);
    device_lens_ = uploaded(shape_.seq_lens);
  }

  void spoil_unused() const {
    for (size_t s = 0; s < shape_.seq_lens.size(); ++s) {
      const int32_t used = shape_.seq_lens[s] % kBlock;
      if (used == 0) continue;
      const int64_t first = row_of(s, shape_.seq_lens[s] - 1, 0) + shape_.num_heads;
      const int64_t rows = int64_t{kBlock - used} * shape_.num_heads;
      ATOM_BENCH_CHECK(
          ATOM_GPU(Memset)(keys_->data<char>(first * kKeyDim * 2), 0xff, rows * kKeyDim * 2));
      ATOM_BENCH_CHECK(
          ATOM_GPU(Memset)(values_->data<char>(first * kValueDim * 2), 0xff, rows * kValueDim * 2));
    }
  }

  void set_args(int32_t width, int32_t num_blocks) {
    args_ = {};
    args_.q = queries_->data();
    args_.k_cache = keys_->data();
    args_.v_cache = values_->data();
    args_.block_tables = device_tables_->data<int32_t>();
    args_.query_start = device_starts_->data<int32_t>();
    args_.seq_lens = device_lens_->data<int32_t>();
    args_.out = out_->data();
    args_.q_token_stride = int64_t{shape_.num_heads} * kKeyDim;
    args_.q_head_stride = kKeyDim;
    args_.out_token_stride = int64_t{shape_.num_heads} * kValueDim;
    args_.out_head_stride = kValueDim;
    args_.block_table_stride = width;
    args_.num_sequences = static_cast<int32_t>(shape_.seq_lens.size());
    args_.num_tokens = starts_.back();
    args_.num_blocks = num_blocks;
    args_.block_size = kBlock;
    args_.num_heads = args_.num_kv_heads = shape_.num_heads;
    args_.head_dim = kKeyDim;
    args_.scale = 1 / std::sqrt(static_cast<float>(kKeyDim));
    args_.k_scale = args_.v_scale = 1;
    args_.element = Element::kBFloat16;
  }

  const Shape shape_;
  std::vector<int32_t> starts_, tables_;
  int32_t width_ = 0;
  std::unique_ptr<Buffer> keys_, values_, queries_, out_, counter_;
  std::unique_ptr<Buffer> device_tables_, device_starts_, device_lens_;
  ops::AttentionArgs args_;
};

void run(const Problem& problem, gpuStream_t stream) {
  ATOM_BENCH_CHECK(ops::launch_attention_expanded_sm90(problem.args(), problem.counter(), stream));
}

// Weights and results are rounded to 8 bits, which over a row gives about 3e-3 of its length.
constexpr double kAllowed = 6e-3;

int check(const Shape& shape) {
  Problem problem(shape);
  if (!ops::supports_attention_expanded_sm90(problem.args())) {
    std::printf("%s is not supported: FAIL\n", shape.name.c_str());
    return 1;
  }
  problem.poison();
  run(problem, nullptr);
  const auto got = problem.out().download<uint16_t>();
  problem.poison();
  run(problem, nullptr);
  const auto again = problem.out().download<uint16_t>();
  const auto queries = problem.queries(), keys = problem.keys(), values = problem.values();
  const int64_t num_rows = int64_t{problem.num_tokens()} * shape.num_heads;
  constexpr int kNumChecked = 24;
  Verdict verdict;
  for (int i = 0; i < kNumChecked; ++i) {
    const int64_t row = i * (num_rows - 1) / (kNumChecked - 1);
    const auto expected = problem.expected(queries,
                                           keys,
                                           values,
                                           static_cast<int32_t>(row / shape.num_heads),
                                           static_cast<int>(row % shape.num_heads));
    double error = 0, norm = 0;
    for (int d = 0; d < kValueDim; ++d) {
      const double value = element_value(Element::kBFloat16, got.data(), row * kValueDim + d);
      error += (value - expected[d]) * (value - expected[d]);
      norm += expected[d] * expected[d];
    }
    verdict.see(std::sqrt(error / norm), 0, kAllowed);
  }
  int failed = verdict.print(shape.name.c_str());
  if (got != again) {
    std::printf("%s does not repeat: FAIL\n", shape.name.c_str());
    ++failed;
  }
  std::fflush(stdout);
  return failed;
}

void time_shape(const Shape& shape) {
  const Problem problem(shape);
  const double us = time_call([&](gpuStream_t stream, int) { run(problem, stream); }, true);
  std::printf("mla prefill, expanded, %-28s %9.1f us %6.1f TFLOP/s\n",
              shape.name.c_str(),
              us,
              shape.flops() / us * 1e-6);
  std::fflush(stdout);
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  using namespace atom::bench;
  const std::string mode = argc > 1 ? argv[1] : "";
  int failed = 0;
  if (mode != "time") {
    failed += check({"one query", 8, {1}, {1}});
    failed += check({"a tile", 16, {128}, {128}});
    failed += check({"odd", 128, {130}, {331}});
    failed += check({"ragged", 16, {5, 300, 1, 129}, {900, 300, 77, 640}});
    failed += check({"long", 4, {2000}, {3000}});
    std::printf("mla_prefill_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  }
  if (mode != "check") {
    time_shape({"8k, 128 heads", 128, {8192}, {8192}});
    time_shape({"8k, 16 heads", 16, {8192}, {8192}});
    time_shape({"4k, 128 heads", 128, {4096}, {4096}});
    time_shape({"2k behind 6k, 128 heads", 128, {2048}, {8192}});
    time_shape(
        {"8 x 1k, 128 heads", 128, std::vector<int32_t>(8, 1024), std::vector<int32_t>(8, 1024)});
  }
  return failed == 0 ? 0 : 1;
}
