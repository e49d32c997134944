// The loops that roofs are measured with, one set per instruction set.
#pragma once

#include <cstdint>

namespace atom::ops::roofs_kernels {

// Reads `size` bytes (a multiple of 1024), prefetching into the second-level cache `ahead` bytes
// ahead, or leaving that to the processor when 0; the result depends on all of them.
using ReadLoop = uint64_t (*)(const char* data, int64_t size, int64_t ahead);
// Runs `iterations` rounds of independent multiply-adds in registers and returns the floating point
// operations done (2 for a multiply-add).
using FlopsLoop = int64_t (*)(int64_t iterations);

uint64_t read_avx512(const char* data, int64_t size, int64_t ahead);
uint64_t read_avx2(const char* data, int64_t size, int64_t ahead);
uint64_t read_scalar(const char* data, int64_t size, int64_t ahead);

int64_t bf16_flops_amx(int64_t iterations);
int64_t bf16_flops_avx512(int64_t iterations);
int64_t f32_flops_avx512(int64_t iterations);
int64_t f32_flops_avx2(int64_t iterations);
int64_t f32_flops_scalar(int64_t iterations);

}  // namespace atom::ops::roofs_kernels
