// The dense linear operator y = x W^T (+ b) and the weights it reads. On processors with vector
// instructions a weight is packed once, when it is loaded, into panels that one layout serves from
// single rows to prefill; elsewhere it stays row-major.
//
// On the CPU every output element is one float32 sum over ascending k, whatever the number of rows,
// the row's position and the number of threads: a row's result is bit-identical in every batch. The
// avx512 variant in bfloat16 follows vdpbf16ps, which flushes denormal factors and sums to zero. On
// a GPU, where weights stay row-major, sums are float32 too, in an order that a variant may choose
// by the shape.
//
// A weight in FP8 (E4M3) stays as bytes. Values are exact in every variant's arithmetic, except
// that a GPU's tensor cores, with both factors in FP8 and y of 2 bytes, cut products off 13 bits
// below the largest and add these sums in float32. Scales multiply the finished sum:
//   y[t, n] = (sum_k x[t, k] W[n, k]) * weight.scales[n] * x_scales[t] + bias[n]
#pragma once

#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

enum class WeightLayout {
  kRowMajor,  // [N, K]
  // [ceil(N / 64), K, 64], and in bfloat16 and FP8 [ceil(N / 64), ceil(K / 2), 64, 2]; zero padded.
  kPanels,
};

// Immutable after loading; read by all threads.
struct LinearWeight {
  Tensor data;
  int64_t out_features = 0;  // N
  int64_t in_features = 0;   // K
  WeightLayout layout = WeightLayout::kRowMajor;
  Tensor scales;  // FP8 only: [N] or [1] float32, by which rows are multiplied; undefined: by 1

  DType dtype() const { return data.dtype(); }
};

// The layout that linear() reads fastest on this machine's device.
WeightLayout preferred_weight_layout(Device device = {});

// Bytes that a weight [out_features, in_features] takes in `layout`.
int64_t packed_size(int64_t out_features,
                    int64_t in_features,
                    DType dtype,
                    WeightLayout layout = preferred_weight_layout());

// A weight on the CPU whose rows are still to be given by pack_rows, all of them. float32, float16,
// bfloat16, or FP8 without codes of NaN.
LinearWeight make_linear_weight(int64_t out_features,
                                int64_t in_features,
                                DType dtype,
                                WeightLayout layout = preferred_weight_layout());

// The same without memory, for plans and dry runs.
LinearWeight linear_weight_meta(int64_t out_features,
                                int64_t in_features,
                                DType dtype,
                                WeightLayout layout = preferred_weight_layout());

// Rows [first_row, first_row + R) of `weight` from `rows`; calls for disjoint rows come in any
// order.
void pack_rows(const Stream& stream,
               const Tensor& rows,  // [R, K] weight.dtype(), row stride allowed
               int64_t first_row,
               const LinearWeight& weight);

// A weight from all of its rows at once.
LinearWeight pack_linear_weight(const Stream& stream,
                                const Tensor& rows,  // [N, K], row stride allowed
                                WeightLayout layout = preferred_weight_layout());

void linear(const Stream& stream,
            const Tensor& x,  // [T, K] weight.dtype(), with FP8 any float; row stride allowed
            const LinearWeight& weight,
            const Tensor& bias,  // [N] x.dtype() or float32; may be undefined
            const Tensor& y,     // [T, N] x.dtype() or float32, row stride allowed
            Workspace& scratch);

// The same with both factors in FP8.
void linear(const Stream& stream,
            const Tensor& x,         // [T, K] FP8, row stride allowed
            const Tensor& x_scales,  // [T] or [1] float32
            const LinearWeight& weight,
            const Tensor& bias,  // [N] y.dtype() or float32; may be undefined
            const Tensor& y,     // [T, N] float32, float16 or bfloat16, row stride allowed
            Workspace& scratch);

// out[t] = row ids[t] of the weight: the lookup of an embedding tied to the output projection.
void gather_rows(const Stream& stream,
                 const Tensor& ids,  // [T] int32, each in [0, N)
                 const LinearWeight& weight,
                 const Tensor& out);  // [T, K] weight.dtype(), row stride allowed

}  // namespace atom::ops
