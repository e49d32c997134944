// What a step of a model has to do at least: the bytes that must be read, as they are stored, and
// the floating point operations. Measured times are judged against these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/attention_flops.h"
#include "config/resolve.h"
#include "ops/roofs/roofs.h"
#include "runner/model_source.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace atom::cli {

// What steps of any size follow from, counted from the configuration and the layers that it makes.
struct ModelWork {
  DType dtype = DType::kFloat32;  // of activations
  std::string types;              // in words: of activations, linear layers and cache
  // Bytes that every step reads, those of experts and looked up embeddings apart.
  int64_t weight_bytes = 0;
  int64_t embedding_row_bytes = 0;
  // Elements of the matrices that each token is multiplied with, without experts, and that each
  // token with logits is multiplied with.
  int64_t matrix_size = 0;
  int64_t head_size = 0;
  bool multiplies_fp8 = false;  // all but the head

  // Sums over all layers: experts that tokens choose among, and those that each has.
  int64_t expert_bytes = 0;
  int64_t expert_size = 0;
  int64_t num_experts = 0;
  int64_t num_shared = 0;
  int64_t top_k = 0;

  // Of each layer with attention, keys that a query attends to at most: a window's, or those that
  // an indexer selects; 0: all before it.
  std::vector<int64_t> windows;
  int64_t kv_bytes = 0;     // keys and values, or the latent, of a token in one of these layers
  int64_t index_bytes = 0;  // an indexer's keys of a token, all layers: it reads all of them
  PairFlops pair_flops;
  int64_t state_bytes = 0;  // of a sequence, in layers without attention
};

ModelWork count_work(const ResolvedConfig& config, const BuiltModel& built);

struct StepWork {
  // Each weight once; of the embedding only the rows looked up, of experts those that are chosen.
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;         // keys, values and states read and written
  int64_t flops = 0;            // a multiply-add is two
  int64_t fp8_flops = 0;        // how many of them are FP8
  int64_t attention_flops = 0;  // how many of them are attention's

  int64_t bytes() const { return weight_bytes + kv_bytes; }
};

// Experts of a layer that tokens choose on the average which choose evenly and independently.
double evenly_chosen(const ModelWork& model, int64_t num_tokens);

// One new token for each of `batch` sequences, which then have `context_len` tokens and choose
// `num_chosen` experts of a layer.
StepWork decode_work(const ModelWork& model, int64_t batch, int64_t context_len, double num_chosen);
// The same where they choose evenly.
StepWork decode_work(const ModelWork& model, int64_t batch, int64_t context_len);

// `batch` whole prompts of `prompt_len` tokens, of which the last row of each gets logits.
StepWork prefill_work(const ModelWork& model, int64_t batch, int64_t prompt_len);

// Seconds that the arithmetic takes at least; 0 where that roof was not measured.
double least_compute_seconds(const StepWork& work, const ops::Roofs& roofs, DType dtype);

// Seconds that the work takes at least, reading and arithmetic overlapped.
double least_seconds(const StepWork& work, const ops::Roofs& roofs, DType dtype);

}  // namespace atom::cli
