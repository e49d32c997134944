// Inner kernels of linear over one panel of 64 output columns, one table per instruction set and
// weight dtype. Plain declarations: the files that define them are compiled for one instruction
// set. A step is what the packed weight advances by: two k in
// bfloat16, FP8 and INT8, eight k in FP4 and INT4, one k otherwise.
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

// Scales that a multiplication applies to the sums of each group of k.
struct GroupScales {
  // One float32 for the panel, 64 of them, or 64 bytes of E8M0 (an exponent above -127).
  enum Kind : uint8_t { kOne, kFloat32, kE8M0 };
  Kind kind;
  int64_t steps;          // of a group; the last may be shorter
  const void* weight;     // of the first group
  int64_t weight_stride;  // bytes from group to group
  const float* x;         // [rows][x_stride], of the first group; null: 1
  int64_t x_stride;
};

struct KernelTable {
  // Bytes of one step of a panel, and of one row's step of packed activations.
  int64_t weight_step_size = 0;
  int64_t x_step_size = 0;
  // Rows up to which multiply() reads a panel once, in order.
  int max_streaming_rows = 0;
  // Bytes that such a multiply() prefetches ahead into the second-level cache; 0: by its rows.
  int stream_ahead = 0;
  // It prefetches nothing, but on Intel's processors: the prefetcher of AMD's does best by itself
  // where steps take least.
  bool streams_unaided = false;

  // `rows` rows of activations, row_stride bytes apart, to [steps][rows] with zeros past k. Null:
  // weights do not meet such activations.
  void (*pack_x)(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) =
      nullptr;

  // sums[rows][64] += packed x times the panel, over `steps` steps ascending. Null: weights have
  // groups.
  void (*multiply)(int rows,
                   const void* panel,
                   const void* packed_x,
                   int64_t steps,
                   float* sums,
                   Prefetch prefetch) = nullptr;

  // The same, the sum of each group on its own and then scaled.
  void (*multiply_in_groups)(int rows,
                             const void* panel,
                             const void* packed_x,
                             int64_t steps,
                             float* sums,
                             Prefetch prefetch,
                             const GroupScales& groups) = nullptr;

  // What sums are still to be multiplied by: a power of 2.
  float unit = 1.0f;
  // multiply() adds 32-bit integers in the place of floats.
  bool integer_sums = false;

  // For many rows: a table with the same sums, bit by bit, which multiplies what expand() made of
  // the panel. One step becomes expanded_steps of its own. Null: there is none.
  const KernelTable* expanded = nullptr;
  int expanded_steps = 1;
  void (*expand)(const void* panel, int64_t steps, void* out) = nullptr;
};

// y[r][c] = sums[r][c] + bias[c] for c < columns, rounded once; bias may be null.
using StoreRows =
    void(const float* sums, int rows, int columns, const float* bias, void* y, int64_t row_stride);

// One for each dtype of y.
struct StoreTable {
  StoreRows* float32;
  StoreRows* float16;
  StoreRows* bfloat16;
};

// For a quantized weight, one for each dtype of x.
struct QuantizedTables {
  KernelTable float32;
  KernelTable float16;
  KernelTable bfloat16;
  KernelTable float8 = {};
  KernelTable int8 = {};
  KernelTable float4 = {};
};

extern const KernelTable kAvx512BFloat16;
extern const KernelTable kAvx512Float16;
extern const KernelTable kAvx512Float32;
extern const QuantizedTables kAvx512Float8;
extern const QuantizedTables kAvx512Int8;
extern const QuantizedTables kAvx512Float4;
extern const QuantizedTables kAvx512Int4;
extern const StoreTable kAvx512Stores;
extern const KernelTable kAvx2BFloat16;
extern const KernelTable kAvx2Float16;
extern const KernelTable kAvx2Float32;
extern const QuantizedTables kAvx2Float8;
extern const QuantizedTables kAvx2Int8;
extern const QuantizedTables kAvx2Float4;
extern const QuantizedTables kAvx2Int4;
extern const StoreTable kAvx2Stores;

}  // namespace atom::ops::linear_kernels
