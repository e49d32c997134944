#include "ops/causal_conv1d/causal_conv1d.h"

#include <algorithm>

#include "ops/causal_conv1d/causal_conv1d_kernels.h"
#include "ops/causal_conv1d/causal_conv1d_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerChunk = 16384;

template <CausalConv1dKernel* kernel>
void on_pool(const Stream& stream, const CausalConv1dArgs& args) {
  const int64_t num_sequences = args.batch.num_sequences;
  const int64_t blocks = (args.num_channels + kConvTaskChannels - 1) / kConvTaskChannels;
  const int64_t elements = args.batch.num_tokens * args.num_channels;
  const int64_t grain = std::max<int64_t>(
      1, blocks * num_sequences * kElementsPerChunk / std::max<int64_t>(1, elements));
  stream.pool().parallel_for(blocks * num_sequences, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kConvTaskChannels;
      const int64_t count = std::min<int64_t>(kConvTaskChannels, args.num_channels - first);
      kernel(args, {.sequence = i / blocks, .first_channel = first, .num_channels = count});
    }
  });
}

#ifdef ATOM_CUDA
template <decltype(causal_conv1d_cuda)* convolve>
void on_queue(const Stream& stream, const CausalConv1dArgs& args) {
  if (args.batch.num_tokens > 0) convolve(args, stream.queue().handle());
}

bool has_short_elements(const CausalConv1dArgs& args) {
  return args.element != Element::kFloat32;
}
#endif

using Launch = void(const Stream&, const CausalConv1dArgs&);

constexpr Variant<CausalConv1dArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"brief",
     CpuIsa::kScalar,
     has_short_elements,
     on_queue<causal_conv1d_brief_cuda>,
     DeviceType::kCuda},
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<causal_conv1d_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<causal_conv1d_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<causal_conv1d_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<causal_conv1d_reference>},
};

CausalConv1dArgs checked_args(const Stream& stream, const CausalConv1dParams& params) {
  const DType dtype = params.x.dtype();
  TensorCheck check("causal_conv1d");
  check.tensor("x", params.x, {"T", "C"}, dtype)
      .tensor("out", params.out, {"T", "C"}, dtype)
      .contiguous("weight", params.weight, {"W", "C"}, DType::kFloat32)
      .contiguous("state", params.state, {"slots", "W-1", "C"}, dtype);
  CHECK(check.size("W-1") == check.size("W") - 1);
  CHECK(check.size("W") >= 2);
  CHECK(check.size("W") <= kConvMaxKernelSize);
  return {
      .x = params.x.raw_data(),
      .weight = static_cast<const float*>(params.weight.raw_data()),
      .state = params.state.raw_data(),
      .out = params.out.raw_data(),
      .batch =
          checked_state_batch(check, stream, params.batch, check.size("T"), check.size("slots")),
      .x_stride = params.x.stride(0),
      .out_stride = params.out.stride(0),
      .num_channels = check.size("C"),
      .kernel_size = check.size("W"),
      .element = element_of(dtype),
  };
}

}  // namespace

void causal_conv1d(const Stream& stream, const CausalConv1dParams& params) {
  const CausalConv1dArgs args = checked_args(stream, params);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("causal_conv1d", kVariants, stream, args, [&] {
    return moves(params.x, params.out, params.weight);
  });
  variant.launch(stream, args);
}

bool causal_conv1d_by(std::string_view variant_name,
                      const Stream& stream,
                      const CausalConv1dParams& params) {
  const CausalConv1dArgs args = checked_args(stream, params);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args);
  return true;
}

}  // namespace atom::ops
