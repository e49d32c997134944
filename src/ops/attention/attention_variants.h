// Inside attention: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/attention/attention.h"
#include "ops/attention/attention_args.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool attention_by(std::string_view variant,
                  const Stream& stream,
                  const AttentionParams& params,
                  Workspace& scratch);

// On the CPU by tiles, whatever the processor has: for a test that emulates their instructions.
bool attention_by_tiles(const Stream& stream, const AttentionParams& params, Workspace& scratch);

using AttentionLaunch = void(const Stream& stream,
                             const AttentionArgs& args,
                             const AttentionParams& params,
                             Workspace& scratch);

// On a GPU: single queries split over their keys, chunks by warp-level matrix instructions, or by
// Hopper's warpgroup instructions.
bool fits_attention_mma(const AttentionArgs& args);
bool fits_attention_sm90(const AttentionArgs& args);
AttentionLaunch attention_mma;
AttentionLaunch attention_sm90;

// On a GPU: every query by the same steps, whatever else a step computes.
bool fits_attention_fixed(const AttentionArgs& args);
AttentionLaunch attention_fixed;

}  // namespace atom::ops
