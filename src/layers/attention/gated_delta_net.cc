#include "layers/attention/gated_delta_net.h"

#include "layers/linear/linear_base.h"
#include "ops/gated_delta_net/gated_delta_net.h"
#include "tensor/device_arena.h"

namespace atom {
namespace {

LayerState make_state(const BuildContext& build, const GatedDeltaNetSizes& sizes) {
  return {
      {{"conv", {sizes.conv_kernel_size - 1, sizes.conv_dim()}, build.dtype},
       {"recurrent", {sizes.num_v_heads, sizes.head_k_dim, sizes.head_v_dim}, build.state_dtype}}};
}

// The channels of the heads that this rank has, of queries, keys and values.
ParameterSlice conv_slice(const GatedDeltaNetSizes& sizes, const ShardPart& part) {
  const int64_t width = sizes.conv_kernel_size;
  ParameterSlice slice{"", {sizes.conv_dim(), 1, width}, {}};
  int64_t from = 0, to = 0;
  for (const int64_t channels : {sizes.key_dim(), sizes.key_dim(), sizes.value_dim()}) {
    const int64_t local = channels / part.world;
    slice.boxes.push_back(
        {{{from + part.rank * local, 0, 0}, {local, 1, width}}, {{to, 0, 0}, {local, 1, width}}});
    from += channels;
    to += local;
  }
  return slice;
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(BuildContext& build, const GatedDeltaNetSizes& sizes)
    : sizes_(sizes.of_one_rank(build.parallel.tensor_parallel_size)),
      states_(build.add_state(make_state(build, sizes_))),
      conv_weight_(DType::kFloat32,
                   Shape{sizes_.conv_dim(), 1, sizes_.conv_kernel_size},
                   {conv_slice(sizes, tensor_parallel_part(build))}),
      a_log_(DType::kFloat32, Shape{sizes.num_v_heads}, 0, tensor_parallel_part(build)),
      dt_bias_(DType::kFloat32, Shape{sizes.num_v_heads}, 0, tensor_parallel_part(build)),
      norm_weight_(DType::kFloat32, Shape{sizes.head_v_dim}),
      conv_columns_(Tensor::meta({sizes_.conv_kernel_size, sizes_.conv_dim()}, DType::kFloat32)),
      eps_(build.config.rms_norm_eps),
      leaves_codes_(build.fusions.rms_norm_quant) {
  conv_weight_.keep_on_host();
  register_parameter("conv1d.weight", &conv_weight_);
  register_parameter("A_log", &a_log_);
  register_parameter("dt_bias", &dt_bias_);
  register_parameter("norm.weight", &norm_weight_);
}

Status GatedDeltaNet::finish_load(const Stream& stream) {
  const int64_t channels = sizes_.conv_dim(), width = sizes_.conv_kernel_size;
  const Tensor columns = Tensor::empty({width, channels}, DType::kFloat32);
  const float* rows = conv_weight_.data().data<float>();
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t j = 0; j < width; ++j) {
      columns.data<float>()[j * channels + channel] = rows[channel * width + j];
    }
  }
  conv_columns_ = resident_copy(stream, columns);
  conv_weight_.release();
  return Module::finish_load(stream);
}

int64_t GatedDeltaNet::resident_bytes() const {
  return conv_columns_.num_bytes() + a_log_.num_bytes() + dt_bias_.num_bytes() +
         norm_weight_.num_bytes();
}

Activation GatedDeltaNet::forward(const Tensor& qkv,
                                  const Tensor& z,
                                  const DeltaNetGates& gates,
                                  const ActivationFormat& format,
                                  const ForwardContext& context) const {
  const std::span<const Tensor> states = context.state(states_);
  const int64_t num_tokens = qkv.size(0);
  const Tensor out = context.workspace.tensor({num_tokens, sizes_.value_dim()}, qkv.dtype());
  const bool has_codes = leaves_codes_ && format.has_codes() && !format.rows;
  const ops::QuantizedRows codes =
      has_codes ? make_codes(format, num_tokens, sizes_.value_dim(), context.workspace)
                : ops::QuantizedRows();
  ops::gated_delta_net(
      context.stream,
      {.qkv = qkv,
       .num_k_heads = sizes_.num_k_heads,
       .a = gates.a,
       .b = gates.b,
       .gate_x = gates.x,
       .gate_weight = gates.weight == nullptr ? ops::LinearWeight() : *gates.weight,
       .z = z,
       .conv_weight = conv_columns_,
       .a_log = a_log_.data(),
       .dt_bias = dt_bias_.data(),
       .norm_weight = norm_weight_.data(),
       .eps = eps_,
       .conv_state = states[0],
       .state = states[1],
       .batch = {context.batch.query_start,
                 context.batch.seq_lens,
                 context.state_slots,
                 context.token_state_slots,
                 context.batch.max_queries},
       .out = out,
       .codes = codes},
      context.workspace);
  if (has_codes) return {Tensor(), codes};
  return out;
}

}  // namespace atom
