#include "layers/moe/expert_stack.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "layers/moe/quantized_experts.h"
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

Shape transposed(Shape shape) {
  std::swap(shape[1], shape[2]);
  return shape;
}

Box transposed(const Box& box) {
  return {transposed(box.begin), transposed(box.size)};
}

// The same of one tensor [num_experts, out_features, in_features] of all experts.
ExpertStackLayout as_rows(ExpertStackLayout layout) {
  CHECK(layout.alternatives.back().front().id.empty());
  ParameterSlice slice = layout.alternatives.back().front();
  if (std::exchange(layout.is_transposed, false)) {
    slice.source_shape = transposed(slice.source_shape);
    for (BoxCopy& box : slice.boxes) box = {transposed(box.source), transposed(box.target)};
  }
  layout.alternatives = {{std::move(slice)}};
  return layout;
}

// In the model's dtype.
class PlainExperts : public ExpertMatrices {
 public:
  PlainExperts(const BuildContext& build, const ExpertStackLayout& layout);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;
  std::span<const ops::LinearWeight> weights() const override { return weights_; }

 private:
  Tensor rows_of(const Stream& stream, int64_t expert) const;

  int64_t out_features_;
  int64_t in_features_;
  bool is_transposed_;
  Parameter weight_;  // the stack as the checkpoint has it; then empty
  std::vector<ops::LinearWeight> weights_;
};

PlainExperts::PlainExperts(const BuildContext& build, const ExpertStackLayout& layout)
    : out_features_(layout.shape[1]),
      in_features_(layout.shape[2]),
      is_transposed_(layout.is_transposed),
      weight_(build.dtype, shape_in_checkpoint(layout), layout.alternatives.front()) {
  for (size_t i = 1; i < layout.alternatives.size(); ++i) {
    weight_.add_alternative(layout.alternatives[i]);
  }
  register_parameter("weight", &weight_);
  for (int64_t expert = 0; expert < layout.shape[0]; ++expert) {
    weights_.push_back(ops::linear_weight_meta(
        out_features_, in_features_, build.dtype, ops::preferred_weight_layout(build.device)));
  }
}

int64_t PlainExperts::resident_bytes() const {
  int64_t bytes = 0;
  for (const ops::LinearWeight& weight : weights_) bytes += weight.data.num_bytes();
  return bytes;
}

// The matrix of one expert, [out_features, in_features], in the parameter's memory.
Tensor PlainExperts::rows_of(const Stream& stream, int64_t expert) const {
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

Status PlainExperts::finish_load(const Stream& stream) {
  for (size_t expert = 0; expert < weights_.size(); ++expert) {
    weights_[expert] = pack_consumed_rows(stream, rows_of(stream, static_cast<int64_t>(expert)));
  }
  weight_.release();
  return {};
}

// The scheme of the checkpoint's matrices, as that of the first expert's.
Result<QuantScheme> choose_scheme(const BuildContext& build, const ExpertStackLayout& layout) {
  std::string first_name;
  QuantScheme scheme;
  for (const ParameterSlice& slice : layout.alternatives.front()) {
    const std::string& id = slice.id;
    if (!id.empty() && !id.starts_with("0.") && !id.starts_with("shared.")) continue;
    const std::string name = source_module(build.packed_modules_mapping, build.module_name, id);
    const QuantScheme other = build.config.quantization.scheme_of(name);
    if (first_name.empty()) {
      first_name = name;
      scheme = other;
    }
    if (other == scheme) continue;
    return unimplemented(
        "config.json: {} ({}) and {} ({}) are quantized differently; they are computed as one "
        "layer and have to agree",
        first_name,
        scheme.to_string(),
        name,
        other.to_string());
  }
  return scheme;
}

std::unique_ptr<ExpertMatrices> make_matrices(BuildContext& build,
                                              const ExpertStackLayout& layout) {
  const Result<QuantScheme> scheme = choose_scheme(build, layout);
  Status status = scheme.status();
  if (status.ok() && scheme->is_quantized()) {
    // Codes are stored by rows of outputs, whatever floats are.
    const bool is_mxfp4 = build.config.quantization.method == "mxfp4";
    const bool is_one_tensor = layout.alternatives.back().front().id.empty();
    if (is_mxfp4 && !is_one_tensor) {
      build.fail(unimplemented("{}: experts in MXFP4 beside shared ones are not supported",
                               build.module_name));
      return std::make_unique<PlainExperts>(build, layout);
    }
    const ExpertStackLayout rows = is_mxfp4 ? as_rows(layout) : layout;
    status = check_quantized_experts(*scheme, rows, build.module_name);
    if (status.ok()) return std::make_unique<QuantizedExperts>(build, *scheme, rows, is_mxfp4);
  }
  if (!status.ok()) build.fail(status);
  return std::make_unique<PlainExperts>(build, layout);
}

}  // namespace

ExpertStack::ExpertStack(BuildContext& build, const ExpertStackLayout& layout)
    : matrices_(make_matrices(build, layout)) {
  register_module("", matrices_.get());
  if (layout.bias.empty()) return;
  bias_ = std::make_unique<Parameter>(
      build.dtype, Shape{layout.shape[0], layout.shape[1]}, layout.bias);
  register_parameter("bias", bias_.get());
}

int64_t ExpertStack::resident_bytes() const {
  return matrices_->resident_bytes() + (bias_ == nullptr ? 0 : bias_->num_bytes());
}

}  // namespace atom
