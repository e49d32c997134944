// Inside roofs: the passes over a GPU's memory.
#pragma once

#include <stdint.h>

namespace atom::ops::roofs_kernels {

// Enqueues one pass over `size` bytes, a multiple of 16, by `num_blocks` blocks of threads.
void read_gpu(const void* data, int64_t size, int num_blocks, void* queue);
void copy_gpu(const void* from, void* to, int64_t size, int num_blocks, void* queue);

}  // namespace atom::ops::roofs_kernels
