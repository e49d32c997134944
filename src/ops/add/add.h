// The sum of what two layers give for the same rows, in float32 with one rounding.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// out += x. float32, float16 or bfloat16.
void add(const Stream& stream,
         const Tensor& x,     // [num_tokens, hidden_size] contiguous
         const Tensor& out);  // like x; read and written, not the same memory

}  // namespace atom::ops
