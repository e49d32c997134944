// The GPU's variants: what they take, their scratch memory, and calls that are made in parts.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "ops/fused_moe/fused_moe_gpu_call.h"
#include "ops/fused_moe/moe_float8.h"
#include "ops/fused_moe/moe_many.h"
#include "ops/fused_moe/moe_mixed.h"
#include "ops/fused_moe/moe_one.h"
#include "ops/fused_moe/moe_rows.h"
#include "ops/fused_moe/moe_skinny.h"
#include "ops/fused_moe/moe_stream.h"
#include "ops/fused_moe/moe_terms.h"
#include "ops/fused_moe/moe_whole_float8.h"
#include "ops/fused_moe/moe_wide.h"
#include "ops/fused_moe/moe_wide_float8.h"
#include "tensor/device_capability.h"
#include "tensor/gpu_check.h"

namespace atom::ops {
namespace {

// Choices at a time of the plain kernels: a grid's second dimension has 65535 blocks.
constexpr int64_t kMaxChoices = 1 << 16;
// And of the kernels for many tokens, each of whose turns reads the matrices anew: what lies
// between the matrices shall not outgrow them.
constexpr int64_t kMaxWgmmaChoices = 1 << 17;

// At a time.
int64_t stream_tokens(const FusedMoeCall& call) {
  return std::min<int64_t>(call.num_tokens(), kMaxStreamTokens);
}

// More where experts have few of them: one that has more tokens than a group is read once more.
// The largest call is one of those that plans of memory measure: powers of two, and a step's
// largest.
int64_t skinny_tokens(const FusedMoeCall& call) {
  constexpr int64_t kMostRows = 20;
  const int64_t wanted = kMostRows * call.num_experts() / call.top_k();
  const int64_t most =
      std::min<int64_t>({wanted, kMaxMoeSkinnyTokens, kMaxMoeSkinnyChoices / call.top_k()});
  const auto at_once = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
  return std::min(call.num_tokens(), std::max<int64_t>(at_once, kFewMoeSkinnyTokens));
}

int64_t wgmma_tokens(const FusedMoeCall& call) {
  return std::min(call.num_tokens(), std::max<int64_t>(1, kMaxWgmmaChoices / call.top_k()));
}

}  // namespace

void fused_moe_generic(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const int64_t num_experts = call.num_experts(), num_tokens = call.num_tokens();
  CHECK(num_experts <= kMaxGpuExperts);
  const int64_t most_tokens =
      std::min(num_tokens, std::max<int64_t>(1, kMaxChoices / call.top_k()));
  const int64_t most_rows = most_tokens * call.top_k();
  const auto ints = [&](int64_t n) { return workspace.tensor({n}, DType::kInt32).raw_data(); };
  const FusedMoeGpuScratch scratch = {
      .choices = static_cast<int32_t*>(ints(most_rows)),
      .row_begins = static_cast<int32_t*>(ints(num_experts + 1)),
      .tile_begins = static_cast<int32_t*>(ints(num_experts + 1)),
      .sums = static_cast<float*>(
          workspace.tensor({most_rows, 2 * call.intermediate_size()}, DType::kFloat32).raw_data()),
      .activated =
          workspace.tensor({most_rows, call.intermediate_size()}, call.x.dtype()).raw_data(),
      .results = static_cast<float*>(
          workspace.tensor({most_rows, call.hidden_size()}, DType::kFloat32).raw_data())};
  if (stream.is_dry_run()) return;
  for (int64_t first = 0; first < num_tokens; first += most_tokens) {
    const int64_t count = std::min(most_tokens, num_tokens - first);
    fused_moe_cuda(gpu_call(call, first, count), scratch, stream.queue().handle());
  }
}

bool fits_fused_moe_stream(const FusedMoeCall& call) {
  return is_row_major(call) && fits_moe_stream(gpu_call(call, 0, stream_tokens(call)));
}

void fused_moe_stream(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const int64_t most_tokens = stream_tokens(call), num_tokens = call.num_tokens();
  const int64_t most_choices = most_tokens * call.top_k();
  FusedMoeGpuScratch scratch{};
  scratch.activated =
      workspace.tensor({most_choices, call.intermediate_size()}, call.x.dtype()).raw_data();
  scratch.results = static_cast<float*>(
      workspace.tensor({most_choices, call.hidden_size()}, DType::kFloat32).raw_data());
  if (stream.is_dry_run()) return;
  for (int64_t first = 0; first < num_tokens; first += most_tokens) {
    const int64_t count = std::min(most_tokens, num_tokens - first);
    GPU_CHECK(launch_moe_stream(gpu_call(call, first, count),
                                scratch,
                                true,
                                static_cast<gpuStream_t>(stream.queue().handle())));
  }
}

bool fits_fused_moe_skinny(const FusedMoeCall& call) {
  return is_row_major(call) && fits_moe_skinny(gpu_call(call, 0, skinny_tokens(call)));
}

void fused_moe_skinny(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const int64_t most_tokens = skinny_tokens(call), num_tokens = call.num_tokens();
  const int num_rows = num_moe_skinny_rows(static_cast<int>(most_tokens),
                                           static_cast<int>(call.top_k()),
                                           static_cast<int>(call.num_experts()));
  const auto codes = [&](int64_t columns) {
    return workspace.tensor({num_rows, columns}, DType::kUInt8).data<uint8_t>();
  };
  const auto scales = [&](int64_t columns) {
    return workspace.tensor({columns / kMoeSkinnyGroup, num_rows}, DType::kFloat32).data<float>();
  };
  MoeSkinnyScratch scratch = {};
  scratch.counters = stream.is_dry_run() ? nullptr : workspace.counters().data<int32_t>();
  scratch.activated = codes(call.intermediate_size());
  scratch.activated_scales = scales(call.intermediate_size());
  scratch.results =
      workspace.tensor({most_tokens * call.top_k(), call.hidden_size()}, DType::kFloat32)
          .data<float>();
  scratch.num_rows = num_rows;
  if (!has_token_codes(call)) {
    scratch.choices = workspace.tensor({num_rows}, DType::kInt32).data<int32_t>();
    scratch.weights = workspace.tensor({num_rows}, DType::kFloat32).data<float>();
    scratch.x = codes(call.hidden_size());
    scratch.x_scales = scales(call.hidden_size());
  }
  if (stream.is_dry_run()) return;
  for (int64_t first = 0; first < num_tokens; first += most_tokens) {
    const int64_t count = std::min(most_tokens, num_tokens - first);
    GPU_CHECK(launch_moe_skinny(gpu_call(call, first, count),
                                token_codes(call, first, count),
                                scratch,
                                static_cast<gpuStream_t>(stream.queue().handle())));
  }
}

bool fits_fused_moe_skinny_more(const FusedMoeCall& call) {
  const int64_t num_tokens = call.num_tokens();
  return num_tokens > kFewMoeSkinnyTokens && num_tokens == skinny_tokens(call) &&
         fits_fused_moe_skinny(call);
}

namespace {

int64_t num_one_words(const FusedMoeCall& call) {
  return num_moe_one_words(call.num_tokens(), call.top_k(), call.intermediate_size());
}

}  // namespace

bool fits_fused_moe_one(const FusedMoeCall& call) {
  constexpr int64_t kMaxExpertBytes = 64 << 20;
  const int64_t hidden_size = call.hidden_size(), size = call.intermediate_size();
  return call.num_tokens() <= fused_moe_row_tokens(hidden_size, size) &&
         num_one_words(call) <= Workspace::kNumCounters &&
         3 * hidden_size * size <= kMaxExpertBytes && is_row_major(call) &&
         fits_moe_one(gpu_call(call, 0, call.num_tokens()));
}

void fused_moe_one(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  if (stream.is_dry_run()) return;
  GPU_CHECK(launch_moe_one(gpu_call(call, 0, call.num_tokens()),
                           {workspace.counters().data<int32_t>()},
                           static_cast<gpuStream_t>(stream.queue().handle())));
}

bool fits_fused_moe_one_rows(const FusedMoeCall& call) {
  return call.num_tokens() <= kMaxMoeOneTokens && is_row_major(call) &&
         fits_moe_one_rows(gpu_call(call, 0, call.num_tokens()));
}

void fused_moe_one_rows(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const Tensor activated = workspace.tensor(
      {call.num_tokens() * call.top_k(), call.intermediate_size()}, DType::kBFloat16);
  if (stream.is_dry_run()) return;
  GPU_CHECK(launch_moe_one_rows(gpu_call(call, 0, call.num_tokens()),
                                {activated.raw_data(), workspace.counters().data<int32_t>()},
                                static_cast<gpuStream_t>(stream.queue().handle())));
}

bool fits_fused_moe_one_images(const FusedMoeCall& call) {
  return call.num_tokens() <= kMaxMoeOneTokens && has_gpu_layout(call) &&
         fits_moe_one_images(gpu_call(call, 0, call.num_tokens()));
}

void fused_moe_one_images(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const auto floats = [&](int64_t of_token) {
    return workspace.tensor({call.num_tokens() * of_token}, DType::kFloat32);
  };
  const Tensor gates = floats(moe_one_gate_parts_size(call.top_k(), call.intermediate_size()));
  const Tensor downs = floats(moe_one_down_parts_size(call.hidden_size()));
  if (stream.is_dry_run()) return;
  GPU_CHECK(launch_moe_one_images(
      gpu_call(call, 0, call.num_tokens()),
      {gates.data<float>(), downs.data<float>(), workspace.counters().data<int32_t>()},
      static_cast<gpuStream_t>(stream.queue().handle())));
}

namespace {

using FitsCall = bool(const FusedMoeGpuCall&);

bool fits_many_tokens(const FusedMoeCall& call, FitsCall* fits) {
  return call.num_tokens() > kMaxStreamTokens && is_row_major(call) &&
         fits(gpu_call(call, 0, wgmma_tokens(call)));
}

// Of the kernels for many tokens, which take so many at a time.
struct ManyTokens {
  Workspace& workspace;
  int64_t most_tokens, most_rows;

  ManyTokens(const FusedMoeCall& call, Workspace& memory)
      : workspace(memory), most_tokens(wgmma_tokens(call)), most_rows(most_tokens * call.top_k()) {}

  template <typename T = void>
  T* tensor(int64_t rows, int64_t columns, DType dtype) const {
    return static_cast<T*>(workspace.tensor({rows, columns}, dtype).raw_data());
  }

  // With `activated` of so many columns.
  FusedMoeGpuScratch shared(const FusedMoeCall& call, int64_t columns, DType dtype) const {
    FusedMoeGpuScratch scratch{};
    scratch.choices = tensor<int32_t>(1, most_rows, DType::kInt32);
    scratch.row_begins = tensor<int32_t>(1, call.num_experts() + 1, DType::kInt32);
    scratch.tile_begins = tensor<int32_t>(1, call.num_experts() + 1, DType::kInt32);
    scratch.activated = tensor(most_rows, columns, dtype);
    return scratch;
  }

  template <typename Scratch>
  void launch(const Stream& stream,
              const FusedMoeCall& call,
              const Scratch& scratch,
              gpuError_t (*kernels)(const FusedMoeGpuCall&, const Scratch&, gpuStream_t)) const {
    for_turns(stream, call, [&](int64_t first, int64_t count, gpuStream_t queue) {
      return kernels(gpu_call(call, first, count), scratch, queue);
    });
  }

  // launch(first token, number of tokens, queue) of each turn.
  template <typename Launch>
  void for_turns(const Stream& stream, const FusedMoeCall& call, Launch&& launch) const {
    if (stream.is_dry_run()) return;
    for (int64_t first = 0; first < call.num_tokens(); first += most_tokens) {
      const int64_t count = std::min(most_tokens, call.num_tokens() - first);
      GPU_CHECK(launch(first, count, static_cast<gpuStream_t>(stream.queue().handle())));
    }
  }
};

// Fewer rows of an expert are faster by "rows".
bool has_many_rows(const FusedMoeCall& call) {
  constexpr int64_t kLeastRows = 32;
  const int64_t num_choices = call.num_tokens() * call.top_k();
  return num_choices >= kLeastRows * call.num_experts() || !fits_fused_moe_rows(call);
}

}  // namespace

bool fits_fused_moe_wide(const FusedMoeCall& call) {
  return has_many_rows(call) && fits_many_tokens(call, fits_moe_wide);
}

void fused_moe_wide(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const ManyTokens many(call, workspace);
  const DType dtype = call.x.dtype();
  MoeManyScratch scratch{};
  scratch.shared = many.shared(call, call.intermediate_size(), dtype);
  // The gathered x is not needed any more when there are results.
  scratch.x = many.tensor(many.most_rows, call.hidden_size(), dtype);
  scratch.results = scratch.x;
  many.launch(stream, call, scratch, launch_moe_wide);
}

bool fits_fused_moe_wide_float8(const FusedMoeCall& call) {
  return fits_many_tokens(call, fits_moe_wide_float8);
}

bool fits_fused_moe_whole_float8(const FusedMoeCall& call) {
  // Whole tiles of 64 rows leave much of fewer rows empty.
  constexpr int64_t kLeastRows = 192;
  const int64_t num_choices = call.num_tokens() * call.top_k();
  return num_choices >= kLeastRows * call.num_experts() &&
         fits_many_tokens(call, fits_moe_whole_float8);
}

namespace {

// `has_x`: with x in codes, which the kernels make.
MoeFloat8Scratch float8_scratch(const FusedMoeCall& call, const ManyTokens& many, bool has_x) {
  const int64_t hidden_size = call.hidden_size(), size = call.intermediate_size();
  const auto groups = [](int64_t columns) { return (columns + kMoeCodeGroup - 1) / kMoeCodeGroup; };
  MoeFloat8Scratch scratch{};
  scratch.shared = many.shared(call, size, DType::kUInt8);
  scratch.shared.rows = many.tensor<int32_t>(1, many.most_rows, DType::kInt32);
  if (has_x) {
    scratch.x = many.tensor<uint8_t>(many.most_rows, hidden_size, DType::kUInt8);
    scratch.x_scales = many.tensor<float>(many.most_rows, groups(hidden_size), DType::kFloat32);
  }
  scratch.activated_scales = many.tensor<float>(many.most_rows, groups(size), DType::kFloat32);
  scratch.results = many.tensor(many.most_rows, hidden_size, call.x.dtype());
  return scratch;
}

}  // namespace

void fused_moe_wide_float8(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const ManyTokens many(call, workspace);
  many.launch(stream, call, float8_scratch(call, many, true), launch_moe_wide_float8);
}

void fused_moe_whole_float8(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const ManyTokens many(call, workspace);
  const MoeFloat8Scratch scratch = float8_scratch(call, many, !has_token_codes(call));
  many.for_turns(stream, call, [&](int64_t first, int64_t count, gpuStream_t queue) {
    return launch_moe_whole_float8(
        gpu_call(call, first, count), token_codes(call, first, count), scratch, queue);
  });
}

bool has_fused_moe_mixed(Device device,
                         int64_t hidden_size,
                         int64_t intermediate_size,
                         const GatedActivation& activation) {
  return is_hopper(device) && fits_moe_mixed(hidden_size, intermediate_size, activation);
}

bool fits_fused_moe_mixed(const FusedMoeCall& call) {
  return call.num_tokens() * call.top_k() >= kLeastMoeMixedRows * call.num_experts() &&
         is_row_major(call) && fits_moe_mixed(gpu_call(call, 0, wgmma_tokens(call)));
}

void fused_moe_mixed(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const ManyTokens many(call, workspace);
  const int64_t columns = std::max(call.hidden_size(), call.intermediate_size());
  const int64_t groups = (columns + kMoeMixedGroup - 1) / kMoeMixedGroup;
  MoeMixedScratch scratch{};
  scratch.codes = many.tensor<uint8_t>(many.most_rows, columns, DType::kUInt8);
  scratch.scales =
      many.tensor<float>(groups, moe_mixed_scale_stride(many.most_rows), DType::kFloat32);
  scratch.values = many.tensor(many.most_rows, columns, call.x.dtype());
  scratch.shared.choices = many.tensor<int32_t>(1, many.most_rows, DType::kInt32);
  scratch.shared.rows = many.tensor<int32_t>(1, many.most_rows, DType::kInt32);
  scratch.shared.row_begins = many.tensor<int32_t>(1, call.num_experts() + 1, DType::kInt32);
  scratch.shared.tile_begins = many.tensor<int32_t>(1, call.num_experts() + 1, DType::kInt32);
  many.launch(stream, call, scratch, launch_moe_mixed);
}

bool fits_fused_moe_rows(const FusedMoeCall& call) {
  return has_gpu_layout(call) && fits_moe_rows(gpu_call(call, 0, wgmma_tokens(call)));
}

bool fits_fused_moe_rows_early(const FusedMoeCall& call) {
  return is_row_major(call) && fits_moe_rows_early(gpu_call(call, 0, wgmma_tokens(call)));
}

bool fits_fused_moe_terms(const FusedMoeCall& call) {
  return has_gpu_layout(call) && fits_moe_terms(gpu_call(call, 0, wgmma_tokens(call)));
}

void fused_moe_terms(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const ManyTokens many(call, workspace);
  const DType dtype = call.x.dtype();
  const int64_t size = call.intermediate_size();
  MoeTermsScratch scratch{};
  // Two terms of a byte each take what a number of bfloat16 does.
  scratch.shared = many.shared(call, size, dtype);
  scratch.x = many.tensor(many.most_rows, call.hidden_size(), dtype);
  scratch.x_scales = many.tensor<float>(1, many.most_rows, DType::kFloat32);
  scratch.activated_scales =
      many.tensor<float>(many.most_rows, moe_term_groups(size), DType::kFloat32);
  // The terms of x are not needed any more when there are results.
  scratch.results = scratch.x;
  many.launch(stream, call, scratch, launch_moe_terms);
}

namespace {

using LaunchRows = gpuError_t(const FusedMoeGpuCall&, const MoeRowsScratch&, gpuStream_t);

void run_rows(const Stream& stream,
              const FusedMoeCall& call,
              Workspace& workspace,
              LaunchRows* launch) {
  const Workspace::Scope scope(workspace);
  const ManyTokens many(call, workspace);
  const DType dtype = call.x.dtype();
  MoeRowsScratch scratch{};
  scratch.shared = many.shared(call, padded_moe_columns(call.intermediate_size()), dtype);
  scratch.x = many.tensor(many.most_rows, padded_moe_columns(call.hidden_size()), dtype);
  // The gathered x is not needed any more when there are results.
  scratch.results = scratch.x;
  many.launch(stream, call, scratch, launch);
}

}  // namespace

void fused_moe_rows(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  run_rows(stream, call, workspace, launch_moe_rows);
}

void fused_moe_rows_early(const Stream& stream, const FusedMoeCall& call, Workspace& workspace) {
  run_rows(stream, call, workspace, launch_moe_rows_early);
}

}  // namespace atom::ops
