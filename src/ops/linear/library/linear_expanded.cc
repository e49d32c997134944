// linear() with an FP8 weight on a GPU where the multiplication itself is not in FP8: the values of
// codes are exact in x's dtype (bfloat16 when x is in FP8 too), so a piece of the weight at a time
// is expanded, multiplied by cuBLASLt into float32 sums, and these are scaled.
#include <algorithm>

#include "base/check.h"
#include "ops/linear/library/gemm_plans.h"
#include "ops/linear/linear_float8_cuda.h"
#include "ops/linear/linear_variants.h"
#include "tensor/element_of.h"

namespace atom::ops {
namespace {

constexpr int64_t kPieceSize = int64_t{32} << 20;  // bytes of expanded values
constexpr int64_t kMaxPieceRows = 4096;
constexpr int64_t kPieceMultiple = 64;

// Rows of a matrix [num_rows, in_features] in a piece.
int64_t piece_rows(int64_t num_rows, int64_t in_features, DType dtype) {
  const int64_t fitting =
      kPieceSize / (in_features * dtype_size(dtype)) / kPieceMultiple * kPieceMultiple;
  return std::min(num_rows, std::clamp(fitting, kPieceMultiple, kMaxPieceRows));
}

DType expanded_dtype(const LinearCall& call) {
  return call.x.dtype() == DType::kFloat8E4M3 ? DType::kBFloat16 : call.x.dtype();
}

bool is_multiple(const void* data, int64_t unit) {
  return reinterpret_cast<uintptr_t>(data) % unit == 0;
}

// The size of the largest piece; those at the ends are smaller.
GemmKey key_of(const LinearCall& call, int64_t num_rows, int64_t num_columns) {
  const bool expands_x = call.x.dtype() == DType::kFloat8E4M3;
  return {.num_rows = num_rows,
          .out_features = num_columns,
          .in_features = call.weight.in_features,
          .x_stride = expands_x ? call.weight.in_features : call.x.stride(0),
          .y_stride = num_columns,
          .dtype = expanded_dtype(call),
          .y_dtype = DType::kFloat32};
}

// Rows [first, first + values.size(0)) of `codes`, a matrix in FP8.
void expand(const Stream& stream, const Tensor& codes, int64_t first, const Tensor& values) {
  expand_float8_cuda(
      {.codes = static_cast<const uint8_t*>(codes.raw_data()) + first * codes.stride(0),
       .values = values.raw_data(),
       .num_rows = values.size(0),
       .size = values.size(1),
       .codes_stride = codes.stride(0),
       .element = element_of(values.dtype())},
      stream.queue().handle());
}

}  // namespace

bool fits_linear_expanded(const LinearCall& call) {
  constexpr int64_t kCodes = 8, kColumns = 4;  // that kernels load and store at once
  const LinearWeight& weight = call.weight;
  const int64_t x_size = dtype_size(call.x.dtype());
  const int64_t x_alignment = call.x.dtype() == DType::kFloat8E4M3 ? kCodes : kGemmAlignment;
  return cublaslt().ok() && weight.dtype() == DType::kFloat8E4M3 &&
         weight.layout == WeightLayout::kRowMajor && weight.in_features % kCodes == 0 &&
         weight.out_features % kColumns == 0 && is_multiple(weight.data.raw_data(), kCodes) &&
         is_multiple(call.x.raw_data(), x_alignment) &&
         call.x.stride(0) * x_size % x_alignment == 0 &&
         is_multiple(call.y.raw_data(), kColumns * dtype_size(call.y.dtype())) &&
         call.y.stride(0) % kColumns == 0 &&
         GemmPlans::current().supports(key_of(call, call.x.size(0), weight.out_features));
}

void linear_expanded(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const DType dtype = expanded_dtype(call);
  const bool expands_x = call.x.dtype() != dtype;
  const int64_t num_rows = call.x.size(0), num_columns = call.weight.out_features;
  const int64_t in_features = call.weight.in_features;
  const int64_t most_rows = piece_rows(num_rows, in_features, dtype);
  const int64_t most_columns = piece_rows(num_columns, in_features, dtype);
  const Tensor memory = scratch.tensor({kGemmScratchSize + kGemmScratchAlignment}, DType::kUInt8);
  const Tensor weight_piece = scratch.tensor({most_columns, in_features}, dtype);
  const Tensor x_piece = scratch.tensor({expands_x ? most_rows : 1, in_features}, dtype);
  const Tensor sums_memory = scratch.tensor({most_rows * most_columns}, DType::kFloat32);
  if (stream.is_dry_run()) return;
  const auto begin = reinterpret_cast<uintptr_t>(memory.raw_data());
  auto* gemm_scratch = reinterpret_cast<void*>((begin + kGemmScratchAlignment - 1) /
                                               kGemmScratchAlignment * kGemmScratchAlignment);
  for (int64_t row = 0; row < num_rows; row += most_rows) {
    const int64_t rows = std::min(most_rows, num_rows - row);
    if (expands_x) expand(stream, call.x, row, x_piece.narrow(0, 0, rows));
    for (int64_t column = 0; column < num_columns; column += most_columns) {
      const int64_t columns = std::min(most_columns, num_columns - column);
      expand(stream, call.weight.data, column, weight_piece.narrow(0, 0, columns));
      const Tensor sums = sums_memory.narrow(0, 0, rows * columns).view({rows, columns});
      const GemmOperands operands{
          .x = expands_x ? x_piece.raw_data() : call.x.narrow(0, row, rows).raw_data(),
          .weight = weight_piece.raw_data(),
          .y = sums.raw_data()};
      GemmPlans::current().multiply(
          key_of(call, rows, columns), operands, gemm_scratch, stream.queue().handle());
      scale_sums(stream, call, sums, row, column);
    }
  }
}

}  // namespace atom::ops
