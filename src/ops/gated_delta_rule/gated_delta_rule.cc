#include "ops/gated_delta_rule/gated_delta_rule.h"

#include <vector>

#include "ops/gated_delta_rule/chunked/chunked_sm90.h"
#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"
#include "ops/gated_delta_rule/gated_delta_rule_variants.h"
#include "ops/gated_delta_rule/recurrent/recurrent_cuda.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// The value heads of a key head share its normalized queries and keys and their products, so a task
// takes all of them, unless that leaves threads without work.
int64_t v_heads_per_task(const GatedDeltaRuleArgs& args, int64_t num_threads) {
  const bool enough = args.batch.num_sequences * args.num_k_heads >= 2 * num_threads;
  return enough || num_threads == 1 ? args.num_v_heads / args.num_k_heads : 1;
}

template <GatedDeltaRuleKernel* kernel>
void on_pool(const Stream& stream, const GatedDeltaRuleArgs& args, Workspace&) {
  const int64_t heads = v_heads_per_task(args, stream.pool().num_threads());
  const int64_t tasks = args.num_v_heads / heads;
  stream.pool().parallel_for(args.batch.num_sequences * tasks, 1, [&](int64_t begin, int64_t end) {
    const bool is_wide = args.state_element == Element::kFloat32;
    std::vector<float> wide(is_wide ? 0 : heads * args.head_k_dim * args.head_v_dim);
    for (int64_t i = begin; i < end; ++i) {
      kernel(args,
             {.sequence = i / tasks,
              .first_v_head = i % tasks * heads,
              .num_v_heads = heads,
              .wide = wide.data()});
    }
  });
}

bool fits_vectors(const GatedDeltaRuleArgs& args) {
  return args.head_k_dim % 16 == 0 && args.head_v_dim % 16 == 0 &&
         args.head_k_dim <= kDeltaMaxHeadDim && args.head_v_dim <= kDeltaMaxHeadDim;
}

#ifdef ATOM_CUDA
bool fits_cuda(const GatedDeltaRuleArgs& args) {
  return args.head_k_dim <= kDeltaMaxHeadDim;
}

// One token after the other.
void on_queue(const Stream& stream, const GatedDeltaRuleArgs& args, Workspace&) {
  if (stream.is_dry_run() || args.batch.num_tokens == 0) return;
  if (fits_recurrent_cuda(args)) {
    recurrent_cuda(args, /*max_tokens=*/0, stream.queue().handle());
  } else {
    gated_delta_rule_cuda(args, stream.queue().handle());
  }
}

bool fits_chunks(const GatedDeltaRuleArgs& args) {
  return !args.by_tokens && fits_chunked_sm90(args);
}

bool has_chunks(const GatedDeltaRuleArgs& args) {
  const int64_t most = args.batch.max_queries;
  return most == 0 || most >= kDeltaChunkMinTokens;
}

// Long sequences by chunks.
template <decltype(chunked_sm90)* by_chunks>
void on_sm90(const Stream& stream, const GatedDeltaRuleArgs& args, Workspace& scratch) {
  if (args.batch.num_tokens == 0) return;
  const Workspace::Scope scope(scratch);
  const int64_t size = has_chunks(args) ? chunked_sm90_workspace_size(args) : 0;
  const Tensor records = scratch.tensor({size}, DType::kUInt8);
  if (stream.is_dry_run()) return;
  recurrent_cuda(args, kDeltaChunkMinTokens, stream.queue().handle());
  if (!has_chunks(args)) return;
  const bool launched = by_chunks(args, records.raw_data(), stream.queue().handle());
  CHECK(launched);
}
#endif

using Launch = void(const Stream&, const GatedDeltaRuleArgs&, Workspace& scratch);

constexpr Variant<GatedDeltaRuleArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"beside", CpuIsa::kScalar, fits_chunks, on_sm90<chunked_beside_sm90>, DeviceType::kCuda},
    {"sm90", CpuIsa::kScalar, fits_chunks, on_sm90<chunked_sm90>, DeviceType::kCuda},
    {"cuda", CpuIsa::kScalar, fits_cuda, on_queue, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, fits_vectors, on_pool<gated_delta_rule_avx512>},
    {"avx2", CpuIsa::kAvx2, fits_vectors, on_pool<gated_delta_rule_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<gated_delta_rule_reference>},
};

void check_tensors(TensorCheck& check, const GatedDeltaRuleParams& params) {
  const DType dtype = params.qkv.dtype();
  check.tensor("qkv", params.qkv, {"T", "QKV"}, dtype)
      .tensor("a", params.a, {"T", "NV"}, dtype)
      .tensor("b", params.b, {"T", "NV"}, dtype)
      .contiguous("a_log", params.a_log, {"NV"}, DType::kFloat32)
      .contiguous("dt_bias", params.dt_bias, {"NV"}, DType::kFloat32)
      .contiguous("state", params.state, {"slots", "NV", "DK", "DV"}, params.state.dtype())
      .tensor("out", params.out, {"T", "NV*DV"}, dtype);
  CHECK((params.state.dtype() == DType::kFloat32 || params.state.dtype() == DType::kBFloat16));
  CHECK(params.num_k_heads > 0);
  CHECK(check.size("NV") % params.num_k_heads == 0);
  CHECK(check.size("NV*DV") == check.size("NV") * check.size("DV"));
  CHECK(check.size("QKV") == 2 * params.num_k_heads * check.size("DK") + check.size("NV*DV"));
}

GatedDeltaRuleArgs checked_args(const Stream& stream, const GatedDeltaRuleParams& params) {
  TensorCheck check("gated_delta_rule");
  check_tensors(check, params);
  return {
      .qkv = params.qkv.raw_data(),
      .a = params.a.raw_data(),
      .b = params.b.raw_data(),
      .a_log = static_cast<const float*>(params.a_log.raw_data()),
      .dt_bias = static_cast<const float*>(params.dt_bias.raw_data()),
      .state = params.state.raw_data(),
      .out = params.out.raw_data(),
      .batch =
          checked_state_batch(check, stream, params.batch, check.size("T"), check.size("slots")),
      .qkv_stride = params.qkv.stride(0),
      .out_stride = params.out.stride(0),
      .a_stride = params.a.stride(0),
      .b_stride = params.b.stride(0),
      .num_k_heads = params.num_k_heads,
      .num_v_heads = check.size("NV"),
      .head_k_dim = check.size("DK"),
      .head_v_dim = check.size("DV"),
      .element = element_of(params.qkv.dtype()),
      .state_element = element_of(params.state.dtype()),
      .by_tokens = stream.has_fixed_rows(),
  };
}

OperatorWork work_of(const GatedDeltaRuleParams& params) {
  OperatorWork work = moves(params.qkv, params.a, params.b, params.out);
  const int64_t state_size = params.state.num_elements() / params.state.size(0);
  const int64_t num_sequences = params.batch.seq_lens.size(0);
  work.bytes += 2 * num_sequences * state_size * dtype_size(params.state.dtype());
  // S^T k, k u^T and S^T q.
  work.flops = 2 * 3 * params.qkv.size(0) * state_size;
  return work;
}

}  // namespace

void gated_delta_rule(const Stream& stream,
                      const GatedDeltaRuleParams& params,
                      Workspace& scratch) {
  const GatedDeltaRuleArgs args = checked_args(stream, params);
  if (stream.is_dry_run() && stream.device().type == DeviceType::kCpu) return;
  const auto& variant =
      pick_variant("gated_delta_rule", kVariants, stream, args, [&] { return work_of(params); });
  variant.launch(stream, args, scratch);
}

bool gated_delta_rule_by(std::string_view variant_name,
                         const Stream& stream,
                         const GatedDeltaRuleParams& params,
                         Workspace& scratch) {
  const GatedDeltaRuleArgs args = checked_args(stream, params);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, scratch);
  return true;
}

}  // namespace atom::ops
