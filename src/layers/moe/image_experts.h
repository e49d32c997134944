// Experts' matrices in MXFP4 as images, from rows: ops/fused_moe/expert_image_format.h.
#pragma once

#include "layers/moe/expert_stack.h"
#include "ops/linear/linear.h"

namespace atom {

// How the stack's matrices in this format lie on `device`.
ops::WeightLayout expert_weight_layout(const ExpertStackLayout& layout,
                                       const ops::QuantFormat& format,
                                       Device device);

// Of one expert, on the CPU: codes of rows as `like`, whose layout is images, has them.
Tensor images_of_rows(const Tensor& rows, const ops::LinearWeight& like);

}  // namespace atom
