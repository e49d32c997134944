#include "ops/fused_moe/expert_images.h"

#include <cstring>

#include "base/check.h"
#include "tensor/device_capability.h"

namespace atom::ops {
namespace {

constexpr int64_t kBlockColumns = kImageColumns / kImageBlocks;

// copy(where 16 bytes of rows are, and of images).
template <typename Copy>
void for_codes(const ImageMatrix& matrix, Copy&& copy) {
  CHECK(matrix.num_rows % kImageRows == 0);
  CHECK(matrix.num_columns % kImageColumns == 0);
  const int64_t num_blocks = matrix.num_columns / kBlockColumns;
  for (int64_t row = 0; row < matrix.num_rows; ++row) {
    for (int64_t block = 0; block < num_blocks; ++block) {
      const int in_image =
          image_offset(static_cast<int>(row % kImageRows), static_cast<int>(block % 4));
      copy((row * num_blocks + block) * kImageVectorSize,
           image_index(row, block, matrix.num_columns) * kImageSize + in_image);
    }
  }
}

// 16 bytes, by words.
template <typename Convert>
void convert(const uint8_t* from, uint8_t* to, Convert&& convert_word) {
  uint32_t words[kImageVectorSize / sizeof(uint32_t)];
  std::memcpy(words, from, sizeof words);
  for (uint32_t& word : words) word = convert_word(word);
  std::memcpy(to, words, sizeof words);
}

}  // namespace

bool divides_into_images(int64_t hidden_size, int64_t intermediate_size) {
  const auto divides = [](int64_t size) {
    return size > 0 && size % kImageColumns == 0 && size <= kMostImageColumns;
  };
  return divides(hidden_size) && divides(intermediate_size);
}

bool keeps_expert_images(Device device,
                         DType dtype,
                         const GatedActivation& activation,
                         int64_t hidden_size,
                         int64_t intermediate_size) {
  const bool is_known = activation.kind == GatedActivationKind::kSilu ||
                        activation.kind == GatedActivationKind::kClampedSwiGlu;
  return is_known && dtype == DType::kBFloat16 && is_hopper(device) &&
         divides_into_images(hidden_size, intermediate_size);
}

void ImageMatrix::pack_codes(const uint8_t* rows, uint8_t* images) const {
  for_codes(*this, [&](int64_t in_rows, int64_t in_images) {
    convert(rows + in_rows, images + in_images, image_codes);
  });
}

void ImageMatrix::unpack_codes(const uint8_t* images, uint8_t* rows) const {
  for_codes(*this, [&](int64_t in_rows, int64_t in_images) {
    convert(images + in_images, rows + in_rows, row_codes);
  });
}

}  // namespace atom::ops
