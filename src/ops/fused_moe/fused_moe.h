// The experts of a mixture of experts: every token by the experts that its router chose, and the
// results added up by their weights.
//
//   y[t] = sum over j of weights[t, j] * (W_down a + b_down),  a = activation(W_gate_up x[t] + b)
//
// of expert ids[t, j]. Sums are float32; `a` is rounded once to x's dtype, y once to its own. The
// choices of a token are added in their order. x and `a` may be quantized before they are
// multiplied, as quantize() does it: on the CPU as ExpertWeights says, on a GPU where it says FP8
// with a scale for each 128 values and only by kernels for experts in FP8 ("one", "skinny" and
// "wide-float8"), without biases and interleaved gates, and in MXFP4 with dozens of tokens each
// ("mixed"); "terms" takes them as sums of two numbers in FP8, which lose no more than 2^-18 of a
// row's largest. On the CPU a token's result is
// bit-identical in every batch, whatever the number of threads, and an expert's matrices are read
// once for all of its tokens (of 8192 choices; more are taken in turns). On a Hopper GPU the
// kernels for many tokens round each expert's result before it is added.
#pragma once

#include <cstdint>
#include <span>

#include "ops/fused_moe/gated_activation.h"
#include "ops/linear/linear.h"
#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

// The experts that a rank has: E of them, of one shape and format. On a device their matrices are
// slices of one tensor, at equal distances, row-major or, in MXFP4, images: expert_images.h. What
// they refer to outlives calls.
struct ExpertWeights {
  std::span<const LinearWeight> gate_up;  // each [2 I, H]
  std::span<const LinearWeight> down;     // each [H, I]
  Tensor gate_up_bias;                    // [E, 2 I] x's dtype or float32; may be undefined
  Tensor down_bias;                       // [E, H] likewise
  // [number of ids] int32: where an expert stands among these, or -1 when another rank has it.
  // Undefined: an id is the place itself.
  Tensor places;
  // Of x and of `a`, where weights are quantized; on the CPU with the weights' groups, if any, or
  // several of them.
  CodeFormat gate_up_input = {};
  CodeFormat down_input = {};
};

// Choices of experts that are not here add nothing: ids without a place, negative, or beyond.
// `x_codes`, if defined: what quantize() makes of x as gate_up_input says, by which x is not
// quantized again and the results are the same; on a GPU rows begin at multiples of 16 bytes.
void fused_moe(const Stream& stream,
               const Tensor& x,        // [T, H], row stride allowed
               const Tensor& ids,      // [T, k] int32, those of a token distinct
               const Tensor& weights,  // [T, k] float32
               const ExpertWeights& experts,
               const GatedActivation& activation,
               const Tensor& y,  // [T, H] x.dtype() or float32, row stride allowed; not x
               Workspace& scratch,
               const QuantizedRows& x_codes = {});

// Up to how many tokens experts in FP8 take x itself, on a GPU: codes of it are of no use to them.
int64_t fused_moe_row_tokens(int64_t hidden_size, int64_t intermediate_size);

// Whether experts in MXFP4 of such sizes can multiply activations in FP8: on the CPU all can.
bool fused_moe_has_float8_activations(Device device,
                                      DType dtype,  // of x
                                      int64_t hidden_size,
                                      int64_t intermediate_size,
                                      const GatedActivation& activation);

}  // namespace atom::ops
