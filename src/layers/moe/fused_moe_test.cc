#include "layers/moe/fused_moe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ops/quantize/quantize.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom {
namespace {

constexpr int64_t kExperts = 3;
constexpr int64_t kShared = 2;
constexpr int64_t kHidden = 32;
constexpr int64_t kSize = 24;
constexpr int64_t kTokens = 5;

// The matrices of one projection, [num_matrices, rows, columns].
struct Stack {
  Tensor values;

  Tensor matrix(int64_t i) const {
    return values.narrow(0, i, 1).view({values.size(1), values.size(2)});
  }
  float at(int64_t i, int64_t row, int64_t column) const {
    return values.data<float>()[(i * values.size(1) + row) * values.size(2) + column];
  }
};

Stack random_stack(int64_t num_matrices, int64_t rows, int64_t columns, uint64_t seed) {
  return {ops::random_tensor({num_matrices, rows, columns}, DType::kFloat32, seed, 0.5f)};
}

Tensor generated(const Shape& shape, const std::function<float(int64_t, int64_t, int64_t)>& value) {
  const Tensor tensor = Tensor::empty(shape, DType::kFloat32);
  float* out = tensor.data<float>();
  for (int64_t i = 0; i < shape[0]; ++i) {
    for (int64_t j = 0; j < shape[1]; ++j) {
      for (int64_t k = 0; k < shape[2]; ++k) *out++ = value(i, j, k);
    }
  }
  return tensor;
}

double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

// One layer's experts, loaded in the ways in which checkpoints store them.
class FusedMoELayer : public testing::Test {
 protected:
  FusedMoELayer() { config_.hidden_size = kHidden; }

  using Load = std::function<void(Parameter& gate_up, Parameter& down)>;

  std::unique_ptr<FusedMoE> make(FusedMoEOptions options, const Load& load) {
    options.num_experts = options.num_experts > 0 ? options.num_experts : kExperts;
    options.intermediate_size = kSize;
    auto experts = std::make_unique<FusedMoE>(build_, options);
    const int64_t planned = experts->resident_bytes();
    experts->allocate_parameters(stream_);
    const std::vector<NamedParameter> parameters = experts->named_parameters();
    EXPECT_EQ(parameters[0].name, "gate_up_proj.weight");
    EXPECT_EQ(parameters[1].name, "down_proj.weight");
    load(*parameters[0].parameter, *parameters[1].parameter);
    for (const NamedParameter& named : parameters) EXPECT_TRUE(named.parameter->is_loaded());
    EXPECT_TRUE(experts->finish_load(stream_).ok());
    EXPECT_EQ(experts->resident_bytes(), planned);
    return experts;
  }

  // Why experts of a scheme cannot be built.
  std::string error_of(const QuantScheme& scheme) {
    config_.quantization.groups = {{every_linear(), scheme}};
    FusedMoEOptions options;
    options.num_experts = kExperts;
    options.intermediate_size = kSize;
    const FusedMoE experts(build_, options);
    return build_.status.message();
  }

  // A checkpoint of codes for rows.
  std::unique_ptr<FusedMoE> make_stored(QuantDType dtype) {
    FusedMoEOptions options;
    options.num_experts = kExperts;
    options.intermediate_size = kSize;
    auto experts = std::make_unique<FusedMoE>(build_, options);
    experts->allocate_parameters(stream_);
    const std::vector<NamedParameter> parameters = experts->named_parameters();
    const auto put_codes = [&](size_t weight, const Tensor& rows, const std::string& slice) {
      const ops::CodeFormat format = {
          QuantType::kPerToken, dtype == QuantDType::kInt8 ? DType::kInt8 : DType::kFloat8E4M3};
      Workspace memory(1 << 16);
      const ops::QuantizedRows codes =
          ops::quantized_rows(format, rows.size(0), rows.size(1), memory);
      ops::quantize(stream_, rows, codes);
      put(*parameters[weight].parameter, codes.values, slice);
      put(*parameters[weight + 1].parameter, codes.scales.view({rows.size(0), 1}), slice);
    };
    for (int64_t e = 0; e < kExperts; ++e) {
      const std::string id = std::to_string(e);
      put_codes(0, gate_.matrix(e), id + ".gate");
      put_codes(0, up_.matrix(e), id + ".up");
      put_codes(2, down_.matrix(e), id + ".down");
    }
    EXPECT_TRUE(experts->finish_load(stream_).ok());
    return experts;
  }

  void put(Parameter& parameter, const Tensor& source, const std::string& slice) {
    const Status status = parameter.load(source, slice);
    EXPECT_TRUE(status.ok()) << slice << ": " << status.message();
  }

  // Matrix i of gate, up and down for expert i.
  Load expert_by_expert(int64_t num_experts) {
    return [=, this](Parameter& gate_up, Parameter& down) {
      for (int64_t e = 0; e < num_experts; ++e) {
        const std::string id = std::to_string(e);
        put(gate_up, up_.matrix(e), id + ".up");
        put(down, down_.matrix(e), id + ".down");
        put(gate_up, gate_.matrix(e), id + ".gate");
      }
    };
  }

  // Token t by experts t and t + 1 of the first three, and the others with weight 1.
  std::vector<double> outputs(const FusedMoE& experts, int64_t num_others = 0) {
    return outputs_of(experts, x_, num_others);
  }

  std::vector<double> outputs_of(const FusedMoE& experts,
                                 const Activation& x,
                                 int64_t num_others = 0) {
    MoeRouter::Choice choice = {Tensor::empty({kTokens, 2 + num_others}, DType::kInt32),
                                Tensor::empty({kTokens, 2 + num_others}, DType::kFloat32)};
    int32_t* ids = choice.ids.data<int32_t>();
    float* weights = choice.weights.data<float>();
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t j = 0; j < 2 + num_others; ++j) {
        *ids++ = static_cast<int32_t>(j < 2 ? (t + j) % kExperts : kExperts + j - 2);
        *weights++ = j < 2 ? 0.25f + 0.5f * static_cast<float>(j) : 1.0f;
      }
    }
    const Tensor y = Tensor::empty({kTokens, kHidden}, DType::kFloat32);
    experts.forward(x, choice, y, context_);
    return ops::values_of(y);
  }

  ThreadPool pool_{2};
  Stream stream_{&pool_};
  Workspace workspace_{1 << 20};
  LayerStorage storage_;
  ForwardContext context_{.stream = stream_,
                          .workspace = workspace_,
                          .token_ids = {},
                          .positions = {},
                          .batch = {},
                          .storage = storage_};
  ModelConfig config_;
  BuildContext build_{config_, DType::kFloat32, 64};
  const Stack gate_ = random_stack(kExperts + kShared, kSize, kHidden, 1);
  const Stack up_ = random_stack(kExperts + kShared, kSize, kHidden, 2);
  const Stack down_ = random_stack(kExperts + kShared, kHidden, kSize, 3);
  const Tensor x_ = ops::random_tensor({kTokens, kHidden}, DType::kFloat32, 4);
};

TEST_F(FusedMoELayer, AllExpertsInOneTensorAreTheSameExperts) {
  const auto apart = make({}, expert_by_expert(kExperts));
  const auto together = make({}, [&](Parameter& gate_up, Parameter& down) {
    const auto value = [&](int64_t e, int64_t row, int64_t k) {
      return row < kSize ? gate_.at(e, row, k) : up_.at(e, row - kSize, k);
    };
    put(gate_up, generated({kExperts, 2 * kSize, kHidden}, value), "");
    put(down, down_.values.narrow(0, 0, kExperts), "");
  });
  EXPECT_EQ(outputs(*together), outputs(*apart));
}

// gpt-oss: input dimension first, gate and up by turns.
TEST_F(FusedMoELayer, TransposedInterleavedTensorsAreTheSameExperts) {
  const auto apart = make({}, expert_by_expert(kExperts));
  FusedMoEOptions options;
  options.activation.is_interleaved = true;
  options.is_transposed = true;
  const auto turned = make(options, [&](Parameter& gate_up, Parameter& down) {
    const auto gate_or_up = [&](int64_t e, int64_t k, int64_t column) {
      const Stack& stack = column % 2 == 0 ? gate_ : up_;
      return stack.at(e, column / 2, k);
    };
    put(gate_up, generated({kExperts, kHidden, 2 * kSize}, gate_or_up), "");
    const auto transposed = [&](int64_t e, int64_t i, int64_t h) { return down_.at(e, h, i); };
    put(down, generated({kExperts, kSize, kHidden}, transposed), "");
  });
  EXPECT_EQ(outputs(*turned), outputs(*apart));
}

// The shared experts' tensors are as wide as all of them: slots that every token chooses.
TEST_F(FusedMoELayer, SharedExpertsAreMoreSlots) {
  FusedMoEOptions more;
  more.num_experts = kExperts + kShared;
  const auto all = make(more, expert_by_expert(kExperts + kShared));
  FusedMoEOptions options;
  options.num_shared = kShared;
  const auto shared = make(options, [&](Parameter& gate_up, Parameter& down) {
    expert_by_expert(kExperts)(gate_up, down);
    const auto rows_of = [&](const Stack& stack) {
      return stack.values.narrow(0, kExperts, kShared).view({kShared * kSize, kHidden});
    };
    put(gate_up, rows_of(gate_), "shared.gate");
    put(gate_up, rows_of(up_), "shared.up");
    const auto columns = [&](int64_t, int64_t h, int64_t column) {
      return down_.at(kExperts + column / kSize, h, column % kSize);
    };
    put(down,
        generated({1, kHidden, kShared * kSize}, columns).view({kHidden, kShared * kSize}),
        "shared.down");
  });
  EXPECT_EQ(outputs(*shared, kShared), outputs(*all, kShared));
}

// Rows are quantized one by one: what quantize() gives is what a checkpoint would have stored.
TEST_F(FusedMoELayer, QuantizedWhileLoadingIsQuantizedBefore) {
  for (const QuantDType dtype : {QuantDType::kFloat8E4M3, QuantDType::kInt8}) {
    QuantScheme scheme = {QuantType::kPerToken, QuantType::kPerToken};
    scheme.weight_dtype = scheme.activation_dtype = dtype;
    const auto with_scheme = [&](bool online, bool quantizes_activations) {
      scheme.online = online;
      config_.quantization.groups = {{every_linear(), scheme}};
      build_.emulate_quantized_activations = quantizes_activations;
    };
    with_scheme(true, true);
    const auto online = make({}, expert_by_expert(kExperts));
    with_scheme(true, false);
    const auto wide = make({}, expert_by_expert(kExperts));
    config_.quantization.groups.clear();
    const auto plain = make({}, expert_by_expert(kExperts));
    with_scheme(false, true);
    const auto stored = make_stored(dtype);
    EXPECT_EQ(outputs(*online), outputs(*stored));
    // Codes of 8 bits for weights alone are nearer to the floats than with codes for activations.
    const double of_weights = relative_distance(outputs(*wide), outputs(*plain));
    const double of_both = relative_distance(outputs(*online), outputs(*plain));
    EXPECT_GT(of_weights, 1e-4);
    EXPECT_GT(of_both, 1.1 * of_weights);
    EXPECT_LT(of_both, 0.06);
  }
}

// Three groups of an expert on two ranks: two and one, with the codes of a rank that has all.
TEST_F(FusedMoELayer, PartsOfExpertsEndWhereScalesDo) {
  constexpr int64_t kGroups = 96;
  QuantScheme scheme = {QuantType::kPer1x32, QuantType::kPer1x32, false, true};
  scheme.weight_dtype = scheme.activation_dtype = QuantDType::kFloat4E2M1;
  config_.quantization.groups = {{every_linear(), scheme}};
  build_.emulate_quantized_activations = false;
  const Stack gate = random_stack(kExperts, kGroups, kHidden, 5);
  const Stack up = random_stack(kExperts, kGroups, kHidden, 6);
  const Stack down = random_stack(kExperts, kHidden, kGroups, 7);
  const auto outputs_on = [&](int32_t rank, int32_t world, int64_t part) {
    build_.parallel.tensor_parallel_rank = rank;
    build_.parallel.tensor_parallel_size = world;
    FusedMoEOptions options;
    options.num_experts = kExperts;
    options.intermediate_size = kGroups;
    FusedMoE experts(build_, options);
    EXPECT_TRUE(build_.status.ok()) << build_.status.message();
    experts.allocate_parameters(stream_);
    const std::vector<NamedParameter> parameters = experts.named_parameters();
    EXPECT_EQ(parameters[1].parameter->shape()[2], part);
    for (int64_t e = 0; e < kExperts; ++e) {
      const std::string id = std::to_string(e);
      put(*parameters[0].parameter, gate.matrix(e), id + ".gate");
      put(*parameters[0].parameter, up.matrix(e), id + ".up");
      put(*parameters[1].parameter, down.matrix(e), id + ".down");
    }
    EXPECT_TRUE(experts.finish_load(stream_).ok());
    return outputs(experts);
  };
  const std::vector<double> whole = outputs_on(0, 1, 96);
  std::vector<double> sum = outputs_on(0, 2, 64);
  const std::vector<double> second = outputs_on(1, 2, 32);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
  EXPECT_GT(relative_distance(second, whole), 0.1);
  EXPECT_LT(relative_distance(sum, whole), 1e-5);
}

TEST_F(FusedMoELayer, FewerGroupsThanRanksAreRefused) {
  QuantScheme scheme = {QuantType::kPer1x32, QuantType::kPer1x32, false, true};
  scheme.weight_dtype = scheme.activation_dtype = QuantDType::kFloat4E2M1;
  config_.quantization.groups = {{every_linear(), scheme}};
  build_.parallel.tensor_parallel_size = 4;
  FusedMoEOptions options;
  options.num_experts = kExperts;
  options.intermediate_size = 96;
  const FusedMoE experts(build_, options);
  EXPECT_EQ(build_.status.message(),
            "--tensor-parallel-size 4:  has 96 inputs of an expert, less than one group of 32 that "
            "share a scale for each rank");
}

TEST_F(FusedMoELayer, GroupsThatDoNotDivideAreRefusedWhileLoading) {
  QuantScheme scheme = {QuantType::kPer1x32, QuantType::kPer1x32, false, true};
  scheme.weight_dtype = scheme.activation_dtype = QuantDType::kFloat4E2M1;
  EXPECT_EQ(error_of(scheme),
            "down_proj: 24 inputs do not divide into groups of 32 that share a scale");
}

TEST_F(FusedMoELayer, GroupsOfActivationsThatWeightsDoNotHaveAreRefused) {
  const QuantScheme scheme = {QuantType::kPerToken, QuantType::kPer1x128};
  EXPECT_EQ(error_of(scheme),
            "gate_up_proj: experts with " + scheme.to_string() + " are not supported");
}

// The largest of the experts' scales is that of the layer.
TEST_F(FusedMoELayer, GivenScalesOfActivationsAreOneForALayer) {
  QuantScheme scheme = {QuantType::kPerTensor, QuantType::kPerTensor, true};
  const auto with_scales = [&](float first, float others) {
    config_.quantization.groups = {{every_linear(), scheme}};
    FusedMoEOptions options;
    options.num_experts = kExperts;
    options.intermediate_size = kSize;
    auto experts = std::make_unique<FusedMoE>(build_, options);
    experts->allocate_parameters(stream_);
    for (const NamedParameter& named : experts->named_parameters()) {
      Parameter& parameter = *named.parameter;
      for (int64_t i = 0; i < parameter.data().num_elements(); ++i) {
        if (named.name.ends_with(".weight")) {
          parameter.data().data<Float8E4M3>()[i] =
              from_float<Float8E4M3>(static_cast<float>(i % 7 - 3));
        } else {
          const bool is_input = named.name.ends_with("input_scale");
          parameter.data().data<float>()[i] = !is_input ? 0.01f : i == 0 ? first : others;
        }
      }
      parameter.mark_loaded();
    }
    EXPECT_TRUE(experts->finish_load(stream_).ok());
    return outputs(*experts);
  };
  EXPECT_EQ(with_scales(0.02f, 0.01f), with_scales(0.02f, 0.02f));
  EXPECT_NE(with_scales(0.02f, 0.01f), with_scales(0.01f, 0.01f));
  build_.emulate_quantized_activations = false;
  EXPECT_EQ(with_scales(0.02f, 0.01f), with_scales(0.01f, 0.01f));
}

// --moe-activations fp8: codes of tokens change results by as much as they round.
TEST_F(FusedMoELayer, ExpertsInMxfp4MultiplyActivationsInFp8OnRequest) {
  QuantScheme scheme = {QuantType::kPer1x32, QuantType::kNo};
  scheme.weight_dtype = QuantDType::kFloat4E2M1;
  config_.quantization.groups = {{every_linear(), scheme}};
  FusedMoEOptions options;
  options.num_experts = kExperts;
  options.intermediate_size = 160;
  const auto outputs_with = [&](bool float8_activations) {
    build_.float8_expert_activations = float8_activations;
    FusedMoE experts(build_, options);
    EXPECT_TRUE(build_.status.ok()) << build_.status.message();
    experts.allocate_parameters(stream_);
    for (const NamedParameter& named : experts.named_parameters()) {
      auto* const bytes = named.parameter->data().data<uint8_t>();
      const bool are_codes = named.name.ends_with(".weight");
      for (int64_t i = 0; i < named.parameter->data().num_elements(); ++i) {
        bytes[i] = static_cast<uint8_t>(are_codes ? i * 37 % 251 : 124 + i % 3);
      }
      named.parameter->mark_loaded();
    }
    EXPECT_TRUE(experts.finish_load(stream_).ok());
    return outputs(experts);
  };
  const double distance = relative_distance(outputs_with(true), outputs_with(false));
  EXPECT_GT(distance, 1e-3);
  EXPECT_LT(distance, 0.06);
}

TEST_F(FusedMoELayer, ActivationsInFp8AreForExpertsInMxfp4) {
  build_.float8_expert_activations = true;
  const QuantScheme scheme = {QuantType::kPerToken, QuantType::kPerToken};
  EXPECT_EQ(error_of(scheme),
            "--moe-activations fp8 is for experts in MXFP4 whose checkpoint leaves activations as "
            "they are; gate_up_proj has " +
                scheme.to_string());
}

// What the norm before leaves is what the experts would make of rows themselves.
TEST_F(FusedMoELayer, ReadsCodesWithAScaleForEach128) {
  config_.quantization.groups = {{every_linear(), {QuantType::kPer128x128, QuantType::kPer1x128}}};
  FusedMoEOptions options;
  options.num_experts = kExperts;
  options.intermediate_size = kSize;
  FusedMoE experts(build_, options);
  ASSERT_TRUE(build_.status.ok()) << build_.status.message();
  experts.allocate_parameters(stream_);
  for (const NamedParameter& named : experts.named_parameters()) {
    Parameter& parameter = *named.parameter;
    for (int64_t i = 0; i < parameter.data().num_elements(); ++i) {
      if (named.name.ends_with(".weight")) {
        parameter.data().data<Float8E4M3>()[i] =
            from_float<Float8E4M3>(static_cast<float>(i % 7 - 3));
      } else {
        parameter.data().data<float>()[i] = 0.01f;
      }
    }
    parameter.mark_loaded();
  }
  ASSERT_TRUE(experts.finish_load(stream_).ok());
  const ActivationFormat format = experts.wanted();
  ASSERT_EQ(format.codes, QuantType::kPer1x128);
  EXPECT_TRUE(format.rows);
  Workspace memory(1 << 16);
  const ops::QuantizedRows codes = make_codes(format, kTokens, kHidden, memory);
  ops::quantize(stream_, x_, codes);
  const std::vector<double> expected = outputs(experts);
  // Nothing else is read of x.
  const Tensor zeros = Tensor::zeros(x_.shape(), x_.dtype());
  EXPECT_EQ(outputs_of(experts, {zeros, codes}), expected);
  EXPECT_NE(outputs_of(experts, zeros), expected);
}

TEST_F(FusedMoELayer, AnEmptySlotOfASharedExpertIsMissing) {
  FusedMoEOptions options;
  options.num_experts = kExperts;
  options.num_shared = kShared;
  options.intermediate_size = kSize;
  FusedMoE experts(build_, options);
  experts.allocate_parameters(stream_);
  const std::vector<NamedParameter> parameters = experts.named_parameters();
  expert_by_expert(kExperts)(*parameters[0].parameter, *parameters[1].parameter);
  EXPECT_EQ(parameters[0].parameter->missing_slices(),
            (std::vector<std::string>{"shared.gate", "shared.up"}));
  EXPECT_EQ(parameters[1].parameter->missing_slices(), std::vector<std::string>{"shared.down"});
}

}  // namespace
}  // namespace atom
