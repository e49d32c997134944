// The dense loops over one row of logits. One source (row_kernels_inl.h) is built for each
// instruction set; every build performs the same IEEE operations in the same order, so results are
// identical bit for bit on every machine. Plain declarations: the instruction-set files include it.
#pragma once

#include <stdint.h>

namespace atom {

// A row is handled in blocks of so many tokens; the last may be shorter.
constexpr int64_t kRowBlock = 64;

struct DrawArguments {
  const float* logits;     // [vocab_size]
  const float* block_max;  // [ceil(vocab_size / kRowBlock)]
  int64_t vocab_size;
  float max;                  // largest logit, finite
  float inverse_temperature;  // > 0
  // Takes part: logit > cut_logit, or logit == cut_logit and id <= cut_token_id.
  float cut_logit;
  int32_t cut_token_id;
  uint64_t seed;
  uint32_t position;
};

struct RowKernels {
  // Writes each block's largest logit, NaN left out. False when the row has a NaN.
  bool (*scan)(const float* logits, int64_t vocab_size, float* block_max);

  // Sum of exp((logit - max) * inverse_temperature) over logits >= lowest.
  double (*exp_sum)(const float* logits,
                    int64_t vocab_size,
                    const float* block_max,
                    float max,
                    float inverse_temperature,
                    float lowest);

  // weights[i] = exp((logits[i] - max) * inverse_temperature), the very values exp_sum adds.
  void (*exp_weights)(
      const float* logits, int64_t count, float max, float inverse_temperature, float* weights);

  // How many logits are larger than value.
  int64_t (*count_greater)(const float* logits,
                           int64_t vocab_size,
                           const float* block_max,
                           float value);

  // One draw from the softmax of the tokens that take part, as an exponential race in the log
  // domain (the Gumbel-max trick):
  //   argmax over ids of (logit - max) * inverse_temperature - log(E(id)), the lowest id on a tie;
  //   E(id) = -log(1 - v) ~ Exp(1), v = (floor(w / 2) + 1/2) / 2^31, at most 1 - 2^-24;
  //   w = noise_word(seed, position, id) of philox.h.
  // P(id) is exactly its softmax share, whatever else was masked; shares below 2^-32 are not
  // resolved.
  int64_t (*draw)(const DrawArguments& arguments);
};

extern const RowKernels kRowKernelsGeneric;
extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;

// The build this processor runs; ATOM_OP_VARIANT="sampling=generic|avx2|avx512" forces one.
const RowKernels& row_kernels();

}  // namespace atom
