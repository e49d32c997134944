// Gathers rows of a table on a GPU: out[t] = table[ids[t]]. A row of an id outside the table is
// filled with zeros; whoever accepts a request checks ids.
#pragma once

#include <cstdint>

#include "tensor/gpu_api.h"

namespace atom::ops {

struct EmbeddingLaunch {
  const int32_t* ids = nullptr;  // [num_tokens]
  const void* table = nullptr;   // [vocab_size, row_size bytes]
  void* out = nullptr;           // [num_tokens, row_size bytes]
  int64_t table_stride = 0;      // bytes
  int64_t out_stride = 0;        // bytes
  int64_t row_size = 0;          // bytes
  int64_t num_tokens = 0;
  int64_t vocab_size = 0;
  bool overlaps_previous = false;
};

gpuError_t launch_embedding(const EmbeddingLaunch& params, gpuStream_t stream);

}  // namespace atom::ops
