#include "ops/fused_moe/moe_gpu_runs.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "ops/fused_moe/expert_images.h"

namespace atom::ops::moe_test {
namespace {

Tensor slice(const Tensor& stack, int64_t e) {
  const Tensor one = stack.narrow(0, e, 1);
  if (stack.rank() == 2) return one.view({stack.size(1)});
  if (stack.rank() == 3) return one.view({stack.size(1), stack.size(2)});
  return one.view({stack.size(1), stack.size(2), stack.size(3)});
}

Tensor stack(const std::vector<StoredRows>& stored, Tensor StoredRows::*part) {
  const Tensor& first = stored.front().*part;
  const auto count = static_cast<int64_t>(stored.size());
  const Shape shape =
      first.rank() == 1 ? Shape{count, first.size(0)} : Shape{count, first.size(0), first.size(1)};
  const Tensor all = Tensor::zeros(shape, first.dtype());
  for (int64_t e = 0; e < count; ++e) {
    const Tensor& one = stored[e].*part;
    std::memcpy(
        static_cast<char*>(all.raw_data()) + e * one.num_bytes(), one.raw_data(), one.num_bytes());
  }
  return all;
}

}  // namespace

StackedWeights::StackedWeights(const std::vector<LinearWeight>& weights,
                               const std::vector<StoredRows>& stored,
                               WeightLayout layout)
    : like_(weights.front()), data_(stack(stored, &StoredRows::data)) {
  like_.layout = layout;
  if (stored.front().scales.defined()) scales_ = stack(stored, &StoredRows::scales);
  if (layout == WeightLayout::kImages) make_images();
}

std::vector<LinearWeight> StackedWeights::placed(const Placed& at) const {
  std::vector<LinearWeight> weights;
  const Tensor data = at(data_), scales = scales_.defined() ? at(scales_) : Tensor();
  for (int64_t e = 0; e < data.size(0); ++e) {
    LinearWeight weight = like_;
    weight.data = slice(data, e);
    if (scales.defined()) weight.scales = slice(scales, e);
    weights.push_back(weight);
  }
  return weights;
}

void StackedWeights::make_images() {
  const int64_t count = data_.size(0);
  const ImageMatrix matrix{like_.out_features, like_.in_features};
  const Shape shape =
      quantized_weight_meta(matrix.num_rows, matrix.num_columns, kFormats[3], like_.layout)
          .data.shape();
  const Tensor images = Tensor::zeros({count, shape[0], shape[1], shape[2]}, DType::kUInt8);
  const auto part = [](const Tensor& stack, int64_t e) {
    return static_cast<uint8_t*>(stack.narrow(0, e, 1).raw_data());
  };
  for (int64_t e = 0; e < count; ++e) matrix.pack_codes(part(data_, e), part(images, e));
  data_ = images;
}

bool run_on_gpu(const FusedMoeVariant& variant,
                const Layer& layer,
                const StackedWeights& gate_up,
                const StackedWeights& down,
                const Tensor& y) {
  ThreadPool pool(1);
  std::vector<Tensor> tensors = {layer.x,
                                 layer.ids,
                                 layer.weights,
                                 layer.gate_up_bias,
                                 layer.down_bias,
                                 layer.places,
                                 y,
                                 layer.x_codes.values,
                                 layer.x_codes.scales};
  for (const StackedWeights* stack : {&gate_up, &down}) {
    for (const Tensor& tensor : stack->tensors()) tensors.push_back(tensor);
  }
  return run_variant(variant.name, pool, tensors, [&](const Placed& at) {
    const std::vector<LinearWeight> gate_up_there = gate_up.placed(at),
                                    down_there = down.placed(at);
    const auto place = [&](const Tensor& tensor) { return tensor.defined() ? at(tensor) : tensor; };
    const ExpertWeights experts{gate_up_there,
                                down_there,
                                place(layer.gate_up_bias),
                                place(layer.down_bias),
                                place(layer.places),
                                layer.options.input,
                                layer.options.input};
    const Tensor x = at(layer.x), ids = at(layer.ids), weights = at(layer.weights), out = at(y);
    FusedMoeCall call{x, ids, weights, experts, layer.options.activation, out};
    if (layer.x_codes.defined()) {
      call.x_codes = layer.x_codes;
      call.x_codes.values = at(layer.x_codes.values);
      call.x_codes.scales = at(layer.x_codes.scales);
    }
    if (!runs(variant, at.stream().device().type, call)) return false;
    Workspace measure;
    variant.launch(Stream::dry_run(at.stream().device()), call, measure);
    Workspace scratch(at.stream(), measure.peak_size());
    // The second time with counters as the first one left them.
    for (int i = 0; i < 2; ++i) variant.launch(at.stream(), call, scratch);
    at.stream().queue().synchronize();
    return true;
  });
}

std::vector<WeightLayout> layouts_of(const Sizes& sizes, const std::optional<QuantFormat>& format) {
  std::vector<WeightLayout> layouts = {WeightLayout::kRowMajor};
  if (format && format->dtype == QuantDType::kFloat4E2M1 &&
      divides_into_images(sizes.hidden_size, sizes.intermediate_size)) {
    layouts.push_back(WeightLayout::kImages);
  }
  return layouts;
}

bool reads_codes(const FusedMoeVariant& variant) {
  constexpr std::string_view kNames[] = {
      "whole-float8", "wide-float8", "skinny", "skinny-more", "one", "mixed"};
  return std::find(std::begin(kNames), std::end(kNames), variant.name) != std::end(kNames);
}

}  // namespace atom::ops::moe_test
