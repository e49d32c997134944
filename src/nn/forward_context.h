// One step's input as layers see it: which tokens, where they stand in their sequences, where their
// keys and values live. Built by the runner's input builder, read-only for layers, valid for one
// forward pass. num_tokens rows are the step's sequences one after the other.
#pragma once

#include <span>

#include "nn/layer_cache.h"
#include "ops/attention/paged_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom {

class ForwardObserver;
struct ContextSplit;

struct ForwardContext {
  const Stream& stream;
  Workspace& workspace;
  Tensor token_ids;       // [num_tokens] int32
  Tensor positions;       // [num_tokens] int32
  ops::PagedBatch batch;  // with the blocks of the first group of layers
  const LayerStorage& storage;
  // With two groups: with the blocks of the second.
  ops::PagedBatch window_batch = {};
  // The state slot of each sequence of the step, -1 of padding and in models without states. A
  // sequence has a history, which its slot holds, exactly if seq_lens[i] > query_start[i + 1] -
  // query_start[i]; without one its states begin as zero, whatever the slot holds.
  Tensor state_slots = {};  // [num_seqs] int32
  // Defined where steps verify drafts: the slot that gets the state behind a token, -1 for none;
  // see ops::StateBatch.
  Tensor token_state_slots = {};        // [num_tokens] int32
  ForwardObserver* observer = nullptr;  // of comparisons and counts; null when serving
  // Where layers share what an indexer selects: written by a layer that has one, read by
  // those after it. As ops/indexer_top_k has it.
  Tensor selected = {};  // [num_tokens, top_k] int32

  // Where a draft model reads inputs of the model's layers (BuildContext::aux_layers): the residual
  // stream that enters each of them, num_tokens rows of one behind those of the other.
  Tensor aux_hidden = {};  // [aux layers * num_tokens, hidden_size]

  // Where long chunks (ops::kLongChunk) and shorter ones are mixed: all sequences of `batch`, cut
  // into runs of either kind; else empty.
  std::span<const ops::BatchPart> parts = {};

  // ParallelContext::exchange_token_counts() of this pass.
  std::span<const int32_t> tokens_of_ranks = {};
  // The pass has no token that counts: it is there for others, who need the experts of this rank.
  bool is_dummy = false;
  // Where other ranks compute some of the step's rows (nn/context_split.h); null: none does.
  const ContextSplit* split = nullptr;

  const ops::PagedBatch& batch_of(CacheHandle handle) const {
    return handle.group == 0 ? batch : window_batch;
  }
  std::span<const Tensor> cache(CacheHandle handle) const { return storage.cache(handle); }
  std::span<const Tensor> state(StateHandle handle) const { return storage.state(handle); }
  int64_t num_tokens() const { return token_ids.size(0); }
};

}  // namespace atom
