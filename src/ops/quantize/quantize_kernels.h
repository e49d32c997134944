// Inside quantize: what its kernels take.
#pragma once

#include <stdint.h>

#include "tensor/element.h"
#include "tensor/quant_type.h"

namespace atom::ops {

// One call. Strides are in elements of storage.
struct QuantizeArgs {
  const void* x;
  uint8_t* values;
  float* scales;              // of rows or groups, written; null: those below
  const float* static_scale;  // of all, given
  uint8_t* exponents;         // of groups in FP4, written
  int64_t x_stride;
  int64_t values_stride;
  int64_t size;  // of a row
  Element element;
  QuantDType dtype;       // but INT4
  int64_t group_size;     // values that share a scale: `size` without groups; 32 in FP4
  bool rounds_exponents;  // E8M0Rounding::kEven

  constexpr int64_t num_groups() const {
    return group_size > 0 ? (size + group_size - 1) / group_size : 1;
  }
  constexpr bool is_float8() const { return dtype == QuantDType::kFloat8E4M3; }
  constexpr bool has_whole_groups() const { return group_size > 0 && size % group_size == 0; }
  // FP8 with one scale for a row or all.
  constexpr bool is_plain_float8() const { return is_float8() && group_size == size; }
};

// The call of one row.
inline QuantizeArgs row_of(const QuantizeArgs& args, int64_t row) {
  QuantizeArgs one = args;
  if (args.x != nullptr) {
    one.x = static_cast<const char*>(args.x) + row * args.x_stride * bytes_of(args.element);
  }
  one.values = args.values + row * args.values_stride;
  if (args.scales != nullptr) one.scales = args.scales + row * args.num_groups();
  if (args.exponents != nullptr) one.exponents = args.exponents + row * args.num_groups();
  return one;
}

using QuantizeKernel = void(const QuantizeArgs& args, int64_t begin, int64_t end);  // rows

QuantizeKernel quantize_reference;
QuantizeKernel quantize_avx2;
QuantizeKernel quantize_avx512;

// On a GPU's queue (DeviceQueue::handle()); at least one row.
using QuantizeGpuKernel = void(const QuantizeArgs& args, int64_t num_rows, void* queue);

QuantizeGpuKernel quantize_cuda;         // plain FP8
QuantizeGpuKernel quantize_groups_cuda;  // every format
QuantizeGpuKernel quantize_vector_cuda;  // plain FP8, 16 bytes at a time
bool fits_quantize_vector(const QuantizeArgs& args);
QuantizeGpuKernel quantize_group_vector_cuda;  // FP8 in groups of 128, 16 bytes at a time
bool fits_quantize_group_vector(const QuantizeArgs& args);

// Sets *found, which starts as 0, when one of the codes is NaN: vectors of 16, on an address that
// is a multiple of 16.
void find_nan_cuda(const void* codes, int64_t num_vectors, uint32_t* found, void* queue);

}  // namespace atom::ops
