// linear() whose rows do not depend on how many there are: cuBLASLt on tiles of one size, so that
// all calls with a weight follow one plan. A short tile has rows of padding, whatever they hold.
#include <algorithm>

#include "ops/linear/linear_variants.h"

namespace atom::ops {
namespace {

// Decodes read a weight once with so many rows nearly as fast as with one.
constexpr int64_t kTileRows = 128;

void copy_rows(const Stream& stream, const Tensor& from, const Tensor& to) {
  const int64_t element = dtype_size(from.dtype());
  stream.queue().copy_rows(to.raw_data(),
                           to.stride(0) * element,
                           from.raw_data(),
                           from.stride(0) * element,
                           from.size(1) * element,
                           from.size(0));
}

}  // namespace

bool fits_linear_tiles(const LinearCall& call) {
  return call.x.dtype() != DType::kFloat8E4M3 && fits_cublaslt(call);
}

void linear_tiles(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const LinearWeight& weight = call.weight;
  const Tensor x_tile = scratch.tensor({kTileRows, weight.in_features}, call.x.dtype());
  const Tensor y_tile = scratch.tensor({kTileRows, weight.out_features}, call.y.dtype());
  const LinearCall of_tile{x_tile, weight, call.bias, y_tile};
  if (stream.is_dry_run()) return linear_cublaslt(stream, of_tile, scratch);
  // Strides are part of a plan.
  const bool in_place = call.x.is_contiguous() && call.y.is_contiguous();
  const int64_t num_rows = call.x.size(0);
  for (int64_t begin = 0; begin < num_rows; begin += kTileRows) {
    const int64_t count = std::min(kTileRows, num_rows - begin);
    const Tensor x = call.x.narrow(0, begin, count);
    const Tensor y = call.y.narrow(0, begin, count);
    if (in_place && count == kTileRows) {
      linear_cublaslt(stream, {x, weight, call.bias, y}, scratch);
      continue;
    }
    copy_rows(stream, x, x_tile.narrow(0, 0, count));
    linear_cublaslt(stream, of_tile, scratch);
    copy_rows(stream, y_tile.narrow(0, 0, count), y);
  }
}

}  // namespace atom::ops
