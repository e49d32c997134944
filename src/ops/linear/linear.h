// The dense linear operator y = x W^T (+ b) and the weights it reads. On processors with vector
// instructions a weight is packed once, when it is loaded, into panels that one layout serves from
// single rows to prefill; elsewhere it stays row-major.
//
// On the CPU every output element is one float32 sum over ascending k, whatever the number of rows,
// the row's position and the number of threads: a row's result is bit-identical in every batch. In
// bfloat16 the avx512 variant follows vdpbf16ps, which flushes denormal factors and sums to zero;
// the amx variant does so too, and adds 32 values of k at a time, of which those of even k and of
// odd k apart. On a GPU, where weights stay row-major, sums are float32 too, in an order that a
// variant may choose by the shape.
//
// A quantized weight (FP8 E4M3, INT8, FP4 E2M1, INT4) stays packed. Values are exact in every
// variant's arithmetic, except that a GPU's tensor cores, with both factors in FP8 and y of 2
// bytes, cut products off 13 bits below the largest and add these sums in float32. Scales multiply
// the finished sum, or those of groups of k, which are then added in ascending order:
//   y[t, n] = (sum_k x[t, k] W[n, k]) * weight.scales[n] * x_scales[t] + bias[n]
//   y[t, n] = sum_g (sum_{k in g} x[t, k] W[n, k]) * weight.scales[n, g] * x_scales[t, g] + bias[n]
#pragma once

#include <cstdint>

#include "tensor/quant_type.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

enum class WeightLayout {
  kRowMajor,  // [N, K]
  // [ceil(N / 64), K, 64]; in bfloat16, FP8 and INT8 [ceil(N / 64), ceil(K / 2), 64, 2]; with 4
  // bits [ceil(N / 64), K / 8, 64, 4 bytes], the lower two of even k. Padded with zeros.
  kPanels,
  // FP4 of experts on a GPU: [N / 64, K / 64, 2048 bytes], scales as in rows. Nothing but fused_moe
  // reads them; see ops/fused_moe/expert_image_format.h.
  kImages,
};

// Immutable after loading; read by all threads.
struct LinearWeight {
  Tensor data;
  int64_t out_features = 0;  // N
  int64_t in_features = 0;   // K
  WeightLayout layout = WeightLayout::kRowMajor;
  // Quantized only. Without groups [N] or [1] float32; undefined: 1. With groups
  // [ceil(N / scale_rows), ceil(K / group_size)], float32 or E8M0 (bytes, 2^(byte - 127)); in
  // panels, unless several rows share them, [ceil(N / 64), ceil(K / group_size), 64].
  Tensor scales;
  int64_t group_size = 0;                          // values of a row that share a scale; 0: all
  int64_t scale_rows = 1;                          // rows that share one: 1 or a multiple of 64
  QuantDType four_bits = QuantDType::kFloat4E2M1;  // when data are bytes of two values

  // kUInt8 with 4 bits.
  DType dtype() const { return data.dtype(); }
  bool has_groups() const { return group_size > 0; }
  bool is_quantized() const;
  QuantDType quant_dtype() const;  // of a quantized weight
};

// The layout that linear() reads fastest on this machine's device.
WeightLayout preferred_weight_layout(Device device = {});

// Rows of 16-bit activations up to which linear() multiplies by an FP8 weight sooner than by a
// 16-bit one, unless rows have a fixed order of sums; 0: never.
int64_t max_float8_rows(Device device);

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

// How a quantized weight is stored.
struct QuantFormat {
  QuantDType dtype = QuantDType::kFloat8E4M3;
  // kPerTensor and kPerToken: scales that multiply finished sums, [1] and [N]. kPer1x32, kPer1x128
  // and kPer128x128: groups of that many values of a row.
  QuantType granularity = QuantType::kPerToken;
  int64_t scale_rows = 1;  // kPer128x128: rows that share a scale here, 128 or a part of it

  int64_t group_size() const;  // 0: none
  // E8M0 (kUInt8) of FP4 in groups of 32, else float32.
  DType scale_dtype() const;
};

// Values and scales without memory. With 4 bits K is a multiple of the group.
LinearWeight quantized_weight_meta(int64_t out_features,
                                   int64_t in_features,
                                   const QuantFormat& format,
                                   WeightLayout layout = preferred_weight_layout());
// The same on the CPU with memory, to be given by pack_rows and pack_scales.
LinearWeight make_quantized_weight(int64_t out_features,
                                   int64_t in_features,
                                   const QuantFormat& format,
                                   WeightLayout layout = preferred_weight_layout());

// Scales of rows [first_row, first_row + R) of a weight on the CPU, of which `first_row` and R are
// multiples of scale_rows (the last R need not be).
void pack_scales(const Tensor& scales,  // [ceil(R / scale_rows), groups], or [R] without groups
                 int64_t first_row,
                 const LinearWeight& weight);

// Rows [first_row, first_row + R) of `weight` from `rows`; calls for disjoint rows come in any
// order.
void pack_rows(
    const Stream& stream,
    const Tensor& rows,  // [R, K] weight.dtype(), with 4 bits [R, K / 2]; row stride allowed
    int64_t first_row,
    const LinearWeight& weight);

// A weight from all of its rows at once.
LinearWeight pack_linear_weight(const Stream& stream,
                                const Tensor& rows,  // [N, K], row stride allowed
                                WeightLayout layout = preferred_weight_layout());

void linear(
    const Stream& stream,
    const Tensor& x,  // [T, K] weight.dtype(), of quantized ones any float; row stride allowed
    const LinearWeight& weight,
    const Tensor& bias,  // [N] x.dtype() or float32; may be undefined
    const Tensor& y,     // [T, N] x.dtype() or float32, row stride allowed
    Workspace& scratch);

// The same with activations in codes: FP8 with any weight but INT8, INT8 with INT8, FP4 (bytes of
// two values, the first in the lower half) with 4 bits.
void linear(const Stream& stream,
            const Tensor& x,         // [T, K], FP4 [T, K / 2]; row stride allowed
            const Tensor& x_scales,  // [T] or [1] float32; [T, groups] like the weight's groups
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
