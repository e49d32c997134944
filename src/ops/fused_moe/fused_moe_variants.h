// The variants of fused_moe, for its dispatch and its test.
#pragma once

#include <span>
#include <string_view>

#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/fused_moe_kernels.h"
#include "ops/variant.h"

namespace atom::ops {

// One checked call; see fused_moe().
struct FusedMoeCall {
  const Tensor& x;
  const Tensor& ids;
  const Tensor& weights;
  const ExpertWeights& experts;
  const GatedActivation& activation;
  const Tensor& y;
  QuantizedRows x_codes = {};

  int64_t num_tokens() const { return x.size(0); }
  int64_t top_k() const { return ids.size(1); }
  int64_t hidden_size() const { return x.size(1); }
  int64_t intermediate_size() const { return experts.down[0].in_features; }
  int64_t num_experts() const { return static_cast<int64_t>(experts.down.size()); }
};

using FusedMoeLaunch = void(const Stream&, const FusedMoeCall&, Workspace&);
using FusedMoeVariant = Variant<FusedMoeCall, FusedMoeLaunch>;

std::span<const FusedMoeVariant> fused_moe_variants();

// Plain loops over tokens and their choices, any format of weights: the oracle of the others.
void fused_moe_reference(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// On the CPU: tokens grouped by expert.
void fused_moe_grouped(ActivateKernel* activate,
                       const Stream& stream,
                       const FusedMoeCall& call,
                       Workspace& scratch);

// On a GPU: plain kernels, any shape and format.
void fused_moe_generic(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// On a Hopper GPU: made for the few tokens of a decode step, for which each expert is read once;
// more come in turns of 64. A token's result is its own.
bool fits_fused_moe_stream(const FusedMoeCall& call);
void fused_moe_stream(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// On a Hopper GPU: the same for experts in FP8 by the matrix units, of x and what is between the
// matrices in codes by a scale for each 128. More tokens come in turns of up to 256, if most
// experts have few of so many.
bool fits_fused_moe_skinny(const FusedMoeCall& call);
void fused_moe_skinny(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// Whether more than 64 tokens are one turn.
bool fits_fused_moe_skinny_more(const FusedMoeCall& call);

// The same of one to four tokens, in one kernel: sums are added in another order than for more.
bool fits_fused_moe_one(const FusedMoeCall& call);
void fused_moe_one(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// The same of experts in bfloat16 or MXFP4, of x as it is.
bool fits_fused_moe_one_rows(const FusedMoeCall& call);
void fused_moe_one_rows(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// The same of experts in MXFP4 that are images, of x and what is between the matrices as two terms.
bool fits_fused_moe_one_images(const FusedMoeCall& call);
void fused_moe_one_images(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// On a Hopper GPU: many tokens of each expert, by tiles of as many as there are, which two blocks
// share. Each expert's result of a token is rounded before it is added.
bool fits_fused_moe_wide(const FusedMoeCall& call);
void fused_moe_wide(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// The same of experts in FP8. x and what is between the matrices are quantized too, each 128
// columns by a scale of their own: for calls that say that they may be.
bool fits_fused_moe_wide_float8(const FusedMoeCall& call);
void fused_moe_wide_float8(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// The same where each expert has hundreds of tokens, by whole tiles of 64. Each expert's result of
// a token is rounded before it is weighted.
bool fits_fused_moe_whole_float8(const FusedMoeCall& call);
void fused_moe_whole_float8(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// On a Hopper GPU: experts in MXFP4 that each have dozens of tokens, by products in FP8 of x and
// what is between the matrices in codes: for calls that say that they may be. Each expert's result
// of a token is rounded before it is weighted.
bool has_fused_moe_mixed(Device device,
                         int64_t hidden_size,
                         int64_t intermediate_size,
                         const GatedActivation& activation);
bool fits_fused_moe_mixed(const FusedMoeCall& call);
void fused_moe_mixed(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// On a Hopper GPU: any number of tokens, made for up to some dozens for each expert; of MXFP4 for
// more too. Each expert's result of a token is rounded before it is added.
bool fits_fused_moe_rows(const FusedMoeCall& call);
void fused_moe_rows(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// The same for few tokens of an expert in MXFP4, by products in FP8 of x as two terms.
bool fits_fused_moe_terms(const FusedMoeCall& call);
void fused_moe_terms(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);

// The same for up to eight tokens in bfloat16, with copies that begin earlier.
bool fits_fused_moe_rows_early(const FusedMoeCall& call);
void fused_moe_rows_early(const Stream& stream, const FusedMoeCall& call, Workspace& scratch);
// Where the expert of a choice stands among those of this rank, or -1. On the CPU.
int32_t place_of(const ExpertWeights& experts, int32_t id);
// On the CPU: how many of a weight's groups have one scale of a row in codes, which is then
// repeated for each of them.
int64_t groups_of_a_scale(const CodeFormat& input, const LinearWeight& weight);
void repeat_scales(const Tensor& scales,  // [T, ceil(groups / times)]
                   int64_t times,
                   const Tensor& repeated);  // [T, groups]
// The bias of one expert, undefined where there is none.
Tensor expert_bias(const Tensor& biases, int64_t expert);

}  // namespace atom::ops
