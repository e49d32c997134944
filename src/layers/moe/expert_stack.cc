#include "layers/moe/expert_stack.h"

#include <algorithm>
#include <cstring>

#include "layers/quant/pack_parameter.h"

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

}  // namespace

ExpertStack::ExpertStack(const BuildContext& build, const ExpertStackLayout& layout)
    : out_features_(layout.shape[1]),
      in_features_(layout.shape[2]),
      is_transposed_(layout.is_transposed),
      weight_(build.dtype, shape_in_checkpoint(layout), layout.alternatives.front()) {
  for (size_t i = 1; i < layout.alternatives.size(); ++i) {
    weight_.add_alternative(layout.alternatives[i]);
  }
  register_parameter("weight", &weight_);
  if (!layout.bias.empty()) {
    bias_ = std::make_unique<Parameter>(
        build.dtype, Shape{layout.shape[0], out_features_}, layout.bias);
    register_parameter("bias", bias_.get());
  }
  for (int64_t expert = 0; expert < layout.shape[0]; ++expert) {
    weights_.push_back(ops::linear_weight_meta(
        out_features_, in_features_, build.dtype, ops::preferred_weight_layout(build.device)));
  }
}

int64_t ExpertStack::resident_bytes() const {
  int64_t bytes = bias_ == nullptr ? 0 : bias_->num_bytes();
  for (const ops::LinearWeight& weight : weights_) bytes += weight.data.num_bytes();
  return bytes;
}

// The matrix of one expert, [out_features, in_features], in the parameter's memory.
Tensor ExpertStack::rows_of(const Stream& stream, int64_t expert) const {
  const Tensor slice = weight_.data().narrow(0, expert, 1);
  const Tensor rows = slice.view({out_features_, in_features_});
  if (!is_transposed_) return rows;
  const Tensor stored = Tensor::empty({in_features_, out_features_}, rows.dtype());
  if (stream.device().is_cpu()) {
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

Status ExpertStack::finish_load(const Stream& stream) {
  for (size_t expert = 0; expert < weights_.size(); ++expert) {
    weights_[expert] = pack_consumed_rows(stream, rows_of(stream, static_cast<int64_t>(expert)));
  }
  weight_.release();
  return {};
}

}  // namespace atom
