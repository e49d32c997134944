// Inside kv_cache_write: what its kernels take.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

// One call. Strides and sizes are in bytes.
struct KvCacheWriteArgs {
  struct Source {
    const void* data;
    int64_t token_stride;
    int64_t head_stride;
    void* cache;
    float scale;  // what a cache in FP8 holds is divided by it
  };
  Source sources[2];    // keys, values
  int32_t num_sources;  // 1: keys alone
  const int32_t* slots;
  int64_t num_tokens;
  int64_t num_slots;
  int64_t num_heads;
  int64_t head_size;
  Element element;  // of keys and values
  bool float8_cache;
};

// On a GPU's queue (DeviceQueue::handle()). A slot outside the cache ends the process.
void kv_cache_write_cuda(const KvCacheWriteArgs& args, void* queue);

}  // namespace atom::ops
