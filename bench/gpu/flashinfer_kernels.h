// FlashInfer's attention kernels on atom's tensors, for comparison: bfloat16 queries, head
// dimension 128, four query heads per head of keys and values, over a paged cache or a ragged copy.
// Nothing of FlashInfer is included here; its planners throw std::exception.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "attention_case.h"
#include "flashinfer_pages.h"
#include "ops/attention/device/visible_keys.h"

namespace atom::bench {

constexpr int kFlashInferHeadDim = 128;
constexpr int kFlashInferGroupSize = 4;

// The batch of `params` with its index tables as FlashInfer takes them, on the host and on the
// device. Its cache layout "NHD" is ours: [num_blocks, block_size, num_kv_heads, head_dim].
class FlashInferBatch {
 public:
  explicit FlashInferBatch(const ops::AttentionArgs& params);

  const ops::AttentionArgs& params() const { return params_; }
  const std::vector<int32_t>& query_start() const { return query_start_; }
  const std::vector<int32_t>& seq_lens() const { return seq_lens_; }
  const FlashInferPages& pages() const { return pages_; }

  int32_t* device_query_start() const { return static_cast<int32_t*>(device_query_start_.get()); }
  int32_t* device_first_page() const { return static_cast<int32_t*>(device_first_page_.get()); }
  int32_t* device_pages() const { return static_cast<int32_t*>(device_pages_.get()); }
  int32_t* device_last_page_len() const {
    return static_cast<int32_t*>(device_last_page_len_.get());
  }

 private:
  ops::AttentionArgs params_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> seq_lens_;
  FlashInferPages pages_;
  DeviceBuffer device_query_start_;
  DeviceBuffer device_first_page_;
  DeviceBuffer device_pages_;
  DeviceBuffer device_last_page_len_;
};

// What a plan writes and its launches read, of the sizes that FlashInfer recommends.
struct FlashInferWorkspace {
  FlashInferWorkspace();
  ~FlashInferWorkspace();
  FlashInferWorkspace(const FlashInferWorkspace&) = delete;
  FlashInferWorkspace& operator=(const FlashInferWorkspace&) = delete;

  template <typename T>
  T* float_at(int64_t byte_offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(floats.get()) + byte_offset);
  }
  template <typename T>
  T* int_at(int64_t byte_offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(ints.get()) + byte_offset);
  }

  DeviceBuffer floats;
  DeviceBuffer ints;
  void* staging = nullptr;  // page-locked, as large as `ints`
};

// A planned kernel. It may be launched for any batch whose lengths are those of the planned one.
struct FlashInferKernel {
  std::function<void(const FlashInferBatch&, gpuStream_t)> launch;
  int num_parts = 0;  // rows of partial results in a decode: parts of all sequences' keys
};

// The Hopper (FlashAttention-3) prefill over the pages of a bfloat16 cache, and over keys and
// values that lie one behind the other, which it reads by tensor memory accelerator. The second
// copies them when it plans.
FlashInferKernel plan_flashinfer_paged_prefill(const FlashInferBatch& batch);
FlashInferKernel plan_flashinfer_ragged_prefill(const FlashInferBatch& batch);

// BatchDecode on CUDA cores and on tensor cores, over a cache in bfloat16 or FP8, whose v_scale is
// left to the caller, as it is in FlashInfer.
FlashInferKernel plan_flashinfer_decode(const FlashInferBatch& batch);
FlashInferKernel plan_flashinfer_tensor_core_decode(const FlashInferBatch& batch);

}  // namespace atom::bench
