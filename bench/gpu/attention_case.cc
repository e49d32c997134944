#include "attention_case.h"

#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

namespace atom::bench {
namespace {

constexpr uint16_t kPoison = 0x7fff;  // NaN in both 16-bit types
constexpr uint8_t kPoison8Bit = 0x7f;

uint16_t encode(Element element, float value) {
  if (element == Element::kBFloat16) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }
  return __half_as_ushort(__float2half_rn(value));
}

float decode(Element element, uint16_t bits) {
  if (element == Element::kBFloat16) {
    return __bfloat162float(__ushort_as_bfloat16(bits));
  }
  return __half2float(__ushort_as_half(bits));
}

float decode_8bit(uint8_t bits) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)));
}

}  // namespace

void check_gpu(gpuError_t error, const char* what) {
  if (error != ATOM_GPU(Success)) {
    std::printf("%s: %s\n", what, ATOM_GPU(GetErrorString)(error));
    std::exit(2);
  }
}

DeviceBuffer::DeviceBuffer(size_t num_bytes) : size_(num_bytes) {
  check_gpu(ATOM_GPU(Malloc)(&data_, num_bytes), "allocate");
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) {
    check_gpu(ATOM_GPU(Free)(data_), "free");
  }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AttentionProblem::AttentionProblem(const AttentionCase& shape, uint32_t seed) : shape_(shape) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  query_start_.push_back(0);
  for (const SequenceShape& sequence : shape.sequences) {
    query_start_.push_back(query_start_.back() + sequence.num_queries);
    seq_lens_.push_back(sequence.seq_len);
    max_seq_len_ = std::max(max_seq_len_, sequence.seq_len);
  }
  std::vector<uint16_t> q_bits(query_start_.back() * row_size());
  for (uint16_t& bits : q_bits) {
    bits = encode(shape.element, 2 * normal(random));
    q_.push_back(decode(shape.element, bits));
  }
  if (shape.sinks) {
    for (int head = 0; head < shape.num_heads; ++head) {
      sinks_.push_back(3 * normal(random));
    }
    device_sinks_ = upload(sinks_);
  }
  scale_ = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  if (shape.kv_element == Element::kFloat8E4M3) {
    k_scale_ = 0.03125f * 1.3f;
    v_scale_ = 0.05f;
  }
  make_caches(seed + 1);
  make_reference();
  device_q_ = upload(q_bits);
  device_query_start_ = upload(query_start_);
  device_seq_lens_ = upload(seq_lens_);
  std::vector<int32_t> settled_lens;
  for (size_t s = 0; s < seq_lens_.size(); ++s) {
    settled_lens.push_back(std::max(0, seq_lens_[s] - shape_.sequences[s].num_queries));
  }
  device_settled_lens_ = upload(settled_lens);
  device_out_ = DeviceBuffer(std::max<size_t>(16, q_bits.size() * 2));
  device_pair_ = DeviceBuffer(2 * sizeof(int32_t));
}

static std::vector<int32_t> shuffled_blocks(int count, std::mt19937& random) {
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

void AttentionProblem::make_caches(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const int bs = shape_.block_size;
  max_blocks_ = std::max(shape_.table_width, (max_seq_len_ + bs - 1) / bs + 1);
  int needed = 0;
  for (int seq_len : seq_lens_) needed += (seq_len + bs - 1) / bs;
  num_blocks_ = needed + 3;
  const std::vector<int32_t> order = shuffled_blocks(num_blocks_, random);
  const int64_t slot_size = int64_t{shape_.num_kv_heads} * shape_.head_dim;
  const auto size = static_cast<int>(bytes_of(shape_.kv_element));
  std::vector<uint8_t> caches[2];
  for (auto& cache : caches) {
    cache.assign(num_blocks_ * bs * slot_size * size, kPoison8Bit);
    for (size_t i = 0; size == 2 && i < cache.size(); i += 2) {
      cache[i] = kPoison & 0xff;
      cache[i + 1] = kPoison >> 8;
    }
  }
  const float scales[2] = {k_scale_, v_scale_};
  int next_block = 0;
  for (size_t s = 0; s < seq_lens_.size(); ++s) {
    const int seq_len = seq_lens_[s];
    const int first_position = seq_len - shape_.sequences[s].num_queries;
    const int first_key =
        seq_len == 0 ? 0 : ops::first_visible_key(first_position, shape_.sliding_window);
    std::vector<int32_t> table(max_blocks_, -1);
    std::vector<float>* tensors[2] = {&keys_.emplace_back(), &values_.emplace_back()};
    for (int block = 0; block * bs < seq_len; ++block) {
      table[block] = order[next_block++];
    }
    for (int t = 0; t < 2; ++t) {
      tensors[t]->resize(seq_len * slot_size);
      for (int64_t i = 0; i < seq_len * slot_size; ++i) {
        const int64_t position = i / slot_size;
        if (position < first_key) continue;  // no query sees it
        const int64_t slot = int64_t{table[position / bs]} * bs + position % bs;
        const int64_t place = slot * slot_size + i % slot_size;
        const float value = normal(random);
        if (size == 1) {
          const uint8_t bits = __nv_cvt_float_to_fp8(value / scales[t], __NV_SATFINITE, __NV_E4M3);
          caches[t][place] = bits;
          (*tensors[t])[i] = decode_8bit(bits) * scales[t];
        } else {
          const uint16_t bits = encode(shape_.kv_element, value);
          reinterpret_cast<uint16_t*>(caches[t].data())[place] = bits;
          (*tensors[t])[i] = decode(shape_.kv_element, bits);
        }
      }
    }
    for (int block = 0; (block + 1) * bs <= first_key; ++block) {
      table[block] = -1;
    }
    block_tables_.insert(block_tables_.end(), table.begin(), table.end());
  }
  device_k_ = upload(caches[0]);
  device_v_ = upload(caches[1]);
  device_tables_ = upload(block_tables_);
}

void AttentionProblem::make_reference() {
  reference_.assign(query_start_.back() * row_size(), 0);
  std::vector<std::pair<int, int>> rows;
  for (size_t s = 0; s < seq_lens_.size(); ++s) {
    for (int query = 0; seq_lens_[s] > 0 && query < shape_.sequences[s].num_queries; ++query) {
      rows.emplace_back(s, query);
    }
  }
  const size_t num_threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < num_threads; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = thread; i < rows.size(); i += num_threads) {
        for (int head = 0; head < shape_.num_heads; ++head) {
          reference_row(rows[i].first, rows[i].second, head);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void AttentionProblem::reference_row(int sequence, int query, int head) {
  const int head_dim = shape_.head_dim;
  const int kv_head = head / (shape_.num_heads / shape_.num_kv_heads);
  const int64_t place = (query_start_[sequence] + query) * row_size() + int64_t{head} * head_dim;
  const int position = seq_lens_[sequence] - shape_.sequences[sequence].num_queries + query;
  const int first = ops::first_visible_key(position, shape_.sliding_window);
  const auto row_of = [&](const std::vector<float>& tensor, int key) {
    return tensor.data() + (int64_t{key} * shape_.num_kv_heads + kv_head) * head_dim;
  };
  std::vector<double> scores;
  double top = shape_.sinks ? sinks_[head] : -std::numeric_limits<double>::infinity();
  for (int key = first; key <= position; ++key) {
    const float* k = row_of(keys_[sequence], key);
    double score = 0;
    for (int d = 0; d < head_dim; ++d) {
      score += static_cast<double>(q_[place + d]) * k[d];
    }
    scores.push_back(score * scale_);
    top = std::max(top, scores.back());
  }
  double sum = shape_.sinks ? std::exp(sinks_[head] - top) : 0;
  std::vector<double> out(head_dim);
  for (int key = first; key <= position; ++key) {
    const double weight = std::exp(scores[key - first] - top);
    sum += weight;
    const float* v = row_of(values_[sequence], key);
    for (int d = 0; d < head_dim; ++d) {
      out[d] += weight * v[d];
    }
  }
  for (int d = 0; d < head_dim; ++d) {
    reference_[place + d] = out[d] / sum;
  }
}

ops::AttentionArgs AttentionProblem::params() const {
  ops::AttentionArgs params = {};
  params.q = device_q_.get();
  params.k_cache = device_k_.get();
  params.v_cache = device_v_.get();
  params.block_tables = static_cast<const int32_t*>(device_tables_.get());
  params.query_start = static_cast<const int32_t*>(device_query_start_.get());
  params.seq_lens = static_cast<const int32_t*>(device_seq_lens_.get());
  params.settled_lens = static_cast<const int32_t*>(device_settled_lens_.get());
  params.sinks = static_cast<const float*>(device_sinks_.get());
  params.out = device_out_.get();
  params.q_token_stride = row_size();
  params.q_head_stride = shape_.head_dim;
  params.out_token_stride = row_size();
  params.out_head_stride = shape_.head_dim;
  params.block_table_stride = max_blocks_;
  params.num_sequences = static_cast<int>(seq_lens_.size());
  params.num_tokens = query_start_.back();
  params.num_blocks = num_blocks_;
  params.block_size = shape_.block_size;
  params.num_heads = shape_.num_heads;
  params.num_kv_heads = shape_.num_kv_heads;
  params.head_dim = shape_.head_dim;
  params.sliding_window = shape_.sliding_window;
  params.max_seq_len = max_seq_len_;
  params.scale = scale_;
  params.k_scale = k_scale_;
  params.v_scale = v_scale_;
  params.element = shape_.element;
  params.float8_cache = shape_.kv_element == Element::kFloat8E4M3;
  return params;
}

ops::AttentionArgs AttentionProblem::last_queries(int sequence, int num_queries) {
  const int32_t pair[2] = {0, num_queries};
  check_gpu(ATOM_GPU(Memcpy)(device_pair_.get(), pair, sizeof(pair), cudaMemcpyHostToDevice),
            "upload");
  ops::AttentionArgs params = this->params();
  const int64_t first = (query_start_[sequence + 1] - num_queries) * row_size();
  params.q = static_cast<const uint16_t*>(params.q) + first;
  params.out = static_cast<uint16_t*>(params.out) + first;
  params.block_tables += sequence * params.block_table_stride;
  params.query_start = static_cast<const int32_t*>(device_pair_.get());
  params.seq_lens += sequence;
  params.settled_lens += sequence;
  params.num_sequences = 1;
  params.num_tokens = num_queries;
  return params;
}

void AttentionProblem::poison() {
  const std::vector<uint16_t> host(query_start_.back() * row_size(), kPoison);
  check_gpu(
      ATOM_GPU(Memcpy)(device_out_.get(), host.data(), host.size() * 2, cudaMemcpyHostToDevice),
      "poison");
}

std::vector<uint16_t> AttentionProblem::read_out() const {
  std::vector<uint16_t> host(query_start_.back() * row_size());
  check_gpu(
      ATOM_GPU(Memcpy)(host.data(), device_out_.get(), host.size() * 2, cudaMemcpyDeviceToHost),
      "read");
  return host;
}

bool AttentionProblem::is_poisoned(const std::vector<uint16_t>& out, int token) const {
  return std::all_of(out.begin() + token * row_size(),
                     out.begin() + (token + 1) * row_size(),
                     [](uint16_t bits) { return bits == kPoison; });
}

double AttentionProblem::error_of(const std::vector<uint16_t>& out, int token) const {
  double worst = 0;
  for (int head = 0; head < shape_.num_heads; ++head) {
    double difference = 0;
    double norm = 0;
    for (int d = 0; d < shape_.head_dim; ++d) {
      const int64_t i = token * row_size() + int64_t{head} * shape_.head_dim + d;
      const double value = decode(shape_.element, out[i]);
      difference += (value - reference_[i]) * (value - reference_[i]);
      norm += reference_[i] * reference_[i];
    }
    const double error = std::sqrt(difference / norm);
    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

}  // namespace atom::bench
