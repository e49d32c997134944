// RMSNorm over the last dimension, alone or fused with the residual addition before it.
//
//   y = x / sqrt(mean(x^2) + eps)                       in float32
//   weight of x's dtype:          out = weight * cast(y), rounded again   (Llama, Qwen, GLM)
//   float32 weight, 16-bit x:     out = cast(weight * y), rounded once    (gpt-oss)
//
// A row's result does not depend on the other rows.
#pragma once

#include "comm/communicator.h"
#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

// x and out are [num_tokens, hidden_size], or [num_tokens, num_heads, head_dim] for the norms of
// queries and keys, where they may be slices of a packed qkv tensor. float32, float16 or bfloat16.
void rms_norm(const Stream& stream,
              const Tensor& x,
              const Tensor& weight,  // [last dimension of x] x's dtype or float32
              float eps,
              const Tensor& out);  // like x; may be x itself

// residual = cast(x + residual); out = rms_norm(residual). out may be x itself.
void add_rms_norm(const Stream& stream,
                  const Tensor& x,         // [num_tokens, hidden_size]
                  const Tensor& residual,  // like x; read and written
                  const Tensor& weight,    // [hidden_size] x's dtype or float32
                  float eps,
                  const Tensor& out);  // like x

// Either of them, by whether the residual is defined, with `codes` of the result: bit for bit what
// ops::quantize gives of `out`, which may be undefined when nobody needs the rows themselves.
void add_rms_norm(const Stream& stream,
                  const Tensor& x,  // [num_tokens, hidden_size]
                  const Tensor& residual,
                  const Tensor& weight,
                  float eps,
                  const Tensor& out,
                  const QuantizedRows& codes,
                  Workspace& scratch);

// x of each of `ranks` is a part: residual = cast(sum + residual), where the sum is that of
// Communicator::all_reduce(), then as above. The same bits as all_reduce() and add_rms_norm(). What
// is in x afterwards is not specified.
void add_rms_norm_of_ranks(const Stream& stream,
                           Communicator& ranks,
                           const Tensor& x,  // [num_tokens, hidden_size], contiguous
                           const Tensor& residual,
                           const Tensor& weight,
                           float eps,
                           const Tensor& out,
                           const QuantizedRows& codes,
                           Workspace& scratch);

}  // namespace atom::ops
