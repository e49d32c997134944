#include "layers/moe/float_experts.h"

#include <algorithm>
#include <cstring>

#include "layers/moe/image_experts.h"
#include "layers/moe/resident_slices.h"
#include "layers/quant/pack_parameter.h"
#include "layers/quant/quantized_storage.h"

namespace atom {
namespace {

Shape shape_in_checkpoint(const ExpertStackLayout& layout) {
  const Shape& shape = layout.shape;
  return layout.is_transposed ? Shape{shape[0], shape[2], shape[1]} : shape;
}

// from [K, N] -> to [N, K], both contiguous on the CPU.
void transpose(const Stream& stream, const Tensor& from, const Tensor& to) {
  constexpr int64_t kTile = 64;
  const int64_t num_rows = to.size(0);
  const int64_t size = to.size(1);
  const int64_t element_size = dtype_size(from.dtype());
  const char* source = static_cast<const char*>(from.raw_data());
  char* target = static_cast<char*>(to.raw_data());
  stream.pool().parallel_for(num_rows, kTile, [&](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < size; first += kTile) {
      const int64_t last = std::min(first + kTile, size);
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t k = first; k < last; ++k) {
          std::memcpy(target + (n * size + k) * element_size,
                      source + (k * num_rows + n) * element_size,
                      element_size);
        }
      }
    }
  });
}

ops::LinearWeight meta_weight(const BuildContext& build,
                              const QuantScheme& scheme,
                              const ops::QuantFormat& format,
                              const ExpertStackLayout& stack) {
  const Shape& shape = stack.shape;
  if (!scheme.is_quantized()) {
    return ops::linear_weight_meta(
        shape[1], shape[2], build.dtype, ops::preferred_weight_layout(build.device));
  }
  return ops::quantized_weight_meta(
      shape[1], shape[2], format, expert_weight_layout(stack, format, build.device));
}

}  // namespace

Status check_online_experts(const QuantScheme& scheme,
                            const ExpertStackLayout& layout,
                            const std::string& name) {
  const ops::QuantFormat format = {scheme.weight_dtype, scheme.weights, 1};
  const int64_t group_size = format.group_size();
  if (group_size == 0 || layout.shape[2] % group_size == 0) return {};
  return unimplemented("{}: {} inputs do not divide into groups of {} that share a scale",
                       name,
                       layout.shape[2],
                       group_size);
}

FloatExperts::FloatExperts(const BuildContext& build,
                           const QuantScheme& scheme,
                           const ExpertStackLayout& layout)
    : scheme_(scheme),
      format_{scheme.weight_dtype, scheme.weights, 1},
      input_(expert_input(build, scheme)),
      out_features_(layout.shape[1]),
      in_features_(layout.shape[2]),
      is_transposed_(layout.is_transposed),
      weight_(build.dtype, shape_in_checkpoint(layout), layout.alternatives.front()) {
  for (size_t i = 1; i < layout.alternatives.size(); ++i) {
    weight_.add_alternative(layout.alternatives[i]);
  }
  register_parameter("weight", &weight_);
  if (scheme_.is_quantized()) weight_.keep_on_host();
  weights_.assign(layout.shape[0], meta_weight(build, scheme_, format_, layout));
}

int64_t FloatExperts::resident_bytes() const {
  int64_t bytes = 0;
  for (const ops::LinearWeight& weight : weights_) {
    bytes += weight.data.num_bytes() + (scheme_.is_quantized() ? weight.scales.num_bytes() : 0);
  }
  return bytes;
}

// The matrix of one expert, [out_features, in_features], in the parameter's memory.
Tensor FloatExperts::rows_of(const Stream& stream, int64_t expert) const {
  const Tensor slice = weight_.data().narrow(0, expert, 1);
  const Tensor rows = slice.view({out_features_, in_features_});
  if (!is_transposed_) return rows;
  const Tensor stored = Tensor::empty({in_features_, out_features_}, rows.dtype());
  if (rows.device().is_cpu()) {
    std::memcpy(stored.raw_data(), rows.raw_data(), rows.num_bytes());
    transpose(stream, stored, rows);
    return rows;
  }
  const Tensor turned = Tensor::empty(rows.shape(), rows.dtype());
  stream.queue().copy(stored.raw_data(), rows.raw_data(), rows.num_bytes());
  stream.queue().synchronize();
  transpose(stream, stored, turned);
  stream.queue().copy(rows.raw_data(), turned.raw_data(), rows.num_bytes());
  stream.queue().synchronize();
  return rows;
}

void FloatExperts::quantize(const Stream& stream) {
  const Stream host(&stream.pool());
  std::vector<Tensor> codes, scales;
  for (size_t expert = 0; expert < weights_.size(); ++expert) {
    ops::LinearWeight& weight = weights_[expert];
    const bool as_images = weight.layout == ops::WeightLayout::kImages;
    const ops::LinearWeight rows =
        quantize_consumed_rows(host,
                               rows_of(host, static_cast<int64_t>(expert)),
                               format_,
                               as_images ? ops::WeightLayout::kRowMajor : weight.layout);
    codes.push_back(as_images ? images_of_rows(rows.data, weight) : rows.data);
    scales.push_back(rows.scales);
    if (!as_images) weight = rows;
  }
  if (stream.device().is_cpu()) return;
  // Kernels of a device read slices of one tensor.
  codes = resident_slices(stream, codes);
  scales = resident_slices(stream, scales);
  for (size_t expert = 0; expert < weights_.size(); ++expert) {
    weights_[expert].data = codes[expert];
    weights_[expert].scales = scales[expert];
  }
}

Status FloatExperts::finish_load(const Stream& stream) {
  if (scheme_.is_quantized()) {
    quantize(stream);
  } else {
    for (size_t expert = 0; expert < weights_.size(); ++expert) {
      weights_[expert] = pack_consumed_rows(stream, rows_of(stream, static_cast<int64_t>(expert)));
    }
  }
  weight_.release();
  return {};
}

}  // namespace atom
