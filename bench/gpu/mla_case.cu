#include "mla_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace atom::bench {
namespace {

constexpr int kRank = 512, kRope = 64, kWidth = kRank + kRope;

// Rows of the queries' tensors are slices of longer ones, as a layer's are.
constexpr int kRopeStride = 192;

template <typename T>
std::unique_ptr<Buffer> uploaded(const std::vector<T>& host) {
  auto buffer = std::make_unique<Buffer>(static_cast<int64_t>(host.size() * sizeof(T) + 16));
  ATOM_BENCH_CHECK(ATOM_GPU(Memcpy)(
      buffer->data(), host.data(), host.size() * sizeof(T), ATOM_GPU(MemcpyHostToDevice)));
  return buffer;
}

// Slots that hold no token become NaN.
__global__ void spoil(uint8_t* cache, const uint8_t* is_used, int64_t slots, int row_size) {
  for (int64_t i = blockIdx.x; i < slots; i += gridDim.x) {
    if (is_used[i] != 0) continue;
    for (int j = threadIdx.x; j < row_size; j += blockDim.x) cache[i * row_size + j] = 0xff;
  }
}

}  // namespace

int64_t MlaShape::num_tokens() const {
  return std::accumulate(num_queries.begin(), num_queries.end(), int64_t{0});
}

int64_t MlaShape::num_visible() const {
  int64_t sum = 0;
  for (size_t s = 0; s < seq_lens.size(); ++s) {
    for (int i = 0; i < num_queries[s]; ++i) {
      const int64_t keys = seq_lens[s] - num_queries[s] + i + 1;
      sum += top_k > 0 ? std::min<int64_t>(keys, top_k) : keys;
    }
  }
  return sum;
}

int64_t MlaShape::num_rows() const {
  if (top_k > 0) return num_visible();
  return std::accumulate(seq_lens.begin(), seq_lens.end(), int64_t{0});
}

double MlaShape::flops() const {
  return 2.0 * static_cast<double>(num_visible()) * num_heads * (kWidth + kRank);
}

int64_t MlaShape::bytes() const {
  return num_rows() * kWidth * (float8 ? 1 : 2) + num_tokens() * num_heads * (kWidth + kRank) * 2;
}

MlaShape equal_sequences(const char* name, int count, int queries, int seq_len) {
  MlaShape shape;
  shape.name = name;
  shape.num_queries.assign(count, queries);
  shape.seq_lens.assign(count, seq_len);
  return shape;
}

MlaProblem::MlaProblem(const MlaShape& shape, int sets, uint64_t seed)
    : shape_(shape),
      q_latent_(shape.num_tokens() * shape.num_heads * kRank * 2 + 16),
      q_rope_(shape.num_tokens() * shape.num_heads * kRopeStride * 2 + 16),
      out_(shape.num_tokens() * shape.num_heads * kRank * 2 + 16) {
  fill_random(q_latent_.data(), Element::kBFloat16, q_latent_.size() / 2, 1.0f, seed);
  fill_random(q_rope_.data(), Element::kBFloat16, q_rope_.size() / 2, 1.0f, seed + 1);
  make_batch(seed);
  make_cache(sets, seed);
  if (shape_.top_k > 0) make_indices(seed);
}

void MlaProblem::make_batch(uint64_t seed) {
  query_start_ = {0};
  for (size_t s = 0; s < shape_.seq_lens.size(); ++s) {
    query_start_.push_back(query_start_.back() + shape_.num_queries[s]);
    const int64_t blocks = (shape_.seq_lens[s] + shape_.block_size - 1) / shape_.block_size;
    num_blocks_ += blocks;
    max_blocks_ = std::max(max_blocks_, blocks);
  }
  num_blocks_ += 1;
  std::vector<int32_t> order(num_blocks_);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(seed)));
  tables_.assign(shape_.seq_lens.size() * max_blocks_, -1);
  int64_t next = 0;
  for (size_t s = 0; s < shape_.seq_lens.size(); ++s) {
    for (int64_t i = 0; i * shape_.block_size < shape_.seq_lens[s]; ++i) {
      tables_[s * max_blocks_ + i] = order[next++];
    }
  }
  device_tables_ = uploaded(tables_);
  device_starts_ = uploaded(query_start_);
  device_lens_ = uploaded(shape_.seq_lens);
}

void MlaProblem::make_cache(int sets, uint64_t seed) {
  const int element_size = shape_.float8 ? 1 : 2;
  const int64_t slots = num_blocks_ * shape_.block_size;
  std::vector<uint8_t> is_used(slots, 0);
  for (size_t s = 0; s < shape_.seq_lens.size(); ++s) {
    for (int64_t i = 0; i < shape_.seq_lens[s]; ++i) {
      const int64_t block = tables_[s * max_blocks_ + i / shape_.block_size];
      is_used[block * shape_.block_size + i % shape_.block_size] = 1;
    }
  }
  const auto used = uploaded(is_used);
  for (int set = 0; set < sets; ++set) {
    auto cache = std::make_unique<Buffer>(slots * kWidth * element_size);
    fill_random(cache->data(),
                shape_.float8 ? Element::kFloat8E4M3 : Element::kBFloat16,
                slots * kWidth,
                1.0f,
                seed + 2 + set);
    spoil<<<1024, 128>>>(
        cache->data<uint8_t>(), used->data<uint8_t>(), slots, kWidth * element_size);
    ATOM_BENCH_CHECK(ATOM_GPU(GetLastError)());
    caches_.push_back(std::move(cache));
  }
  ATOM_BENCH_CHECK(ATOM_GPU(DeviceSynchronize)());
}

// Of each token, ascending: its own position and others at random.
void MlaProblem::make_indices(uint64_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  for (size_t s = 0; s < shape_.seq_lens.size(); ++s) {
    for (int i = 0; i < shape_.num_queries[s]; ++i) {
      const int keys = shape_.seq_lens[s] - shape_.num_queries[s] + i + 1;
      std::vector<int32_t> row(shape_.top_k, -1);
      const int count = std::min(keys, shape_.top_k);
      for (int n = 0; n < count; ++n) {
        // One of each of `count` even stretches.
        const int64_t begin = int64_t{n} * keys / count, end = int64_t{n + 1} * keys / count;
        row[n] = static_cast<int32_t>(begin + random() % (end - begin));
      }
      indices_.insert(indices_.end(), row.begin(), row.end());
    }
  }
  device_indices_ = uploaded(indices_);
}

ops::MlaAttentionArgs MlaProblem::args(int set) const {
  ops::MlaAttentionArgs args = {};
  const int64_t heads = shape_.num_heads;
  args.q_latent = q_latent_.data();
  args.q_rope = q_rope_.data(kRopeStride);
  args.cache = caches_[set]->data();
  args.indices = shape_.top_k > 0 ? device_indices_->data<int32_t>() : nullptr;
  args.out = out_.data();
  args.batch.block_tables = device_tables_->data<int32_t>();
  args.batch.query_start = device_starts_->data<int32_t>();
  args.batch.seq_lens = device_lens_->data<int32_t>();
  args.batch.block_table_stride = max_blocks_;
  args.batch.num_sequences = static_cast<int64_t>(shape_.seq_lens.size());
  args.batch.num_tokens = shape_.num_tokens();
  args.batch.max_blocks = max_blocks_;
  args.batch.num_blocks = num_blocks_;
  args.batch.block_size = shape_.block_size;
  args.q_latent_strides[0] = heads * kRank;
  args.q_latent_strides[1] = kRank;
  args.q_rope_strides[0] = heads * kRopeStride;
  args.q_rope_strides[1] = kRopeStride;
  args.out_strides[0] = heads * kRank;
  args.out_strides[1] = kRank;
  args.num_heads = heads;
  args.rank = kRank;
  args.width = kWidth;
  args.top_k = shape_.top_k;
  args.scale = 0.25f;  // scores spread by about 2
  args.element = Element::kBFloat16;
  args.float8_cache = shape_.float8;
  return args;
}

void MlaProblem::poison() {
  out_.fill_bytes(0xff);
}

std::vector<uint16_t> MlaProblem::out() const {
  return out_.download<uint16_t>();
}

std::vector<double> MlaProblem::expected(int64_t token, int head) const {
  const ops::MlaAttentionArgs call = args();
  const size_t s =
      std::upper_bound(query_start_.begin(), query_start_.end(), token) - query_start_.begin() - 1;
  const int64_t position = shape_.seq_lens[s] - query_start_[s + 1] + token;
  const Element element = shape_.float8 ? Element::kFloat8E4M3 : Element::kBFloat16;
  const int row_size = kWidth * (shape_.float8 ? 1 : 2);
  const auto fetch = [](const void* from, int64_t size) {
    std::vector<uint8_t> bytes(size);
    ATOM_BENCH_CHECK(ATOM_GPU(Memcpy)(bytes.data(), from, size, ATOM_GPU(MemcpyDeviceToHost)));
    return bytes;
  };
  const auto latent =
      fetch(static_cast<const uint16_t*>(call.q_latent) + (token * shape_.num_heads + head) * kRank,
            kRank * 2);
  const auto rope = fetch(
      static_cast<const uint16_t*>(call.q_rope) + (token * shape_.num_heads + head) * kRopeStride,
      kRope * 2);
  std::vector<double> q(kWidth), sums(kRank, 0.0), scores;
  for (int d = 0; d < kWidth; ++d) {
    q[d] = d < kRank ? element_value(Element::kBFloat16, latent.data(), d)
                     : element_value(Element::kBFloat16, rope.data(), d - kRank);
  }
  std::vector<std::vector<double>> keys;
  for (int64_t n = 0; n <= position; ++n) {
    int64_t at = n;
    if (shape_.top_k > 0) {
      if (n >= shape_.top_k || indices_[token * shape_.top_k + n] < 0) break;
      at = indices_[token * shape_.top_k + n];
    }
    const int64_t block = tables_[s * max_blocks_ + at / shape_.block_size];
    const int64_t slot = block * shape_.block_size + at % shape_.block_size;
    const auto bytes = fetch(static_cast<const uint8_t*>(call.cache) + slot * row_size, row_size);
    std::vector<double> key(kWidth);
    for (int d = 0; d < kWidth; ++d) key[d] = element_value(element, bytes.data(), d);
    scores.push_back(std::inner_product(q.begin(), q.end(), key.begin(), 0.0) * call.scale);
    keys.push_back(std::move(key));
  }
  if (scores.empty()) return sums;
  const double top = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (size_t n = 0; n < keys.size(); ++n) {
    const double weight = std::exp(scores[n] - top);
    total += weight;
    for (int d = 0; d < kRank; ++d) sums[d] += weight * keys[n][d];
  }
  for (double& sum : sums) sum /= total;
  return sums;
}

}  // namespace atom::bench
