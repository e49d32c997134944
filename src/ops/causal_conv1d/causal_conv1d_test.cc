#include "ops/causal_conv1d/causal_conv1d.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "ops/causal_conv1d/causal_conv1d_variants.h"
#include "ops/test_batches.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

bool run(const char* variant, ThreadPool& pool, const CausalConv1dParams& params) {
  std::vector<Tensor> tensors = {params.x, params.weight, params.state, params.out};
  append_tensors(params.batch, &tensors);
  return run_variant(variant, pool, tensors, [&](const Placed& at) {
    CausalConv1dParams placed = params;
    placed.x = at(params.x);
    placed.weight = at(params.weight);
    placed.state = at(params.state);
    placed.batch = placed_batch(params.batch, at);
    placed.out = at(params.out);
    return causal_conv1d_by(variant, at.stream(), placed);
  });
}

// Of one sequence, x [num_tokens][num_channels] after `history`, in double.
std::vector<double> expected_rows(const std::vector<double>& inputs,
                                  int64_t num_old,
                                  const std::vector<double>& weight,
                                  int64_t kernel_size,
                                  int64_t num_channels) {
  const int64_t num_rows = static_cast<int64_t>(inputs.size()) / num_channels;
  std::vector<double> out;
  for (int64_t row = num_old; row < num_rows; ++row) {
    for (int64_t c = 0; c < num_channels; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < kernel_size; ++j) {
        const int64_t from = row - (kernel_size - 1) + j;
        if (from >= 0) sum += weight[j * num_channels + c] * inputs[from * num_channels + c];
      }
      out.push_back(sum / (1 + std::exp(-sum)));
    }
  }
  return out;
}

double tolerance(DType dtype) {
  return dtype == DType::kFloat32 ? 2e-6 : 1.01 * half_ulp(dtype);
}

struct Case {
  std::vector<int32_t> new_tokens, old_tokens;
  int64_t num_channels, kernel_size;
  int64_t first_channel = 4;  // of the packed rows
};

const Case kCases[] = {
    {{1}, {0}, 1, 4},
    {{1, 5, 1, 2, 3, 100, 0}, {7, 0, 1, 2, 3, 0, 4}, 1024, 4},
    {{1, 5, 1, 2, 3, 100, 0}, {7, 0, 1, 2, 3, 0, 4}, 1024, 4, 8},
    {{3, 70}, {0, 9}, 515, 4},
    {{2, 1, 9}, {2, 0, 8}, 40, 2},
    {{2, 1, 9}, {2, 0, 8}, 40, 8},
};

// A batch of sequences, some of which have a past, against each of them from its beginning.
void check_case(const char* variant, const Case& c, DType dtype) {
  ThreadPool pool(2);
  const StateBatch batch = state_batch_of(c.new_tokens, c.old_tokens);
  const int64_t num_sequences = static_cast<int64_t>(c.new_tokens.size());
  const int64_t num_tokens = std::accumulate(c.new_tokens.begin(), c.new_tokens.end(), 0);
  const int64_t channels = c.num_channels, history = c.kernel_size - 1;
  const Tensor weight = random_tensor({c.kernel_size, channels}, DType::kFloat32, 1);
  // Slots hold what other sequences left there.
  const Tensor state = random_tensor({num_sequences + 2, history, channels}, dtype, 2, 9.0f);
  const Tensor packed = random_tensor({num_tokens, channels + 8}, dtype, 3, 3.0f);
  const Tensor x = packed.narrow(1, c.first_channel, channels);
  std::vector<double> expected, expected_state = values_of(state);
  int64_t token = 0;
  for (int64_t s = 0; s < num_sequences; ++s) {
    const int64_t num_old = c.old_tokens[s], num_new = c.new_tokens[s];
    const int64_t slot = batch.state_slots.data<int32_t>()[s];
    std::vector<double> inputs(history * channels, 0.0);
    const std::vector<double> old =
        values_of(random_tensor({num_old + 1, channels}, dtype, 100 + s, 3.0f));
    inputs.insert(inputs.end(), old.begin(), old.begin() + num_old * channels);
    if (num_old > 0) {
      // What a step before this one left: the last inputs, zeros in front of the first.
      copy_convert(Tensor::zeros({1, history, channels}, dtype), state.narrow(0, slot, 1));
      for (int64_t j = 0; j < history; ++j) {
        for (int64_t i = 0; i < channels; ++i) {
          const double value = inputs[(num_old + j) * channels + i];
          dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
            state.data<T>()[(slot * history + j) * channels + i] =
                from_float<T>(static_cast<float>(value));
          });
        }
      }
    }
    if (num_new > 0) {
      const std::vector<double> added = values_of(x.narrow(0, token, num_new));
      inputs.insert(inputs.end(), added.begin(), added.end());
    }
    const auto rows =
        expected_rows(inputs, history + num_old, values_of(weight), c.kernel_size, channels);
    expected.insert(expected.end(), rows.begin(), rows.end());
    if (num_old + num_new > 0) {
      std::copy(inputs.end() - history * channels,
                inputs.end(),
                expected_state.begin() + slot * history * channels);
    }
    token += num_new;
  }
  const Tensor out = Tensor::zeros({num_tokens, channels}, dtype);
  if (!run(variant, pool, {x, weight, state, batch, out})) return;
  const std::string what = std::string(variant) + " " + x.to_string();
  expect_close(out, expected, tolerance(dtype), 1e-6, what);
  EXPECT_EQ(values_of(state), expected_state) << what;
}

TEST(CausalConv1d, EveryVariantMatchesDoubleArithmetic) {
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : kCases) check_case(variant, c, dtype);
    }
  }
}

TEST(CausalConv1d, StepsOfAnyLengthGiveWhatOneStepGives) {
  constexpr int64_t kTokens = 40, kChannels = 96, kKernel = 4;
  ThreadPool pool(1);
  const Tensor weight = random_tensor({kKernel, kChannels}, DType::kFloat32, 1);
  const Tensor x = random_tensor({kTokens, kChannels}, DType::kBFloat16, 2);
  for (const char* variant : kAllVariants) {
    const auto run_steps = [&](int64_t step, const Tensor& out) {
      const Tensor state = random_tensor({3, kKernel - 1, kChannels}, DType::kBFloat16, 3);
      bool ran = true;
      for (int64_t begin = 0; begin < kTokens; begin += step) {
        const int32_t count = static_cast<int32_t>(std::min(step, kTokens - begin));
        const StateBatch batch = state_batch_of({count}, {static_cast<int32_t>(begin)});
        ran = run(variant,
                  pool,
                  {x.narrow(0, begin, count), weight, state, batch, out.narrow(0, begin, count)});
      }
      return ran;
    };
    const Tensor whole = Tensor::zeros({kTokens, kChannels}, DType::kBFloat16);
    if (!run_steps(kTokens, whole)) continue;
    for (const int64_t step : {1, 2, 3, 5, 7, 39}) {
      const Tensor out = Tensor::zeros({kTokens, kChannels}, DType::kBFloat16);
      run_steps(step, out);
      EXPECT_EQ(values_of(out), values_of(whole)) << variant << ", steps of " << step;
    }
  }
}

// Tokens that each leave their state in a slot, the first slot being where the sequence began.
TEST(CausalConv1d, KeepsTheStateBehindEachToken) {
  constexpr int64_t kChannels = 600, kKernel = 4;
  ThreadPool pool(1);
  const Tensor weight = random_tensor({kKernel, kChannels}, DType::kFloat32, 1);
  const Tensor x = random_tensor({5, kChannels}, DType::kBFloat16, 2);
  for (const char* variant : kAllVariants) {
    const Tensor state = random_tensor({7, kKernel - 1, kChannels}, DType::kBFloat16, 3);
    const Tensor alone = copy_of(state);
    // The second sequence keeps its last state alone, and not where it began.
    StateBatch batch = state_batch_of({3, 2}, {9, 4});
    batch.state_slots = int32_tensor({5, 1});
    batch.token_slots = int32_tensor({6, 5, 2, -1, 3});
    const Tensor out = Tensor::zeros({5, kChannels}, DType::kBFloat16);
    if (!run(variant, pool, {x, weight, state, batch, out})) continue;
    for (const int32_t slot : {0, 1, 4}) {
      EXPECT_EQ(values_of(state.narrow(0, slot, 1)), values_of(alone.narrow(0, slot, 1)));
    }
    const Tensor expected = Tensor::zeros({5, kChannels}, DType::kBFloat16);
    StateBatch step = state_batch_of({1}, {9});
    step.state_slots = int32_tensor({5});
    for (int64_t t = 0; t < 5; ++t) {
      if (t == 3) {
        step = state_batch_of({1}, {4});
        step.state_slots = int32_tensor({1});
      }
      run(variant, pool, {x.narrow(0, t, 1), weight, alone, step, expected.narrow(0, t, 1)});
      const int32_t kept = batch.token_slots.data<int32_t>()[t];
      if (kept < 0) continue;
      const int32_t at = step.state_slots.data<int32_t>()[0];
      // Slot 5 is taken by the token behind before it is looked at.
      EXPECT_EQ(values_of(state.narrow(0, kept, 1)), values_of(alone.narrow(0, at, 1)))
          << variant << ", token " << t;
    }
    EXPECT_EQ(values_of(out), values_of(expected)) << variant;
  }
}

TEST(CausalConv1d, APaddedRowGivesZeroAndLeavesTheStates) {
  ThreadPool pool(1);
  const Tensor weight = random_tensor({4, 64}, DType::kFloat32, 1);
  const Tensor x = random_tensor({2, 64}, DType::kBFloat16, 2);
  for (const char* variant : kAllVariants) {
    StateBatch batch = state_batch_of({1, 1}, {4, 0});
    batch.state_slots = int32_tensor({1, -1});
    batch.seq_lens = int32_tensor({5, 0});
    const Tensor state = random_tensor({3, 3, 64}, DType::kBFloat16, 3);
    const Tensor before = copy_of(state);
    const Tensor out = random_tensor({2, 64}, DType::kBFloat16, 4);
    if (!run(variant, pool, {x, weight, state, batch, out})) continue;
    EXPECT_EQ(values_of(out.narrow(0, 1, 1)), std::vector<double>(64, 0.0)) << variant;
    EXPECT_EQ(values_of(state.narrow(0, 0, 1)), values_of(before.narrow(0, 0, 1))) << variant;
    EXPECT_EQ(values_of(state.narrow(0, 2, 1)), values_of(before.narrow(0, 2, 1))) << variant;
  }
}

TEST(CausalConv1dDeathTest, RefusesSlotsOutsideThePoolAndOtherShapes) {
  ThreadPool pool(1);
  const Tensor x = Tensor::zeros({1, 8}, DType::kFloat32);
  const Tensor out = Tensor::zeros({1, 8}, DType::kFloat32);
  const Tensor weight = Tensor::zeros({4, 8}, DType::kFloat32);
  StateBatch batch = state_batch_of({1}, {0});
  EXPECT_DEATH(causal_conv1d(Stream(&pool),
                             {x, weight, Tensor::zeros({1, 3, 8}, DType::kFloat32), batch, out}),
               "slot < args.num_slots");
  EXPECT_DEATH(causal_conv1d(Stream(&pool),
                             {x, weight, Tensor::zeros({2, 3, 4}, DType::kFloat32), batch, out}),
               "\\[causal_conv1d\\] state");
}

}  // namespace
}  // namespace atom::ops
