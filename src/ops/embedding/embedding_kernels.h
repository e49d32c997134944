// Inside embedding: what its kernels take.
#pragma once

#include <stdint.h>

namespace atom::ops {

// One call. Strides and sizes are in bytes.
struct EmbeddingArgs {
  const int32_t* ids;
  const void* table;
  void* out;
  int64_t num_tokens;
  int64_t vocab_size;
  int64_t row_size;
  int64_t table_stride;
  int64_t out_stride;
  int64_t first_id;  // the table's first row is that of this id
  bool is_part;      // ids without a row give zeros
};

// On a GPU's queue (DeviceQueue::handle()). An id outside a whole table ends the process.
void embedding_cuda(const EmbeddingArgs& args, void* queue);

}  // namespace atom::ops
