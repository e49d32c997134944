// Inner kernels of linear over one panel of 64 output columns, one table per instruction set and
// weight dtype. Plain declarations: the files that define them are compiled for one instruction
// set. A step is what the packed weight advances by: two k in bfloat16 and FP8, one k otherwise.
#pragma once

#include <cstdint>

namespace atom::ops::linear_kernels {

constexpr int kPanelColumns = 64;
constexpr int kMaxTileRows = 6;
constexpr int kStepUnroll = 4;

// What a multiplication brings into a cache meanwhile: `lines` cache lines every kStepUnroll steps,
// ascending from `from`.
struct Prefetch {
  const void* from;
  int lines;
  bool into_l1;  // else into the second-level cache
};

struct KernelTable {
  // Bytes of one step of a panel, and of one row's step of packed activations.
  int64_t weight_step_size;
  int64_t x_step_size;
  // Rows up to which multiply() reads a panel once, in order.
  int max_streaming_rows;

  // `rows` rows of activations, row_stride bytes apart, to [steps][rows] with zeros past k.
  void (*pack_x)(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed);

  // sums[rows][64] += packed x times the panel, over `steps` steps ascending.
  void (*multiply)(int rows,
                   const void* panel,
                   const void* packed_x,
                   int64_t steps,
                   float* sums,
                   Prefetch prefetch);

  // y[r][c] = sums[r][c] + bias[c] for c < columns, rounded once; bias may be null.
  void (*store_float)(
      const float* sums, int rows, int columns, const float* bias, void* y, int64_t row_stride);
  // The same into the other dtype that y may have.
  void (*store)(
      const float* sums, int rows, int columns, const float* bias, void* y, int64_t row_stride);

  // What multiply()'s sums are still to be multiplied by: a power of 2.
  float unit = 1.0f;
};

// Of weights in FP8, by the dtype of x: also that of y, unless y is float32.
struct Float8Tables {
  KernelTable bfloat16;
  KernelTable float16;
  KernelTable float32;
  // x in FP8, y in this dtype or float32.
  KernelTable to_bfloat16;
  KernelTable to_float16;
};

extern const KernelTable kAvx512BFloat16;
extern const KernelTable kAvx512Float16;
extern const KernelTable kAvx512Float32;
extern const Float8Tables kAvx512Float8;
extern const KernelTable kAvx2BFloat16;
extern const KernelTable kAvx2Float16;
extern const KernelTable kAvx2Float32;
extern const Float8Tables kAvx2Float8;

}  // namespace atom::ops::linear_kernels
