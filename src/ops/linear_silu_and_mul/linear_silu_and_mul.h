// The first half of a gated MLP: y = silu(gate) * up, where gate and up are the product of x and a
// weight whose rows are [gate | up]. Where one kernel computes it, the product itself is not
// stored.
//
// It is ops::silu_and_mul of the product as ops::linear stores it, rounded to y's dtype, and what a
// variant of one kernel gives differs from that by the order of its sums alone.
#pragma once

#include "ops/linear/linear.h"
#include "ops/quantize/quantized_rows.h"

namespace atom::ops {

void linear_silu_and_mul(const Stream& stream,
                         const Tensor& x,             // [T, K] weight.dtype(), row stride allowed
                         const LinearWeight& weight,  // [2 I, K] float32, float16 or bfloat16
                         const Tensor& bias,          // [2 I] x.dtype() or float32, or undefined
                         const Tensor& y,             // [T, I] x.dtype(), row stride allowed
                         Workspace& scratch);

// The same of activations in codes and a quantized weight, with the scales of ops::linear. y and
// the bias are bfloat16, float16 or float32.
void linear_silu_and_mul(const Stream& stream,
                         const Tensor& x,  // [T, K], FP4 [T, K / 2]; row stride allowed
                         const Tensor& x_scales,
                         const LinearWeight& weight,  // [2 I, K]
                         const Tensor& bias,
                         const Tensor& y,
                         Workspace& scratch);

// The same with the result quantized: the codes that ops::silu_and_mul makes of the product rounded
// to `dtype`. Chooses between one kernel for product and activation, whose rows are then quantized,
// and a product that is activated and quantized in one pass.
void linear_silu_and_mul_quantized(const Stream& stream,
                                   const Tensor& x,
                                   const Tensor& x_scales,  // undefined unless x are codes
                                   const LinearWeight& weight,
                                   const Tensor& bias,
                                   DType dtype,
                                   const QuantizedRows& y,  // [T, I]
                                   Workspace& scratch);

}  // namespace atom::ops
