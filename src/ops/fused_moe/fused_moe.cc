#include "ops/fused_moe/fused_moe.h"

#include <cmath>

#include "ops/fused_moe/fused_moe_variants.h"
#include "ops/linear/linear_variants.h"
#include "tensor/dispatch.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

template <ActivateKernel* activate>
void grouped_by(const Stream& stream, const FusedMoeCall& call, Workspace& scratch) {
  fused_moe_grouped(activate, stream, call, scratch);
}

#ifdef ATOM_CUDA
// Elsewhere on a GPU x is never quantized, which is as exact as the call asks for, or more.
template <bool (*fits)(const FusedMoeCall&)>
bool takes_codes(const FusedMoeCall& call) {
  const auto is_float8 = [](const CodeFormat& input) {
    return input.is_quantized() && input.dtype == DType::kFloat8E4M3;
  };
  return is_float8(call.experts.gate_up_input) && is_float8(call.experts.down_input) && fits(call);
}
#endif

constexpr FusedMoeVariant kVariants[] = {
#ifdef ATOM_CUDA
    {"wide", CpuIsa::kScalar, fits_fused_moe_wide, fused_moe_wide, DeviceType::kCuda, kMixesRows},
    {"skinny-more",
     CpuIsa::kScalar,
     takes_codes<fits_fused_moe_skinny_more>,
     fused_moe_skinny,
     DeviceType::kCuda},
    {"whole-float8",
     CpuIsa::kScalar,
     takes_codes<fits_fused_moe_whole_float8>,
     fused_moe_whole_float8,
     DeviceType::kCuda,
     kMixesRows},
    {"wide-float8",
     CpuIsa::kScalar,
     takes_codes<fits_fused_moe_wide_float8>,
     fused_moe_wide_float8,
     DeviceType::kCuda,
     kMixesRows},
    {"one",
     CpuIsa::kScalar,
     takes_codes<fits_fused_moe_one>,
     fused_moe_one,
     DeviceType::kCuda,
     kMixesRows},
    {"skinny",
     CpuIsa::kScalar,
     takes_codes<fits_fused_moe_skinny>,
     fused_moe_skinny,
     DeviceType::kCuda},
    {"mixed",
     CpuIsa::kScalar,
     takes_codes<fits_fused_moe_mixed>,
     fused_moe_mixed,
     DeviceType::kCuda,
     kMixesRows},
    {"one-rows",
     CpuIsa::kScalar,
     fits_fused_moe_one_rows,
     fused_moe_one_rows,
     DeviceType::kCuda,
     kMixesRows},
    {"one-images",
     CpuIsa::kScalar,
     fits_fused_moe_one_images,
     fused_moe_one_images,
     DeviceType::kCuda,
     kMixesRows},
    {"rows-early",
     CpuIsa::kScalar,
     fits_fused_moe_rows_early,
     fused_moe_rows_early,
     DeviceType::kCuda,
     kMixesRows},
    {"terms",
     CpuIsa::kScalar,
     fits_fused_moe_terms,
     fused_moe_terms,
     DeviceType::kCuda,
     kMixesRows},
    {"rows", CpuIsa::kScalar, fits_fused_moe_rows, fused_moe_rows, DeviceType::kCuda},
    {"stream", CpuIsa::kScalar, fits_fused_moe_stream, fused_moe_stream, DeviceType::kCuda},
    {"cuda", CpuIsa::kScalar, nullptr, fused_moe_generic, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, grouped_by<activate_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, grouped_by<activate_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, fused_moe_reference},
};

DType dtype_or_float32(const Tensor& tensor, DType dtype) {
  return tensor.dtype() == DType::kFloat32 ? DType::kFloat32 : dtype;
}

void check_bias(
    TensorCheck& check, const char* name, const Tensor& bias, const char* size, DType x) {
  if (bias.defined()) check.contiguous(name, bias, {"E", size}, dtype_or_float32(bias, x));
}

// On the CPU, where inputs are quantized as they say.
bool scales_meet(const CodeFormat& input, const LinearWeight& weight) {
  const int64_t group_size = QuantFormat{.granularity = input.granularity}.group_size();
  return group_size == 0 || group_size == weight.group_size || groups_of_a_scale(input, weight) > 1;
}

void check_codes(const FusedMoeCall& call) {
  const QuantizedRows& codes = call.x_codes;
  if (!codes.defined()) return;
  const CodeFormat& input = call.experts.gate_up_input;
  CHECK(codes.granularity == input.granularity);
  CHECK(codes.values.dtype() == input.dtype);
  CHECK(codes.is_static == input.static_scale.defined());
  CHECK(codes.values.size(0) == call.num_tokens());
  CHECK((!call.x.device().is_cpu() || groups_of_a_scale(input, call.experts.gate_up[0]) == 1));
}

void check_call(const FusedMoeCall& call) {
  const ExpertWeights& experts = call.experts;
  const DType dtype = call.x.dtype();
  dispatch_float(dtype, [](auto) {});
  CHECK(!experts.down.empty());
  CHECK(experts.gate_up.size() == experts.down.size());
  TensorCheck check("fused_moe");
  check.tensor("x", call.x, {"T", "H"}, dtype)
      .tensor("y", call.y, {"T", "H"}, dtype_or_float32(call.y, dtype))
      .contiguous("ids", call.ids, {"T", "k"}, DType::kInt32)
      .contiguous("weights", call.weights, {"T", "k"}, DType::kFloat32);
  check_codes(call);
  check_bias(check, "gate_up_bias", experts.gate_up_bias, "gate_up_size", dtype);
  check_bias(check, "down_bias", experts.down_bias, "H", dtype);
  if (experts.gate_up_bias.defined() || experts.down_bias.defined()) {
    CHECK(check.size("E") == call.num_experts());
  }
  if (experts.gate_up_bias.defined())
    CHECK(check.size("gate_up_size") == 2 * call.intermediate_size());
  if (experts.places.defined()) {
    check.contiguous("places", experts.places, {"ids"}, DType::kInt32);
  }
  for (size_t e = 0; e < experts.down.size(); ++e) {
    const LinearWeight& gate_up = experts.gate_up[e];
    const LinearWeight& down = experts.down[e];
    CHECK(gate_up.in_features == call.hidden_size());
    CHECK(gate_up.out_features == 2 * call.intermediate_size());
    CHECK(down.in_features == call.intermediate_size());
    CHECK(down.out_features == call.hidden_size());
    CHECK(gate_up.dtype() == experts.gate_up[0].dtype());
    CHECK(down.dtype() == experts.down[0].dtype());
    CHECK(gate_up.layout == down.layout);
    CHECK((gate_up.is_quantized() || !experts.gate_up_input.is_quantized()));
    CHECK((down.is_quantized() || !experts.down_input.is_quantized()));
    if (!call.x.device().is_cpu()) continue;
    CHECK(scales_meet(experts.gate_up_input, gate_up));
    CHECK(scales_meet(experts.down_input, down));
  }
}

// With as many different experts as an even choice has on average.
OperatorWork work_of(const FusedMoeCall& call) {
  const auto num_experts = static_cast<double>(call.num_experts());
  const auto num_choices = static_cast<double>(call.ids.num_elements());
  const double num_active = num_experts * (1 - std::pow(1 - 1 / num_experts, num_choices));
  const int64_t expert_size = moves(call.experts.gate_up[0].data, call.experts.down[0].data).bytes;
  return {.bytes = moves(call.x, call.y).bytes +
                   static_cast<int64_t>(num_active * static_cast<double>(expert_size)),
          .flops = 6 * call.ids.num_elements() * call.hidden_size() * call.intermediate_size()};
}

}  // namespace

int64_t fused_moe_row_tokens(int64_t hidden_size, int64_t intermediate_size) {
  // Latencies of several kernels are most of the time of small experts, and a tenth of it of the
  // largest ones: on an H200 one token of Qwen3-30B's (4.7 MB) takes 23.4 us by "skinny" and 14.3
  // by "one", four take 44.0 and 37.8; GLM-4.5-Air's (17 MB) 49.5 and 37.3, 74 and 67 with two, and
  // as long with three; DeepSeek-V3's (44 MB) 92 and 86, and as long with two.
  constexpr int64_t kBytesOfFour = 8 << 20, kBytesOfTwo = 32 << 20;
  const int64_t expert_bytes = 3 * hidden_size * intermediate_size;
  if (expert_bytes > kBytesOfTwo) return 1;
  return expert_bytes > kBytesOfFour ? 2 : 4;
}

bool fused_moe_has_float8_activations(Device device,
                                      [[maybe_unused]] DType dtype,
                                      [[maybe_unused]] int64_t hidden_size,
                                      [[maybe_unused]] int64_t intermediate_size,
                                      [[maybe_unused]] const GatedActivation& activation) {
  if (device.is_cpu()) return true;
#ifdef ATOM_CUDA
  return dtype == DType::kBFloat16 &&
         has_fused_moe_mixed(device, hidden_size, intermediate_size, activation);
#else
  return false;
#endif
}

int32_t place_of(const ExpertWeights& experts, int32_t id) {
  const auto num_places = static_cast<int64_t>(experts.down.size());
  const Tensor& places = experts.places;
  const int64_t num_ids = places.defined() ? places.size(0) : num_places;
  if (id < 0 || id >= num_ids) return -1;
  const int32_t place = places.defined() ? places.data<int32_t>()[id] : id;
  return place < num_places ? place : -1;
}

Tensor expert_bias(const Tensor& biases, int64_t expert) {
  if (!biases.defined()) return {};
  return biases.narrow(0, expert, 1).view({biases.size(1)});
}

std::span<const FusedMoeVariant> fused_moe_variants() {
  return kVariants;
}

void fused_moe(const Stream& stream,
               const Tensor& x,
               const Tensor& ids,
               const Tensor& weights,
               const ExpertWeights& experts,
               const GatedActivation& activation,
               const Tensor& y,
               Workspace& scratch,
               const QuantizedRows& x_codes) {
  const FusedMoeCall call{x, ids, weights, experts, activation, y, x_codes};
  check_call(call);
  CHECK((!stream.device().is_cpu() || experts.down[0].layout != WeightLayout::kImages));
  if (call.num_tokens() == 0) return;
  const auto& variant =
      pick_variant("fused_moe", kVariants, stream, call, [&] { return work_of(call); });
  variant.launch(stream, call, scratch);
}

}  // namespace atom::ops
