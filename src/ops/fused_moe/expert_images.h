// Matrices of experts in MXFP4 as images: whether they are kept so, and from rows to them.
#pragma once

#include <cstdint>

#include "ops/fused_moe/expert_image_format.h"
#include "ops/fused_moe/gated_activation.h"
#include "tensor/dtype.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// Whether both matrices of experts of these sizes can be images.
bool divides_into_images(int64_t hidden_size, int64_t intermediate_size);

// Whether experts in MXFP4 of these sizes are kept as images: on cards that have kernels made for
// them, for what these take. The one place where it is decided.
bool keeps_expert_images(Device device,
                         DType dtype,  // of x
                         const GatedActivation& activation,
                         int64_t hidden_size,
                         int64_t intermediate_size);

// A matrix's codes on the CPU.
struct ImageMatrix {
  int64_t num_rows, num_columns;  // multiples of kImageRows and kImageColumns
  void pack_codes(const uint8_t* rows, uint8_t* images) const;
  void unpack_codes(const uint8_t* images, uint8_t* rows) const;
};

// Codes of matrices that follow each other, on the stream's GPU, from rows to images where they
// are.
void turn_into_images(const Stream& stream,
                      const Tensor& codes,  // bytes, contiguous
                      int64_t num_columns);

}  // namespace atom::ops
