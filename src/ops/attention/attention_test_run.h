// How the tests of attention run a call by one of its variants, on that variant's device.
#pragma once

#include "base/cpu_info.h"
#include "ops/attention/attention_variants.h"
#include "ops/simd/amx_emulator.h"
#include "ops/test_tensors.h"

namespace atom::ops {

// Runs the tiles, whose instructions are emulated where the rest can run.
inline bool run_attention_by_emulated_tiles(ThreadPool& pool, const AttentionParams& params) {
  if (cpu_isa() != CpuIsa::kAvx512) return false;
  const AmxEmulator emulator;
  Workspace measuring;
  if (!attention_by_tiles(Stream::dry_run(), params, measuring)) return false;
  Workspace scratch(measuring.peak_size());
  return attention_by_tiles(Stream(&pool), params, scratch);
}

// False when the variant cannot run it.
inline bool run_attention(const char* variant, ThreadPool& pool, const AttentionParams& params) {
  if (variant == std::string_view("amx") && run_attention_by_emulated_tiles(pool, params)) {
    return true;
  }
  const std::vector<Tensor> tensors = {params.q,
                                       params.k_cache,
                                       params.v_cache,
                                       params.batch.block_tables,
                                       params.batch.query_start,
                                       params.batch.seq_lens,
                                       params.batch.settled_lens,
                                       params.sinks,
                                       params.out};
  return run_variant(variant, pool, tensors, [&](const Placed& at) {
    AttentionParams placed = params;
    placed.q = at(params.q);
    placed.k_cache = at(params.k_cache);
    placed.v_cache = at(params.v_cache);
    placed.batch.block_tables = at(params.batch.block_tables);
    placed.batch.query_start = at(params.batch.query_start);
    placed.batch.seq_lens = at(params.batch.seq_lens);
    placed.batch.settled_lens = at(params.batch.settled_lens);
    placed.sinks = at(params.sinks);
    placed.out = at(params.out);
    const Stream dry_run = Stream::dry_run(at.stream().device());
    Workspace measuring;
    if (!attention_by(variant, dry_run, placed, measuring)) return false;
    Workspace scratch(at.stream(), measuring.peak_size());
    return attention_by(variant, at.stream(), placed, scratch);
  });
}

}  // namespace atom::ops
