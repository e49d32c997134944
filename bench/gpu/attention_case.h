// Random attention problems on the device with a float64 reference on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/attention/device/visible_keys.h"
#include "tensor/gpu_api.h"

namespace atom::bench {

struct SequenceShape {
  int num_queries;
  int seq_len;
};

struct AttentionCase {
  std::string name;
  Element element = Element::kBFloat16;
  Element kv_element = Element::kBFloat16;
  int head_dim = 128;
  int num_heads = 8;
  int num_kv_heads = 2;
  int block_size = 16;
  int sliding_window = 0;
  bool sinks = false;
  int table_width = 0;  // of the block tables; 0: as wide as the longest sequence needs
  std::vector<SequenceShape> sequences;
};

// Ends the process with the call's message unless it succeeded.
void check_gpu(gpuError_t error, const char* what);

// Memory of the device, freed with the object.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t num_bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  void* get() const { return data_; }
  size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

// A copy of `host` on the device; of nothing, memory for one element.
template <typename T>
DeviceBuffer upload(const std::vector<T>& host) {
  DeviceBuffer buffer(std::max<size_t>(1, host.size()) * sizeof(T));
  check_gpu(ATOM_GPU(Memcpy)(
                buffer.get(), host.data(), host.size() * sizeof(T), ATOM_GPU(MemcpyHostToDevice)),
            "upload");
  return buffer;
}

// A case's tensors. Cache slots that no token has written, and blocks that no sequence has, hold
// NaN; block tables are shuffled, and -1 where no query sees a key.
class AttentionProblem {
 public:
  AttentionProblem(const AttentionCase& shape, uint32_t seed);

  // Of all sequences.
  ops::AttentionArgs params() const;
  // Of the last `num_queries` queries of one sequence alone, written to `out`.
  ops::AttentionArgs last_queries(int sequence, int num_queries);

  // Output bits, [num_tokens, num_heads, head_dim]; `poison` before a launch.
  void poison();
  std::vector<uint16_t> read_out() const;
  bool is_poisoned(const std::vector<uint16_t>& out, int token) const;
  // Largest relative error ||out - reference|| / ||reference|| of a token and head.
  double error_of(const std::vector<uint16_t>& out, int token) const;

  const AttentionCase& shape() const { return shape_; }
  int first_token(int sequence) const { return query_start_[sequence]; }
  int64_t row_size() const { return int64_t{shape_.num_heads} * shape_.head_dim; }

 private:
  void make_caches(uint32_t seed);
  void make_reference();
  void reference_row(int sequence, int query, int head);

  AttentionCase shape_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> seq_lens_;
  std::vector<int32_t> block_tables_;
  std::vector<float> q_;
  std::vector<std::vector<float>> keys_;  // of each sequence: [seq_len, num_kv_heads, head_dim]
  std::vector<std::vector<float>> values_;
  std::vector<float> sinks_;
  std::vector<double> reference_;
  float scale_ = 1;
  float k_scale_ = 1;
  float v_scale_ = 1;
  int max_blocks_ = 0;
  int num_blocks_ = 0;
  int max_seq_len_ = 0;
  DeviceBuffer device_q_;
  DeviceBuffer device_k_;
  DeviceBuffer device_v_;
  DeviceBuffer device_tables_;
  DeviceBuffer device_query_start_;
  DeviceBuffer device_seq_lens_;
  DeviceBuffer device_settled_lens_;
  DeviceBuffer device_sinks_;
  DeviceBuffer device_out_;
  DeviceBuffer device_pair_;  // query_start of last_queries
};

}  // namespace atom::bench
