#include "ops/gated_delta_net/gated_delta_net.h"

#include <gtest/gtest.h>

#include <random>

#include "ops/gated_delta_net/gated_delta_net_variants.h"
#include "ops/quantize/quantize_variants.h"
#include "ops/quantize/test_codes.h"
#include "ops/test_batches.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

struct Sizes {
  int64_t num_k_heads, num_v_heads, head_dim;

  int64_t value_dim() const { return num_v_heads * head_dim; }
  int64_t num_channels() const { return 2 * num_k_heads * head_dim + value_dim(); }
};

GatedDeltaNetParams random_call(const Sizes& sizes,
                                const StateBatch& batch,
                                DType dtype,
                                DType state_dtype = DType::kFloat32) {
  const int64_t num_sequences = batch.seq_lens.size(0);
  const int64_t num_tokens = batch.query_start.data<int32_t>()[num_sequences];
  const int64_t num_slots =
      num_sequences + 2 + (batch.token_slots.defined() ? batch.token_slots.size(0) : 0);
  const int64_t channels = sizes.num_channels(), heads = sizes.num_v_heads;
  GatedDeltaNetParams params;
  const Tensor qkvz = random_tensor({num_tokens, channels + sizes.value_dim()}, dtype, 1, 2.0f);
  params.qkv = qkvz.narrow(1, 0, channels);
  params.z = qkvz.narrow(1, channels, sizes.value_dim());
  params.num_k_heads = sizes.num_k_heads;
  const Tensor ba = random_tensor({num_tokens, 2 * heads}, dtype, 2, 3.0f);
  params.b = ba.narrow(1, 0, heads);
  params.a = ba.narrow(1, heads, heads);
  params.conv_weight = random_tensor({4, channels}, DType::kFloat32, 3);
  params.a_log = Tensor::zeros({heads}, DType::kFloat32);
  for (int64_t head = 0; head < heads; ++head) {
    params.a_log.data<float>()[head] = 2.0f - 2.0f * static_cast<float>(head);
  }
  params.dt_bias = random_tensor({heads}, DType::kFloat32, 4);
  params.norm_weight = random_tensor({sizes.head_dim}, DType::kFloat32, 5, 2.0f);
  params.eps = 1e-6f;
  params.conv_state = random_tensor({num_slots, 3, channels}, dtype, 6, 2.0f);
  params.state = random_tensor({num_slots, heads, sizes.head_dim, sizes.head_dim}, state_dtype, 7);
  params.batch = batch;
  params.out = random_tensor({num_tokens, sizes.value_dim()}, dtype, 8);
  return params;
}

// On the GPU for its variants, else on the CPU.
bool run(const char* variant, bool on_gpu, const GatedDeltaNetParams& params) {
  ThreadPool pool(2);
  std::vector<Tensor> tensors = {params.qkv,
                                 params.a,
                                 params.b,
                                 params.z,
                                 params.conv_weight,
                                 params.a_log,
                                 params.dt_bias,
                                 params.norm_weight,
                                 params.conv_state,
                                 params.state,
                                 params.out,
                                 params.codes.values,
                                 params.codes.scales,
                                 params.gate_x,
                                 params.gate_weight.data};
  append_tensors(params.batch, &tensors);
  Placed at(on_gpu, pool, tensors);
  GatedDeltaNetParams placed = params;
  placed.qkv = at(params.qkv);
  placed.a = at(params.a);
  placed.b = at(params.b);
  placed.z = at(params.z);
  placed.conv_weight = at(params.conv_weight);
  placed.a_log = at(params.a_log);
  placed.dt_bias = at(params.dt_bias);
  placed.norm_weight = at(params.norm_weight);
  placed.conv_state = at(params.conv_state);
  placed.state = at(params.state);
  placed.out = at(params.out);
  placed.gate_x = at(params.gate_x);
  placed.gate_weight.data = at(params.gate_weight.data);
  placed.codes.values = at(params.codes.values);
  placed.codes.scales = at(params.codes.scales);
  placed.batch = placed_batch(params.batch, at);
  Workspace measuring;
  gated_delta_net(Stream::dry_run(at.stream().device()), placed, measuring);
  Workspace scratch(at.stream(), measuring.peak_size());
  const bool ran = gated_delta_net_by(variant, at.stream(), placed, scratch);
  at.finish();
  return ran;
}

GatedDeltaNetParams copied(const GatedDeltaNetParams& params) {
  GatedDeltaNetParams copy = params;
  copy.conv_state = copy_of(params.conv_state);
  copy.state = copy_of(params.state);
  copy.out = copy_of(params.out);
  return copy;
}

// One by one on the CPU, which their own tests cover. `parts`: the same call with b and a.
void expect_composed(const char* variant,
                     const GatedDeltaNetParams& params,
                     const GatedDeltaNetParams& parts) {
  GatedDeltaNetParams expected = copied(parts);
  ASSERT_TRUE(run("composed", false, expected));
  const std::string what = std::string(variant) + " " + params.qkv.to_string();
  GatedDeltaNetParams got = copied(params);
  if (!run(variant, true, got)) return;
  // Any of three roundings may go the other way, that of the rule's result by a whole unit.
  expect_close(got.out, values_of(expected.out), 3.1 * half_ulp(got.out.dtype()), 2e-3, what);
  EXPECT_EQ(values_of(got.conv_state), values_of(expected.conv_state)) << what;
  // A convolution's output that is rounded the other way.
  const double of_state =
      got.state.dtype() == DType::kFloat32 ? 1e-5 : 2.1 * half_ulp(got.state.dtype());
  expect_close(got.state, values_of(expected.state), of_state, 4 * half_ulp(got.out.dtype()), what);
}

void expect_composed(const char* variant, const GatedDeltaNetParams& params) {
  expect_composed(variant, params, params);
}

struct Case {
  Sizes sizes;
  std::vector<int32_t> new_tokens, old_tokens;
};

const char* const kVariants[] = {"resident", "sm90", "composed"};  // those that are there

const Case kCases[] = {
    {{1, 1, 128}, {1}, {0}},
    {{2, 4, 128}, {1, 1, 1}, {3, 0, 9}},
    {{1, 3, 128}, {2, 0, 8, 1}, {1, 4, 0, 2}},
    {{4, 8, 128}, std::vector<int32_t>(40, 1), std::vector<int32_t>(40, 5)},
    {{4, 8, 128}, std::vector<int32_t>(33, 3), std::vector<int32_t>(33, 2)},
    {{2, 16, 128}, {1, 3}, {7, 7}},
    {{2, 4, 128}, {70, 1, 9}, {0, 5, 200}},
    {{2, 4, 32}, {1, 2}, {4, 0}},
};

TEST(GatedDeltaNet, IsItsOperatorsOneAfterTheOther) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "the CPU has no other variant";
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const Case& c : kCases) {
      StateBatch batch = state_batch_of(c.new_tokens, c.old_tokens);
      batch.max_queries = *std::max_element(c.new_tokens.begin(), c.new_tokens.end());
      for (const DType state : {DType::kFloat32, DType::kBFloat16}) {
        const GatedDeltaNetParams params = random_call(c.sizes, batch, dtype, state);
        for (const char* variant : kVariants) expect_composed(variant, params);
      }
    }
  }
}

// Tokens that each leave their states in a slot, of which one is where the sequence began.
TEST(GatedDeltaNet, KeepsTheStatesBehindEachToken) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "the CPU has no other variant";
  StateBatch batch = state_batch_of({4, 2, 1}, {9, 0, 3});
  batch.state_slots = int32_tensor({5, 1, 8});
  batch.token_slots = int32_tensor({6, 5, 2, 0, -1, 3, 7});
  batch.max_queries = 4;
  for (const DType state : {DType::kFloat32, DType::kBFloat16}) {
    const GatedDeltaNetParams params = random_call({2, 4, 128}, batch, DType::kBFloat16, state);
    for (const char* variant : kVariants) expect_composed(variant, params);
  }
}

// A call whose b and a are products, which are exact in any order: of a row of x few elements are 1
// or -1 and the others 0, and sums are at most 240 / 64.
struct ProjectedCall {
  GatedDeltaNetParams params, parts;  // the call, and the same with b and a

  ProjectedCall(const StateBatch& batch, int64_t hidden_size, DType dtype)
      : params(random_call({2, 4, 128}, batch, dtype)), parts(params) {
    const int64_t num_tokens = params.qkv.size(0), num_rows = 2 * params.a_log.size(0);
    std::mt19937 random(static_cast<uint32_t>(hidden_size));
    const Tensor x = Tensor::zeros({num_tokens, hidden_size + 8}, dtype);
    const Tensor weight = Tensor::zeros({num_rows, hidden_size}, dtype);
    const Tensor ba = Tensor::zeros({num_tokens, num_rows}, dtype);
    dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
      for (int64_t i = 0; i < weight.num_elements(); ++i) {
        weight.data<T>()[i] = from_float<T>((static_cast<float>(random() % 13) - 6) / 64);
      }
      for (int64_t t = 0; t < num_tokens; ++t) {
        T* row = x.data<T>() + t * x.size(1);
        for (int i = 0; i < 40; ++i) {
          row[random() % hidden_size] = from_float<T>(random() % 2 == 0 ? 1.0f : -1.0f);
        }
        for (int64_t r = 0; r < num_rows; ++r) {
          float sum = 0;
          for (int64_t k = 0; k < hidden_size; ++k) {
            sum += to_float(row[k]) * to_float(weight.data<T>()[r * hidden_size + k]);
          }
          ba.data<T>()[t * num_rows + r] = from_float<T>(sum);
        }
      }
    });
    parts.b = ba.narrow(1, 0, num_rows / 2);
    parts.a = ba.narrow(1, num_rows / 2, num_rows / 2);
    params.a = params.b = Tensor();
    params.gate_x = x.narrow(1, 0, hidden_size);
    params.gate_weight.data = weight;
    params.gate_weight.out_features = num_rows;
    params.gate_weight.in_features = hidden_size;
  }
};

// Of fewer columns than threads, of a vector each, and of more; of tokens that the kernel takes
// with the projection and of more, which it refuses.
TEST(GatedDeltaNet, MultipliesItsGates) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const int64_t hidden_size : {40, 2048, 2560}) {
      for (const std::vector<int32_t>& new_tokens :
           {std::vector<int32_t>{1}, {1, 3, 8}, {8, 8}, std::vector<int32_t>(17, 1)}) {
        StateBatch batch = state_batch_of(new_tokens, std::vector<int32_t>(new_tokens.size(), 5));
        batch.max_queries = *std::max_element(new_tokens.begin(), new_tokens.end());
        const ProjectedCall call(batch, hidden_size, dtype);
        GatedDeltaNetParams got = copied(call.params), expected = copied(call.parts);
        ASSERT_TRUE(run("composed", false, got));
        ASSERT_TRUE(run("composed", false, expected));
        EXPECT_EQ(values_of(got.out), values_of(expected.out));
        EXPECT_EQ(values_of(got.state), values_of(expected.state));
        if (test_gpu() == nullptr) continue;
        for (const char* variant : kVariants) expect_composed(variant, call.params, call.parts);
        const bool is_short = dtype != DType::kFloat32 && call.params.qkv.size(0) <= 16;
        EXPECT_EQ(run("sm90", true, got), is_short);
      }
    }
  }
}

// Bit for bit those of the rows that the same variant gives.
TEST(GatedDeltaNet, LeavesTheCodesOfItsRows) {
  const bool has_gpu = test_gpu() != nullptr;
  ThreadPool pool(2);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    for (const Case& c : kCases) {
      StateBatch batch = state_batch_of(c.new_tokens, c.old_tokens);
      batch.max_queries = *std::max_element(c.new_tokens.begin(), c.new_tokens.end());
      for (const char* variant : kVariants) {
        GatedDeltaNetParams rows = random_call(c.sizes, batch, dtype), got = copied(rows);
        got.codes = spoiled_group_codes(rows.out.size(0), rows.out.size(1));
        const QuantizedRows expected = spoiled_group_codes(rows.out.size(0), rows.out.size(1));
        if (!run(variant, has_gpu, rows)) continue;
        ASSERT_TRUE(run(variant, has_gpu, got));
        ASSERT_TRUE(quantize_by("reference", Stream(&pool), rows.out, expected));
        const std::string what = std::string(variant) + " " + rows.qkv.to_string();
        EXPECT_TRUE(have_same_bits(got.codes, expected)) << what;
      }
    }
  }
}

// A step's last sequence has all rows that are left, more than a sequence that is there.
TEST(GatedDeltaNet, PaddedRowsGiveZeroAndLeaveTheStates) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "the CPU has no other variant";
  for (const int32_t num_rows : {1, 9, 29}) {
    StateBatch batch = state_batch_of({1, num_rows}, {4, 0});
    batch.state_slots = int32_tensor({1, -1});
    batch.seq_lens = int32_tensor({5, 0});
    batch.max_queries = 4;
    const GatedDeltaNetParams params = random_call({1, 2, 128}, batch, DType::kBFloat16);
    for (const char* variant : kVariants) expect_composed(variant, params);
  }
}

// More sequences than multiprocessors have room for at once share a launch with padding.
TEST(GatedDeltaNet, PaddingBehindManySequencesGivesZeroAndLeavesTheStates) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "the CPU has no other variant";
  constexpr int kSequences = 40;
  StateBatch batch =
      state_batch_of(std::vector<int32_t>(kSequences, 1), std::vector<int32_t>(kSequences, 5));
  for (int i = kSequences / 2; i < kSequences; ++i) {
    batch.state_slots.data<int32_t>()[i] = -1;
    batch.seq_lens.data<int32_t>()[i] = 0;
  }
  batch.max_queries = 1;
  for (const DType state : {DType::kFloat32, DType::kBFloat16}) {
    const GatedDeltaNetParams params = random_call({8, 16, 128}, batch, DType::kBFloat16, state);
    for (const char* variant : kVariants) expect_composed(variant, params);
  }
}

// So many that blocks stay for several, among them padding and sequences without history; where a
// key head has three value heads, states end in other slots than they began in.
TEST(GatedDeltaNet, TakesManySequencesOfAnyNumberOfHeads) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "the CPU has no other variant";
  constexpr int kSequences = 29;
  const std::pair<int, DType> kHeads[] = {{1, DType::kFloat32},
                                          {2, DType::kFloat32},
                                          {2, DType::kBFloat16},
                                          {3, DType::kBFloat16},
                                          {4, DType::kFloat32},
                                          {4, DType::kBFloat16}};
  for (const auto& [heads, state] : kHeads) {
    std::vector<int32_t> old_tokens(kSequences, 5);
    for (int i = 0; i < kSequences; i += 4) old_tokens[i] = 0;
    StateBatch batch = state_batch_of(std::vector<int32_t>(kSequences, 1), old_tokens);
    for (int i = 3; i < kSequences; i += 5) {
      batch.state_slots.data<int32_t>()[i] = -1;
      batch.seq_lens.data<int32_t>()[i] = 0;
    }
    if (heads == 3) {
      batch.token_slots = copy_of(batch.state_slots);
      for (int i = 1; i < kSequences; i += 2) {
        int32_t& slot = batch.token_slots.data<int32_t>()[i];
        if (slot >= 0) slot += kSequences + 1;
      }
    }
    batch.max_queries = 1;
    const GatedDeltaNetParams params =
        random_call({16, 16 * heads, 128}, batch, DType::kBFloat16, state);
    for (const char* variant : kVariants) expect_composed(variant, params);
  }
}

TEST(GatedDeltaNet, RunsOnTheCpu) {
  const GatedDeltaNetParams params =
      random_call({2, 4, 32}, state_batch_of({1, 9}, {3, 0}), DType::kFloat32);
  ASSERT_TRUE(run("composed", false, params));
  double squares = 0;
  for (const double value : values_of(params.out)) squares += value * value;
  EXPECT_TRUE(std::isfinite(squares));
  EXPECT_FALSE(run("no such variant", false, params));
}

TEST(GatedDeltaNetDeathTest, RefusesOtherShapes) {
  GatedDeltaNetParams params = random_call({1, 2, 32}, state_batch_of({3}, {0}), DType::kFloat32);
  params.z = params.z.narrow(1, 0, 32);
  ThreadPool pool(1);
  Workspace scratch;
  EXPECT_DEATH(gated_delta_net(Stream(&pool), params, scratch), "\\[gated_delta_net\\] .*NV\\*DV");
}

}  // namespace
}  // namespace atom::ops
