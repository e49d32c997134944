#include "layers/moe/image_experts.h"

#include "base/check.h"
#include "ops/fused_moe/expert_images.h"

namespace atom {

ops::WeightLayout expert_weight_layout(const ExpertStackLayout& layout,
                                       const ops::QuantFormat& format,
                                       Device device) {
  const bool is_mxfp4 = format.dtype == QuantDType::kFloat4E2M1 &&
                        format.granularity == QuantType::kPer1x32 && format.scale_rows == 1;
  return is_mxfp4 && layout.keeps_images ? ops::WeightLayout::kImages
                                         : ops::preferred_weight_layout(device);
}

Tensor images_of_rows(const Tensor& rows, const ops::LinearWeight& like) {
  CHECK(like.layout == ops::WeightLayout::kImages);
  CHECK(rows.num_bytes() == like.data.num_bytes());
  const Tensor images = Tensor::empty(like.data.shape(), like.data.dtype());
  const ops::ImageMatrix matrix = {like.out_features, like.in_features};
  matrix.pack_codes(rows.data<uint8_t>(), images.data<uint8_t>());
  return images;
}

}  // namespace atom
