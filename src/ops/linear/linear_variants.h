// The variants of linear, for its dispatch and its test.
#pragma once

#include <span>

#include "ops/linear/linear.h"
#include "ops/linear/linear_kernels.h"
#include "ops/linear/tile_kernels.h"
#include "ops/variant.h"

namespace atom::ops {

// One checked call; see linear().
struct LinearCall {
  const Tensor& x;
  const LinearWeight& weight;
  const Tensor& bias;
  const Tensor& y;
  // Of codes: [T] or [1] float32, or like the weight's groups [T, groups], float32 or E8M0 bytes.
  Tensor x_scales = {};
  // The weight is [2 I, K], and y [T, I] what linear_silu_and_mul says; linear's calls are not.
  bool is_gated = false;
};

using LinearLaunch = void(const Stream&, const LinearCall&, Workspace&);
using LinearVariant = Variant<LinearCall, LinearLaunch>;

std::span<const LinearVariant> linear_variants();

// Ends the process, with the operator's name, unless the tensors go together. `dtype` is that of
// the bias and of y; either may be float32 as well.
void check_linear_call(const char* name, const LinearCall& call, DType dtype);
// Whether the weight is plain, or in FP8 with scales of finished sums.
bool is_unpacked(const LinearCall& call);
// Whether both factors are in FP8 with scales of groups of 128 values of k.
bool is_float8_in_groups(const LinearCall& call);
// What a call moves and computes.
OperatorWork linear_work(const LinearCall& call);

// Any weight layout; plain loops, the oracle of the others.
void linear_reference(const Stream& stream, const LinearCall& call, Workspace& scratch);

// On a Hopper GPU: the few rows of a decode step, for which the weight is streamed once.
bool fits_linear_stream(const LinearCall& call);
void linear_stream(const Stream& stream, const LinearCall& call, Workspace& scratch);

// Rows of 16-bit activations that it multiplies by an FP8 weight faster than by a 16-bit one; 0
// without a Hopper GPU.
int64_t max_fast_float8_rows();

// A weight of few rows, as a router's, whose launch takes as long as its latencies.
bool fits_linear_narrow(const LinearCall& call);
void linear_narrow(const Stream& stream, const LinearCall& call, Workspace& scratch);

// The same by the matrix units, for more rows and for FP8 on both sides, also with scales of
// groups.
bool fits_linear_skinny(const LinearCall& call);
void linear_skinny(const Stream& stream, const LinearCall& call, Workspace& scratch);

// FP8 with scales of groups on a Hopper GPU: up to 64 rows where every tile, and every part of its
// k, has a multiprocessor.
bool fits_linear_split_k(const LinearCall& call);
void linear_split_k(const Stream& stream, const LinearCall& call, Workspace& scratch);

// Both factors in FP8 with scales of groups on a Hopper GPU: many rows, and any number where a
// row's result is to be its own.
bool fits_linear_blocks(const LinearCall& call);
void linear_blocks(const Stream& stream, const LinearCall& call, Workspace& scratch);
// The same for 65 to 256 rows, where it is faster with k divided among the blocks of a cluster.
bool fits_linear_blocks_divided(const LinearCall& call);
void linear_blocks_divided(const Stream& stream, const LinearCall& call, Workspace& scratch);
// Many rows of the same that cuBLASLt takes, or with an activation a library's product and then the
// activation.
bool fits_library_blocks(const LinearCall& call);

// Many rows on a Hopper GPU, without a library.
bool fits_linear_wgmma(const LinearCall& call);
void linear_wgmma(const Stream& stream, const LinearCall& call, Workspace& scratch);

// On a GPU: by cuBLASLt, where it is there and the call is aligned for it, by what is fastest or by
// one algorithm that makes a row's result its own; and by a plain kernel that takes any call with
// row-major weights.
bool fits_cublaslt(const LinearCall& call);
void linear_cublaslt(const Stream& stream, const LinearCall& call, Workspace& scratch);
bool fits_linear_fixed(const LinearCall& call);
void linear_fixed(const Stream& stream, const LinearCall& call, Workspace& scratch);

// On a Hopper GPU: few rows by the additions of linear_fixed in the same order. Admitted, whatever
// the number of rows, once the tuner has found the same bits.
bool admits_linear_ordered(const LinearCall& call);
bool fits_linear_ordered(const LinearCall& call);
void linear_ordered(const Stream& stream, const LinearCall& call, Workspace& scratch);

// On a GPU: an FP8 weight expanded piece by piece, whatever x is.
bool fits_linear_expanded(const LinearCall& call);
void linear_expanded(const Stream& stream, const LinearCall& call, Workspace& scratch);

// On a GPU: rows from `first_row` and columns from `first_column` on of the call's y, from sums
// [R, C] float32 of unscaled products.
void scale_sums(const Stream& stream,
                const LinearCall& call,
                const Tensor& sums,
                int64_t first_row,
                int64_t first_column);

// Weights in panels, by the kernels of one instruction set and dtype. The calls, all with rows, are
// of weights of one shape and format.
void linear_panels(const linear_kernels::KernelTable& kernels,
                   const linear_kernels::StoreTable& stores,
                   const Stream& stream,
                   std::span<const LinearCall> calls,
                   Workspace& scratch);

// The same by tiles of 16 rows, without quantization or with INT8 on both sides.
void linear_tiles(const linear_kernels::TileKernels& kernels,
                  const linear_kernels::StoreTable& stores,
                  const Stream& stream,
                  std::span<const LinearCall> calls,
                  Workspace& scratch);

// The kernels of an instruction set: a call alone, or many as linear_many() has them.
void linear_amx(const Stream& stream, const LinearCall& call, Workspace& scratch);
void linear_avx512(const Stream& stream, const LinearCall& call, Workspace& scratch);
void linear_avx2(const Stream& stream, const LinearCall& call, Workspace& scratch);
void linear_many_amx(const Stream& stream, std::span<const LinearCall> calls, Workspace& scratch);
void linear_many_avx512(const Stream& stream,
                        std::span<const LinearCall> calls,
                        Workspace& scratch);
void linear_many_avx2(const Stream& stream, std::span<const LinearCall> calls, Workspace& scratch);

// On the CPU: many calls, all with rows, of weights of one shape and format, in as few parallel
// regions as one. Each result has the bits that linear() gives. What it takes of `scratch` follows
// from the number of rows of all calls.
void linear_many(const Stream& stream, std::span<const LinearCall> calls, Workspace& scratch);

// Where a row of a weight lies in its data, in elements: k is at
// begin + k / step_size * step_stride + k % step_size.
struct WeightRow {
  int64_t begin;
  int64_t step_stride;
  int64_t step_size;
};
WeightRow weight_row(const LinearWeight& weight, int64_t row);

// Values of k in one step of a panel.
int64_t panel_step_size(const LinearWeight& weight);

// The scale of a row's finished sums: one for all rows, or one each; 1 when undefined.
float row_scale_at(const Tensor& scales, int64_t row);

// Where the scale of a group of a row lies in weight.scales, in elements.
int64_t group_scale_index(const LinearWeight& weight, int64_t row, int64_t group);

}  // namespace atom::ops
