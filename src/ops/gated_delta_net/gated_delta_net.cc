#include "ops/gated_delta_net/gated_delta_net.h"

#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/gated_delta_net/gated_delta_net_kernels.h"
#include "ops/gated_delta_net/gated_delta_net_variants.h"
#include "ops/gated_delta_rule/gated_delta_rule.h"
#include "ops/quantize/quantize_variants.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

struct Call {
  const GatedDeltaNetParams& params;
  GatedDeltaNetArgs args;
};

using Launch = void(const Stream&, const Call&, Workspace& scratch);

void one_after_the_other(const Stream& stream, const Call& call, Workspace& scratch) {
  const GatedDeltaNetParams& params = call.params;
  {
    const Workspace::Scope scope(scratch);
    const Tensor convolved = scratch.tensor(params.qkv.shape(), params.qkv.dtype());
    causal_conv1d(stream,
                  {params.qkv, params.conv_weight, params.conv_state, params.batch, convolved});
    gated_delta_rule(stream,
                     {convolved,
                      params.num_k_heads,
                      params.a,
                      params.b,
                      params.a_log,
                      params.dt_bias,
                      params.state,
                      params.batch,
                      params.out},
                     scratch);
  }
  const Tensor& out = params.out;
  if (params.codes.defined()) {
    rms_norm_gated(
        stream, out, params.z, params.norm_weight, params.eps, out, params.codes, scratch);
  } else {
    rms_norm_gated(stream, out, params.z, params.norm_weight, params.eps, out);
  }
}

#ifdef ATOM_CUDA
bool fits_sm90(const Call& call) {
  const LinearWeight& gates = call.params.gate_weight;
  const bool takes_gates =
      !call.params.gate_x.defined() ||
      (gates.layout == WeightLayout::kRowMajor && gates.dtype() == call.params.qkv.dtype());
  return takes_gates && fits_gated_delta_net_sm90(call.args);
}

void on_sm90(const Stream& stream, const Call& call, Workspace&) {
  gated_delta_net_sm90(call.args, stream.queue().handle());
}

bool fits_resident(const Call& call) {
  return !call.params.gate_x.defined() && fits_gated_delta_net_resident_sm90(call.args);
}

void on_resident(const Stream& stream, const Call& call, Workspace&) {
  gated_delta_net_resident_sm90(call.args, stream.queue().handle());
}
#endif

constexpr Variant<Call, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"resident", CpuIsa::kScalar, fits_resident, on_resident, DeviceType::kCuda, kMixesRows},
    // The squares of a row are added in another order than by the operator of its own.
    {"sm90", CpuIsa::kScalar, fits_sm90, on_sm90, DeviceType::kCuda, kMixesRows},
    {"composed", CpuIsa::kScalar, nullptr, one_after_the_other, DeviceType::kCuda},
#endif
    {"composed", CpuIsa::kScalar, nullptr, one_after_the_other},
};

QuantizeArgs checked_result_codes(TensorCheck& check, const GatedDeltaNetParams& params) {
  if (!params.codes.defined()) return {};
  const QuantizeArgs codes = checked_codes(check, params.qkv.dtype(), params.codes);
  CHECK(codes.size == params.out.size(1));
  return codes;
}

// Sizes that the operators of the composed variant find as well.
GatedDeltaNetArgs checked_args(const Stream& stream, const GatedDeltaNetParams& params) {
  const DType dtype = params.qkv.dtype();
  TensorCheck check("gated_delta_net");
  check.tensor("qkv", params.qkv, {"T", "C"}, dtype)
      .tensor("z", params.z, {"T", "NV*DV"}, dtype)
      .contiguous("conv_weight", params.conv_weight, {"W", "C"}, DType::kFloat32)
      .contiguous("a_log", params.a_log, {"NV"}, DType::kFloat32)
      .contiguous("dt_bias", params.dt_bias, {"NV"}, DType::kFloat32)
      .contiguous("norm_weight", params.norm_weight, {"DV"}, DType::kFloat32)
      .contiguous("conv_state", params.conv_state, {"slots", "W-1", "C"}, dtype)
      .contiguous("state", params.state, {"slots", "NV", "DK", "DV"}, params.state.dtype())
      .tensor("out", params.out, {"T", "NV*DV"}, dtype);
  const bool has_projection = params.gate_x.defined();
  if (has_projection) {
    check.tensor("gate_x", params.gate_x, {"T", "H"}, dtype);
    CHECK(params.gate_weight.in_features == check.size("H"));
    CHECK(params.gate_weight.out_features == 2 * check.size("NV"));
  } else {
    check.tensor("a", params.a, {"T", "NV"}, dtype).tensor("b", params.b, {"T", "NV"}, dtype);
  }
  CHECK((params.state.dtype() == DType::kFloat32 || params.state.dtype() == DType::kBFloat16));
  CHECK(params.num_k_heads > 0);
  CHECK(check.size("NV") % params.num_k_heads == 0);
  CHECK(check.size("NV*DV") == check.size("NV") * check.size("DV"));
  CHECK(check.size("C") == 2 * params.num_k_heads * check.size("DK") + check.size("NV*DV"));
  CHECK(check.size("W-1") == check.size("W") - 1);
  return {
      .rule = {.qkv = params.qkv.raw_data(),
               .a = has_projection ? nullptr : params.a.raw_data(),
               .b = has_projection ? nullptr : params.b.raw_data(),
               .a_log = static_cast<const float*>(params.a_log.raw_data()),
               .dt_bias = static_cast<const float*>(params.dt_bias.raw_data()),
               .state = params.state.raw_data(),
               .out = params.out.raw_data(),
               .batch = checked_state_batch(
                   check, stream, params.batch, check.size("T"), check.size("slots")),
               .qkv_stride = params.qkv.stride(0),
               .out_stride = params.out.stride(0),
               .a_stride = has_projection ? 0 : params.a.stride(0),
               .b_stride = has_projection ? 0 : params.b.stride(0),
               .num_k_heads = params.num_k_heads,
               .num_v_heads = check.size("NV"),
               .head_k_dim = check.size("DK"),
               .head_v_dim = check.size("DV"),
               .element = element_of(dtype),
               .state_element = element_of(params.state.dtype())},
      .conv_weight = static_cast<const float*>(params.conv_weight.raw_data()),
      .conv_state = params.conv_state.raw_data(),
      .z = params.z.raw_data(),
      .norm_weight = static_cast<const float*>(params.norm_weight.raw_data()),
      .gate_x = has_projection ? params.gate_x.raw_data() : nullptr,
      .gate_weight = has_projection ? params.gate_weight.data.raw_data() : nullptr,
      .gate_x_stride = has_projection ? params.gate_x.stride(0) : 0,
      .hidden_size = params.gate_weight.in_features,
      .z_stride = params.z.stride(0),
      .conv_kernel_size = check.size("W"),
      .eps = params.eps,
      .codes = checked_result_codes(check, params),
  };
}

OperatorWork work_of(const GatedDeltaNetParams& params) {
  OperatorWork work = moves(params.qkv,
                            params.a,
                            params.b,
                            params.gate_x,
                            params.gate_weight.data,
                            params.z,
                            params.codes.defined() ? params.codes.values : params.out,
                            params.codes.scales);
  const int64_t num_sequences = params.batch.seq_lens.size(0);
  const int64_t state_size = params.state.num_elements() / params.state.size(0);
  const int64_t conv_bytes = params.conv_state.num_bytes() / params.conv_state.size(0);
  work.bytes += params.conv_weight.num_bytes() +
                2 * num_sequences * (state_size * dtype_size(params.state.dtype()) + conv_bytes);
  // S^T k, k u^T and S^T q.
  work.flops = 2 * params.qkv.size(0) *
               (3 * state_size + params.gate_weight.out_features * params.gate_weight.in_features);
  return work;
}

// With b and a in scratch memory in place of what they are products of.
GatedDeltaNetParams with_gates(const Stream& stream,
                               const GatedDeltaNetParams& params,
                               Workspace& scratch) {
  const int64_t num_heads = params.gate_weight.out_features / 2;
  const Tensor ba = scratch.tensor({params.gate_x.size(0), 2 * num_heads}, params.qkv.dtype());
  linear(stream, params.gate_x, params.gate_weight, Tensor(), ba, scratch);
  GatedDeltaNetParams result = params;
  result.b = ba.narrow(1, 0, num_heads);
  result.a = ba.narrow(1, num_heads, num_heads);
  result.gate_x = Tensor();
  result.gate_weight = LinearWeight();
  return result;
}

}  // namespace

void gated_delta_net(const Stream& stream, const GatedDeltaNetParams& params, Workspace& scratch) {
  const Call call = {params, checked_args(stream, params)};
  if (params.qkv.size(0) == 0 && !stream.is_dry_run()) return;
  // What is composed needs scratch memory, which dry runs assume, and traces itself.
  const bool is_composed =
      stream.is_dry_run() ||
      pick_variant(
          "gated_delta_net", kVariants, stream.device().type, call, stream.has_fixed_rows())
              .launch == one_after_the_other;
  if (is_composed && params.gate_x.defined()) {
    const Workspace::Scope scope(scratch);
    return gated_delta_net(stream, with_gates(stream, params, scratch), scratch);
  }
  if (is_composed) return one_after_the_other(stream, call, scratch);
  const auto& variant =
      pick_variant("gated_delta_net", kVariants, stream, call, [&] { return work_of(params); });
  variant.launch(stream, call, scratch);
}

bool gated_delta_net_by(std::string_view variant_name,
                        const Stream& stream,
                        const GatedDeltaNetParams& params,
                        Workspace& scratch) {
  const Call call = {params, checked_args(stream, params)};
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, call);
  if (variant == nullptr) return false;
  if (variant->launch == one_after_the_other && params.gate_x.defined()) {
    const Workspace::Scope scope(scratch);
    const GatedDeltaNetParams rest = with_gates(stream, params, scratch);
    one_after_the_other(stream, {rest, checked_args(stream, rest)}, scratch);
  } else {
    variant->launch(stream, call, scratch);
  }
  return true;
}

}  // namespace atom::ops
