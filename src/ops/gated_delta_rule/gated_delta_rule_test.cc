#include "ops/gated_delta_rule/gated_delta_rule.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "ops/gated_delta_rule/gated_delta_rule_variants.h"
#include "ops/test_batches.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

struct Sizes {
  int64_t num_k_heads, num_v_heads, head_k_dim, head_v_dim;

  int64_t state_size() const { return num_v_heads * head_k_dim * head_v_dim; }
  int64_t key_dim() const { return num_k_heads * head_k_dim; }
  int64_t value_dim() const { return num_v_heads * head_v_dim; }
};

// Random tokens, slots with something in each, and heads of which some forget within a token and
// some hardly ever.
GatedDeltaRuleParams random_call(const Sizes& sizes,
                                 const StateBatch& batch,
                                 DType dtype,
                                 DType state_dtype = DType::kFloat32) {
  const int64_t num_sequences = batch.seq_lens.size(0);
  const int64_t num_tokens = batch.query_start.data<int32_t>()[num_sequences];
  const int64_t width = 2 * sizes.key_dim() + sizes.value_dim();
  GatedDeltaRuleParams params;
  params.qkv = random_tensor({num_tokens, width + 16}, dtype, 1).narrow(1, 8, width);
  params.num_k_heads = sizes.num_k_heads;
  const Tensor ba = random_tensor({num_tokens, 2 * sizes.num_v_heads}, dtype, 2, 3.0f);
  params.b = ba.narrow(1, 0, sizes.num_v_heads);
  params.a = ba.narrow(1, sizes.num_v_heads, sizes.num_v_heads);
  params.a_log = Tensor::zeros({sizes.num_v_heads}, DType::kFloat32);
  for (int64_t head = 0; head < sizes.num_v_heads; ++head) {
    params.a_log.data<float>()[head] = 3.0f - 3.0f * static_cast<float>(head);
  }
  params.dt_bias = random_tensor({sizes.num_v_heads}, DType::kFloat32, 3);
  params.state = random_tensor(
      {num_sequences + 2, sizes.num_v_heads, sizes.head_k_dim, sizes.head_v_dim}, state_dtype, 4);
  params.batch = batch;
  params.out = Tensor::zeros({num_tokens, sizes.value_dim()}, dtype);
  return params;
}

// `count` tokens of a call from `begin` on; the batch stays to be said.
GatedDeltaRuleParams tokens_of(const GatedDeltaRuleParams& call, int64_t begin, int64_t count) {
  GatedDeltaRuleParams part = call;
  part.qkv = call.qkv.narrow(0, begin, count);
  part.a = call.a.narrow(0, begin, count);
  part.b = call.b.narrow(0, begin, count);
  part.out = call.out.narrow(0, begin, count);
  return part;
}

bool run(const char* variant,
         ThreadPool& pool,
         const GatedDeltaRuleParams& params,
         bool fixed_rows = false) {
  std::vector<Tensor> tensors = {
      params.qkv, params.a, params.b, params.a_log, params.dt_bias, params.state, params.out};
  append_tensors(params.batch, &tensors);
  return run_variant(variant, pool, tensors, [&](const Placed& at) {
    GatedDeltaRuleParams placed = params;
    placed.qkv = at(params.qkv);
    placed.a = at(params.a);
    placed.b = at(params.b);
    placed.a_log = at(params.a_log);
    placed.dt_bias = at(params.dt_bias);
    placed.state = at(params.state);
    placed.batch = placed_batch(params.batch, at);
    placed.out = at(params.out);
    Stream stream = at.stream(), dry_run = Stream::dry_run(at.stream().device());
    stream.set_fixed_rows(fixed_rows);
    dry_run.set_fixed_rows(fixed_rows);
    Workspace measuring;
    if (is_gpu_variant(variant) && !gated_delta_rule_by(variant, dry_run, placed, measuring)) {
      return false;
    }
    Workspace scratch(at.stream(), measuring.peak_size());
    return gated_delta_rule_by(variant, stream, placed, scratch);
  });
}

std::vector<double> unit(const double* x, int64_t size, double scale) {
  double squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += x[i] * x[i];
  std::vector<double> out(x, x + size);
  for (double& value : out) value *= scale / std::sqrt(squares + 1e-6);
  return out;
}

// The recurrence in double.
struct Expected {
  std::vector<double> out, state;
};

Expected expected_of(const GatedDeltaRuleParams& params, const Sizes& sizes) {
  Expected expected{values_of(params.out), values_of(params.state)};
  const auto qkv = values_of(params.qkv), a = values_of(params.a), b = values_of(params.b);
  const int64_t dk = sizes.head_k_dim, dv = sizes.head_v_dim, width = params.qkv.size(1);
  const int32_t* starts = params.batch.query_start.data<int32_t>();
  for (int64_t s = 0; s < params.batch.seq_lens.size(0); ++s) {
    const int64_t slot = params.batch.state_slots.data<int32_t>()[s];
    const int32_t count = starts[s + 1] - starts[s];
    double* states = expected.state.data() + slot * sizes.state_size();
    if (count > 0 && params.batch.seq_lens.data<int32_t>()[s] == count) {
      std::fill_n(states, sizes.state_size(), 0.0);
    }
    for (int64_t t = starts[s]; t < starts[s + 1]; ++t) {
      for (int64_t head = 0; head < sizes.num_v_heads; ++head) {
        const int64_t key_head = head * sizes.num_k_heads / sizes.num_v_heads;
        const double* row = qkv.data() + t * width;
        const auto q = unit(row + key_head * dk, dk, 1 / std::sqrt(static_cast<double>(dk)));
        const auto k = unit(row + sizes.key_dim() + key_head * dk, dk, 1);
        const double* v = row + 2 * sizes.key_dim() + head * dv;
        const double x = a[t * sizes.num_v_heads + head] + params.dt_bias.data<float>()[head];
        const double decay =
            std::exp(-std::exp(params.a_log.data<float>()[head]) * std::log1p(std::exp(x)));
        const double beta = 1 / (1 + std::exp(-b[t * sizes.num_v_heads + head]));
        double* state = states + head * dk * dv;
        for (int64_t j = 0; j < dv; ++j) {
          double known = 0, result = 0;
          for (int64_t d = 0; d < dk; ++d) known += k[d] * (state[d * dv + j] *= decay);
          const double update = beta * (v[j] - known);
          for (int64_t d = 0; d < dk; ++d) result += q[d] * (state[d * dv + j] += k[d] * update);
          expected.out[t * sizes.value_dim() + head * dv + j] = result;
        }
      }
    }
  }
  return expected;
}

// Outputs are sums over the state: their errors are relative to its size, not to theirs.
void expect_result(const GatedDeltaRuleParams& params,
                   const Expected& expected,
                   const std::string& what) {
  const DType dtype = params.out.dtype();
  const double relative = dtype == DType::kFloat32 ? 1e-5 : 1.01 * half_ulp(dtype);
  expect_close(params.out, expected.out, relative, 1e-6, what);
  const double of_state =
      params.state.dtype() == DType::kFloat32 ? 1e-5 : 1.01 * half_ulp(params.state.dtype());
  expect_close(params.state, expected.state, of_state, 4e-6, what + ", state");
}

struct Case {
  Sizes sizes;
  std::vector<int32_t> new_tokens, old_tokens;
};

const Case kCases[] = {
    {{1, 1, 4, 3}, {1, 5, 70}, {0, 1, 0}},
    {{2, 4, 128, 128}, {1, 63, 0, 64, 1, 7, 65}, {3, 0, 5, 9, 0, 64, 0}},
    {{2, 4, 128, 128}, {150, 1, 63, 8}, {0, 7, 1, 128}},
    {{1, 2, 128, 128}, {1000}, {0}},
    {{1, 2, 128, 128}, {64, 1000}, {0, 77}},
    {{1, 3, 128, 128}, {200}, {4}},
    {{2, 6, 48, 80}, {9, 100, 1, 66}, {0, 3, 2, 0}},
    {{1, 1, 256, 256}, {40}, {1}},
};

TEST(GatedDeltaRule, EveryVariantMatchesTheRecurrenceInDouble) {
  ThreadPool pool(2);
  for (const DType state : {DType::kFloat32, DType::kBFloat16}) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : kCases) {
        const StateBatch batch = state_batch_of(c.new_tokens, c.old_tokens);
        const Expected expected = expected_of(random_call(c.sizes, batch, dtype, state), c.sizes);
        for (const char* variant : kAllVariants) {
          const GatedDeltaRuleParams params = random_call(c.sizes, batch, dtype, state);
          if (!run(variant, pool, params)) continue;
          expect_result(params, expected, std::string(variant) + " " + params.qkv.to_string());
        }
      }
    }
  }
}

// A thousand steps, of which each rounds the state: what that costs, against the recurrence in
// double whose states are not rounded.
TEST(GatedDeltaRule, StatesInBFloat16StayNearThoseInFloat32) {
  constexpr Sizes kSizes{1, 2, 128, 128};
  constexpr int32_t kTokens = 1000;
  ThreadPool pool(2);
  const Expected expected =
      expected_of(random_call(kSizes, state_batch_of({kTokens}, {0}), DType::kFloat32), kSizes);
  double largest = 0;
  for (const double value : expected.out) largest = std::max(largest, std::abs(value));
  for (const char* variant : kAllVariants) {
    for (const DType state : {DType::kFloat32, DType::kBFloat16}) {
      const GatedDeltaRuleParams params =
          random_call(kSizes, state_batch_of({kTokens}, {0}), DType::kFloat32, state);
      bool ran = true;
      for (int32_t t = 0; t < kTokens && ran; ++t) {
        GatedDeltaRuleParams step = tokens_of(params, t, 1);
        step.batch = state_batch_of({1}, {t});
        ran = run(variant, pool, step);
      }
      if (!ran) continue;
      double worst = 0;
      const std::vector<double> out = values_of(params.out);
      for (size_t i = 0; i < out.size(); ++i) {
        worst = std::max(worst, std::abs(out[i] - expected.out[i]));
      }
      RecordProperty(std::string(variant) + " " + dtype_name(state),
                     std::to_string(worst / largest));
      EXPECT_LT(worst, (state == DType::kFloat32 ? 1e-5 : 4e-3) * largest) << variant;
    }
  }
}

TEST(GatedDeltaRule, StepsOfAnyLengthGiveWhatOneStepGives) {
  constexpr Sizes kSizes{1, 2, 128, 128};
  constexpr int32_t kTokens = 150;
  ThreadPool pool(1);
  const GatedDeltaRuleParams all =
      random_call(kSizes, state_batch_of({kTokens}, {0}), DType::kFloat32);
  const Expected expected = expected_of(all, kSizes);
  for (const char* variant : kAllVariants) {
    for (const int32_t step : {1, 3, 7, 8, 50, 64, 100}) {
      GatedDeltaRuleParams params = random_call(kSizes, all.batch, DType::kFloat32);
      bool ran = true;
      for (int32_t begin = 0; begin < kTokens; begin += step) {
        const int32_t count = std::min(step, kTokens - begin);
        GatedDeltaRuleParams part = tokens_of(params, begin, count);
        part.batch = state_batch_of({count}, {begin});
        ran = run(variant, pool, part);
      }
      if (!ran) continue;
      expect_result(params, expected, variant + (", steps of " + std::to_string(step)));
    }
  }
}

TEST(GatedDeltaRule, WithFixedRowsStepsOfAnyLengthGiveTheSameBits) {
  constexpr Sizes kSizes{1, 2, 128, 128};
  constexpr int32_t kTokens = 150;
  ThreadPool pool(1);
  int num_variants = 0;
  for (const char* variant : kAllVariants) {
    std::vector<double> out, state;  // by steps of one token
    for (const int32_t step : {1, 7, 8, 64, kTokens}) {
      GatedDeltaRuleParams params =
          random_call(kSizes, state_batch_of({kTokens}, {0}), DType::kBFloat16);
      bool ran = true;
      for (int32_t begin = 0; ran && begin < kTokens; begin += step) {
        const int32_t count = std::min(step, kTokens - begin);
        GatedDeltaRuleParams part = tokens_of(params, begin, count);
        part.batch = state_batch_of({count}, {begin});
        ran = run(variant, pool, part, /*fixed_rows=*/true);
      }
      if (!ran) break;
      if (step == 1) {
        ++num_variants;
        out = values_of(params.out), state = values_of(params.state);
      }
      EXPECT_EQ(values_of(params.out), out) << variant << ", steps of " << step;
      EXPECT_EQ(values_of(params.state), state) << variant << ", steps of " << step;
    }
  }
  EXPECT_GE(num_variants, 1);
}

TEST(GatedDeltaRule, ASequenceDoesNotDependOnTheOthers) {
  constexpr Sizes kSizes{2, 4, 128, 128};
  const std::vector<int32_t> counts = {70, 1, 9};
  ThreadPool many(3), one(1);
  for (const char* variant : kAllVariants) {
    const GatedDeltaRuleParams all =
        random_call(kSizes, state_batch_of(counts, {0, 4, 30}), DType::kBFloat16);
    if (!run(variant, many, all)) continue;
    GatedDeltaRuleParams alone = random_call(kSizes, all.batch, DType::kBFloat16);
    for (int64_t s = 0; s < 3; ++s) {
      const int32_t begin = all.batch.query_start.data<int32_t>()[s];
      GatedDeltaRuleParams part = tokens_of(alone, begin, counts[s]);
      part.batch = {int32_tensor({0, counts[s]}),
                    all.batch.seq_lens.narrow(0, s, 1),
                    all.batch.state_slots.narrow(0, s, 1)};
      run(variant, one, part);
    }
    EXPECT_EQ(values_of(all.out), values_of(alone.out)) << variant;
    EXPECT_EQ(values_of(all.state), values_of(alone.state)) << variant;
  }
}

// Rows of a chunk behind a sequence's last token are the next one's.
TEST(GatedDeltaRule, NothingOfASequenceReachesTheOneBefore) {
  constexpr Sizes kSizes{2, 4, 128, 128};
  constexpr int32_t kFirst = 70;
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    const GatedDeltaRuleParams params =
        random_call(kSizes, state_batch_of({kFirst, 66}, {3, 0}), DType::kBFloat16);
    GatedDeltaRuleParams spoilt = params;
    spoilt.qkv = copy_of(params.qkv);
    spoilt.state = copy_of(params.state);
    spoilt.out = copy_of(params.out);
    const int64_t width = spoilt.qkv.size(1);
    std::fill_n(spoilt.qkv.data<BFloat16>() + kFirst * width,
                66 * width,
                from_float<BFloat16>(std::numeric_limits<float>::quiet_NaN()));
    if (!run(variant, pool, params)) continue;
    run(variant, pool, spoilt);
    EXPECT_EQ(values_of(spoilt.out.narrow(0, 0, kFirst)),
              values_of(params.out.narrow(0, 0, kFirst)))
        << variant;
    EXPECT_EQ(values_of(spoilt.state.narrow(0, 2, 1)), values_of(params.state.narrow(0, 2, 1)))
        << variant;
  }
}

TEST(GatedDeltaRule, ANewSequenceIgnoresWhatItsSlotHolds) {
  constexpr Sizes kSizes{1, 2, 32, 32};
  ThreadPool pool(1);
  for (const char* variant : kAllVariants) {
    for (const int32_t count : {1, 30}) {
      GatedDeltaRuleParams params =
          random_call(kSizes, state_batch_of({count}, {0}), DType::kFloat32);
      const Expected expected = expected_of(params, kSizes);
      std::fill_n(params.state.data<float>() + kSizes.state_size(),
                  kSizes.state_size(),
                  std::numeric_limits<float>::quiet_NaN());
      if (!run(variant, pool, params)) continue;
      expect_result(params, expected, variant);
    }
  }
}

// Tokens that each leave their state in a slot: exactly what steps of one token leave.
TEST(GatedDeltaRule, KeepsTheStateBehindEachToken) {
  constexpr Sizes kSizes{2, 4, 64, 32};
  constexpr int32_t kTokens = 10;  // enough for a chunk, were they not kept
  ThreadPool pool(1);
  const auto expect_same = [&](const char* variant, DType state) {
    GatedDeltaRuleParams params =
        random_call(kSizes, state_batch_of({kTokens}, {9}), DType::kBFloat16);
    params.state = random_tensor({kTokens + 2, 4, 64, 32}, state, 4);
    params.batch.state_slots = int32_tensor({3});
    std::vector<int32_t> kept;  // the slot in which the sequence began comes fourth
    for (int32_t t = 0; t < kTokens; ++t) kept.push_back(t);
    params.batch.token_slots = int32_tensor(kept);
    GatedDeltaRuleParams alone = params;
    alone.state = copy_of(params.state);
    alone.out = Tensor::zeros(params.out.shape(), params.out.dtype());
    if (!run(variant, pool, params)) return;
    for (int32_t t = 0; t < kTokens; ++t) {
      GatedDeltaRuleParams step = tokens_of(alone, t, 1);
      step.batch = state_batch_of({1}, {9 + t});
      step.batch.state_slots = int32_tensor({3});
      run(variant, pool, step);
      EXPECT_EQ(values_of(params.state.narrow(0, t, 1)), values_of(alone.state.narrow(0, 3, 1)))
          << variant << ", token " << t;
    }
    EXPECT_EQ(values_of(params.out), values_of(alone.out)) << variant;
  };
  for (const char* variant : kAllVariants) {
    for (const DType state : {DType::kFloat32, DType::kBFloat16}) expect_same(variant, state);
  }
}

TEST(GatedDeltaRule, LeavesTheLastStateInAnotherSlot) {
  constexpr Sizes kSizes{1, 2, 32, 32};
  ThreadPool pool(1);
  for (const char* variant : kAllVariants) {
    for (const int32_t num_old : {0, 7}) {
      GatedDeltaRuleParams params =
          random_call(kSizes, state_batch_of({20}, {num_old}), DType::kFloat32);
      GatedDeltaRuleParams other = params;
      other.state = copy_of(params.state);
      other.out = Tensor::zeros(params.out.shape(), params.out.dtype());
      std::vector<int32_t> kept(20, -1);
      kept.back() = 2;
      other.batch.token_slots = int32_tensor(kept);
      const Tensor before = copy_of(params.state);
      if (!run(variant, pool, params)) continue;
      run(variant, pool, other);
      EXPECT_EQ(values_of(other.out), values_of(params.out)) << variant;
      EXPECT_EQ(values_of(other.state.narrow(0, 2, 1)), values_of(params.state.narrow(0, 1, 1)));
      EXPECT_EQ(values_of(other.state.narrow(0, 1, 1)), values_of(before.narrow(0, 1, 1)));
    }
  }
}

TEST(GatedDeltaRule, APaddedRowGivesZeroAndLeavesTheStates) {
  constexpr Sizes kSizes{1, 2, 32, 32};
  ThreadPool pool(1);
  for (const char* variant : kAllVariants) {
    GatedDeltaRuleParams params =
        random_call(kSizes, state_batch_of({1, 2}, {3, 3}), DType::kBFloat16);
    params.batch.state_slots = int32_tensor({-1, 2});
    params.batch.seq_lens = int32_tensor({0, 5});
    std::fill_n(params.out.data<BFloat16>(), params.out.num_elements(), from_float<BFloat16>(7));
    const Tensor before = copy_of(params.state);
    if (!run(variant, pool, params)) continue;
    EXPECT_EQ(values_of(params.out.narrow(0, 0, 1)), std::vector<double>(64, 0.0)) << variant;
    for (const int64_t slot : {0, 1, 3}) {
      EXPECT_EQ(values_of(params.state.narrow(0, slot, 1)), values_of(before.narrow(0, slot, 1)))
          << variant;
    }
  }
}

// A head that keeps a fraction exp(-1000) of its state from token to token, and one that keeps all.
TEST(GatedDeltaRule, ExtremeDecaysStayFinite) {
  constexpr Sizes kSizes{1, 2, 32, 32};
  ThreadPool pool(1);
  for (const char* variant : kAllVariants) {
    GatedDeltaRuleParams params = random_call(kSizes, state_batch_of({100}, {5}), DType::kFloat32);
    params.a_log.data<float>()[0] = 7.0f;
    params.a_log.data<float>()[1] = -100.0f;
    const Expected expected = expected_of(params, kSizes);
    if (!run(variant, pool, params)) continue;
    expect_result(params, expected, variant);
  }
}

// Inverses of chunks are far from the identity where tokens have one key.
TEST(GatedDeltaRule, TokensOfOneKeyMatchTheRecurrence) {
  constexpr Sizes kSizes{1, 2, 128, 128};
  ThreadPool pool(1);
  for (const char* variant : kAllVariants) {
    const GatedDeltaRuleParams params =
        random_call(kSizes, state_batch_of({200}, {0}), DType::kBFloat16);
    BFloat16* keys = params.qkv.data<BFloat16>() + kSizes.key_dim();
    for (int t = 1; t < 200; ++t) {
      std::copy_n(keys, kSizes.key_dim(), keys + t * params.qkv.stride(0));
    }
    const Expected expected = expected_of(params, kSizes);
    if (!run(variant, pool, params)) continue;
    expect_result(params, expected, variant);
  }
}

TEST(GatedDeltaRuleDeathTest, RefusesOtherShapes) {
  ThreadPool pool(1);
  GatedDeltaRuleParams params =
      random_call({1, 2, 32, 32}, state_batch_of({3}, {0}), DType::kFloat32);
  params.num_k_heads = 2;
  Workspace scratch;
  EXPECT_DEATH(gated_delta_rule(Stream(&pool), params, scratch), "QKV");
  params.num_k_heads = 1;
  params.dt_bias = Tensor::zeros({3}, DType::kFloat32);
  EXPECT_DEATH(gated_delta_rule(Stream(&pool), params, scratch), "\\[gated_delta_rule\\] dt_bias");
}

}  // namespace
}  // namespace atom::ops
