#include "layers/quant/quantized_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/attention/kv_scales.h"
#include "ops/quantize/quantize.h"
#include "ops/test_tensors.h"
#include "tensor/device_arena.h"
#include "tensor/float8.h"

namespace atom {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kIn = 32;
constexpr int64_t kPartRows = 64;
const QuantScheme kStatic = {QuantType::kPerTensor, QuantType::kPerTensor, true, false};
const QuantScheme kDynamic = {QuantType::kPerTensor, QuantType::kPerToken, false, false};
const QuantScheme kOnline = {QuantType::kPerToken, QuantType::kPerToken, false, true};

LinearPartition two_parts(int64_t rows = kPartRows) {
  LinearPartition partition;
  partition.out_slices = {{"gate", rows, {}}, {"up", rows, {}}};
  partition.in_features = kIn;
  return partition;
}

Tensor filled(const Shape& shape, DType dtype, float value) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    if (dtype == DType::kFloat8E4M3) {
      tensor.data<Float8E4M3>()[i] = from_float<Float8E4M3>(value);
    } else {
      tensor.data<float>()[i] = value;
    }
  }
  return tensor;
}

class Fp8 : public testing::Test {
 protected:
  // Weights of 1 in both parts; scales as given.
  Status load(QuantizedLinearMethod& method,
              std::pair<float, float> weight_scales,
              std::pair<float, float> input_scales = {},
              float weight = 1.0f) {
    method.allocate_parameters(stream_);
    for (const NamedParameter& named : method.named_parameters()) {
      for (const std::string id : {"gate", "up"}) {
        const bool gate = id == "gate";
        const auto& scales = named.name == "weight_scale" ? weight_scales : input_scales;
        const Tensor source =
            named.name == "weight"
                ? filled({named.parameter->shape()[0] / 2, kIn}, named.parameter->dtype(), weight)
                : filled({1}, DType::kFloat32, gate ? scales.first : scales.second);
        EXPECT_TRUE(named.parameter->load(source, id).ok());
      }
    }
    return method.finish_load(stream_);
  }

  // y of the first row of each part, for x with every element 1.
  std::pair<float, float> outputs(const QuantizedLinearMethod& method, int64_t rows = kPartRows) {
    const Tensor x = filled({3, kIn}, DType::kFloat32, 1.0f);
    const Tensor y = filled({3, 2 * rows}, DType::kFloat32, NAN);
    Workspace measuring;
    method.apply(Stream::dry_run(), x, Tensor(), y, measuring);
    Workspace workspace(measuring.peak_size());
    method.apply(stream_, x, Tensor(), y, workspace);
    return {y.data<float>()[0], y.data<float>()[rows]};
  }

  ThreadPool pool_{2};
  Stream stream_{&pool_};
  ModelConfig config_;
  BuildContext build_{config_, DType::kFloat32, 64};
};

TEST_F(Fp8, EachPartKeepsItsWeightScale) {
  QuantizedLinearMethod method(build_, kDynamic, two_parts());
  const int64_t planned = method.resident_bytes();
  ASSERT_TRUE(load(method, {0.5f, 0.3f}).ok());
  EXPECT_EQ(method.resident_bytes(), planned);
  EXPECT_EQ(planned, 2 * kPartRows * (kIn + 4));
  EXPECT_FLOAT_EQ(outputs(method).first, 0.5f * kIn);
  EXPECT_FLOAT_EQ(outputs(method).second, 0.3f * kIn);
}

// 1 / 0.3 is between two codes, 3.25 and 3.5; 1 / 0.25 is one.
TEST_F(Fp8, EachPartKeepsItsInputScale) {
  for (const int64_t rows : {kPartRows, int64_t{40}}) {
    QuantizedLinearMethod method(build_, kStatic, two_parts(rows));
    const int64_t planned = method.resident_bytes();
    ASSERT_TRUE(load(method, {1.0f, 1.0f}, {0.3f, 0.25f}).ok());
    EXPECT_EQ(method.resident_bytes(), planned);
    EXPECT_FLOAT_EQ(outputs(method, rows).first, 0.3f * 3.25f * kIn);
    EXPECT_FLOAT_EQ(outputs(method, rows).second, 1.0f * kIn);
  }
}

TEST_F(Fp8, PartsThatAgreeAreMultipliedTogether) {
  QuantizedLinearMethod method(build_, kStatic, two_parts());
  ASSERT_TRUE(load(method, {1.0f, 2.0f}, {0.3f, 0.3f}).ok());
  EXPECT_FLOAT_EQ(outputs(method).first, 0.3f * 3.25f * kIn);
  EXPECT_FLOAT_EQ(outputs(method).second, 2 * 0.3f * 3.25f * kIn);
}

// What a fused operator left quantized gives what the method makes of the float input.
TEST_F(Fp8, TakesInputThatIsQuantizedAlready) {
  for (const QuantScheme& scheme : {kDynamic, kStatic}) {
    QuantizedLinearMethod method(build_, scheme, two_parts());
    ASSERT_TRUE(load(method, {0.5f, 0.3f}, {0.3f, 0.3f}).ok());
    const Tensor x = Tensor::empty({3, kIn}, DType::kFloat32);
    for (int64_t i = 0; i < x.num_elements(); ++i) x.data<float>()[i] = std::sin(0.7f * i);
    const Tensor values = Tensor::empty(x.shape(), DType::kFloat8E4M3);
    const ActivationFormat wanted = method.wanted();
    EXPECT_FALSE(wanted.rows);
    Tensor scales = wanted.static_scale;
    if (scheme.static_activations) {
      ASSERT_EQ(wanted.codes, QuantType::kPerTensor);
      ops::quantize(stream_, x, {values, scales, QuantType::kPerTensor, true});
    } else {
      ASSERT_EQ(wanted.codes, QuantType::kPerToken);
      scales = Tensor::empty({3}, DType::kFloat32);
      ops::quantize(stream_, x, {values, scales});
    }
    const Tensor apart = filled({3, 2 * kPartRows}, DType::kFloat32, NAN);
    const Tensor together = filled({3, 2 * kPartRows}, DType::kFloat32, NAN);
    Workspace workspace(1 << 20);
    method.apply(stream_, x, Tensor(), apart, workspace);
    const ops::QuantizedRows rows = {values, scales, scheme.activations, scheme.static_activations};
    ASSERT_TRUE(wanted.takes(rows));
    method.apply(stream_, {Tensor(), rows}, Tensor(), together, workspace);
    for (int64_t i = 0; i < apart.num_elements(); ++i) {
      ASSERT_EQ(together.data<float>()[i], apart.data<float>()[i]) << i;
    }
  }
}

TEST_F(Fp8, PartsWithScalesOfTheirOwnQuantizeForThemselves) {
  QuantizedLinearMethod method(build_, kStatic, two_parts());
  ASSERT_TRUE(load(method, {1.0f, 1.0f}, {0.3f, 0.25f}).ok());
  EXPECT_FALSE(method.wanted().has_codes());
  EXPECT_TRUE(method.wanted().rows);
}

TEST_F(Fp8, ActivationsStayAsTheyAreWithoutEmulation) {
  build_.emulate_quantized_activations = false;
  QuantizedLinearMethod method(build_, kStatic, two_parts());
  ASSERT_TRUE(load(method, {1.0f, 1.0f}, {0.3f, 0.25f}).ok());
  EXPECT_FLOAT_EQ(outputs(method).first, 1.0f * kIn);
}

TEST_F(Fp8, QuantizesAFloatCheckpointByRows) {
  QuantizedLinearMethod method(build_, kOnline, two_parts());
  const int64_t planned = method.resident_bytes();
  // Every row's largest value is exact, whatever it is.
  ASSERT_TRUE(load(method, {}, {}, 0.37f).ok());
  EXPECT_EQ(method.resident_bytes(), planned);
  EXPECT_NEAR(outputs(method).first, 0.37f * kIn, 1e-5);
}

TEST_F(Fp8, RefusesNaNAndScalesThatAreNone) {
  build_.module_name = "model.layers.0.mlp.gate_up_proj";
  const auto error =
      [&](std::pair<float, float> weight, std::pair<float, float> input, float value) {
        QuantizedLinearMethod method(build_, kStatic, two_parts());
        return load(method, weight, input, value).message();
      };
  EXPECT_EQ(error({1, 1}, {1, 1}, NAN),
            "model.layers.0.mlp.gate_up_proj.weight: an element is NaN");
  EXPECT_THAT(error({1, 0}, {1, 1}, 1), HasSubstr("gate_up_proj.weight_scale: a scale is no"));
  EXPECT_THAT(error({1, 1}, {NAN, 1}, 1), HasSubstr("gate_up_proj.input_scale: a scale is no"));
}

// The same random parameters for a method wherever it computes: as a loader would bring them.
void load_random(const Stream& stream, QuantizedLinearMethod& method) {
  method.allocate_parameters(stream);
  uint64_t seed = 1;
  for (const NamedParameter& named : method.named_parameters()) {
    Parameter& parameter = *named.parameter;
    for (const std::string& id : parameter.missing_slices()) {
      const bool is_weight = named.name == "weight";
      Tensor source = is_weight ? ops::random_tensor({kPartRows, kIn}, DType::kFloat32, ++seed)
                                : filled({1}, DType::kFloat32, 0.01f * static_cast<float>(++seed));
      if (is_weight && parameter.dtype() == DType::kFloat8E4M3 &&
          parameter.place(source, 0)[0].encoder == nullptr) {
        const Tensor codes = Tensor::empty(source.shape(), DType::kFloat8E4M3);
        for (int64_t i = 0; i < codes.num_elements(); ++i) {
          codes.data<Float8E4M3>()[i] = from_float<Float8E4M3>(source.data<float>()[i]);
        }
        source = codes;
      }
      const Result<int> slice = parameter.claim(source.shape(), source.dtype(), id);
      ASSERT_TRUE(slice.ok()) << slice.status().message();
      const Parameter::Placement placement = parameter.place(source, *slice).at(0);
      if (placement.encoder != nullptr) {
        const Tensor rows = Tensor::empty(source.shape(), placement.encoder->source_dtype());
        copy_convert(source, rows);
        placement.encoder->encode(stream, resident_copy(stream, rows), placement.first_row);
      } else if (placement.target.device().is_cpu()) {
        copy_convert(source, placement.target);
      } else {
        const Tensor& target = placement.target;
        stream.queue().copy(target.raw_data(), source.raw_data(), source.num_bytes());
        stream.queue().synchronize();
      }
    }
  }
}

// y of random x, on the CPU.
Tensor random_outputs(const Stream& stream,
                      const QuantizedLinearMethod& method,
                      int64_t num_tokens) {
  const Tensor x = ops::random_tensor({num_tokens, kIn}, DType::kBFloat16, 9);
  const Tensor host_y = Tensor::zeros({num_tokens, 2 * kPartRows}, DType::kBFloat16);
  const bool on_cpu = stream.device().is_cpu();
  const Tensor y = on_cpu ? host_y : resident_copy(stream, host_y);
  Workspace measuring;
  method.apply(Stream::dry_run(stream.device()),
               Tensor::meta(x.shape(), x.dtype()),
               Tensor(),
               Tensor::meta(y.shape(), y.dtype()),
               measuring);
  Workspace workspace(stream, measuring.peak_size());
  method.apply(stream, resident_copy(stream, x), Tensor(), y, workspace);
  if (!on_cpu) {
    stream.queue().copy(host_y.raw_data(), y.raw_data(), y.num_bytes());
    stream.queue().synchronize();
  }
  return host_y;
}

TEST_F(Fp8, IsOnAGpuWhatItIsOnTheCpu) {
  if (ops::test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  const auto queue = ops::test_gpu()->create_queue();
  const Stream gpu(&pool_, queue.get());
  for (const QuantScheme& scheme : {kStatic, kDynamic, kOnline}) {
    for (const bool quantizes_activations : {true, false}) {
      for (const int64_t num_tokens : {3, 40, 300}) {
        std::vector<double> outputs[2];
        for (const Stream* stream : std::initializer_list<const Stream*>{&stream_, &gpu}) {
          BuildContext build{config_, DType::kBFloat16, 64, stream->device()};
          build.emulate_quantized_activations = quantizes_activations;
          QuantizedLinearMethod method(build, scheme, two_parts());
          const int64_t planned = method.resident_bytes();
          load_random(*stream, method);
          if (HasFatalFailure()) return;
          const Status finished = method.finish_load(*stream);
          ASSERT_TRUE(finished.ok()) << finished.message();
          EXPECT_EQ(method.resident_bytes(), planned);
          outputs[stream == &gpu] = ops::values_of(random_outputs(*stream, method, num_tokens));
        }
        for (size_t i = 0; i < outputs[0].size(); ++i) {
          // Two roundings to bfloat16, and what tensor cores cut off.
          ASSERT_NEAR(outputs[1][i], outputs[0][i], 0x1p-7 * std::abs(outputs[0][i]) + 2e-3)
              << scheme.to_string() << ", " << num_tokens << " tokens, " << i;
        }
      }
    }
  }
}

const std::vector<PackedModule> kMapping = {{"gate_proj", "gate_up_proj", "gate"},
                                            {"up_proj", "gate_up_proj", "up"}};

QuantConfig::Group group(const char* target, const QuantScheme& scheme) {
  return {{ModulePattern::parse(target).value()}, scheme};
}

TEST_F(Fp8, PartsOfAMergedLayerHaveToAgree) {
  build_.packed_modules_mapping = kMapping;
  config_.quantization.method = "compressed-tensors";
  config_.quantization.groups = {group("Linear", kDynamic)};
  config_.quantization.ignored = {ModulePattern::parse("re:.*up_proj").value()};
  build_.module_name = "mlp.gate_up_proj";
  make_linear_method(build_, two_parts());
  EXPECT_THAT(build_.status.message(), HasSubstr("mlp.gate_proj (fp8 weights per_Tensor"));
  EXPECT_THAT(build_.status.message(), HasSubstr("mlp.up_proj (none)"));
}

TEST_F(Fp8, IgnoredLayersAreNotQuantized) {
  build_.packed_modules_mapping = kMapping;
  config_.quantization.method = "fp8";
  config_.quantization.groups = {group("Linear", kDynamic)};
  config_.quantization.ignored = {ModulePattern::parse("re:.*mlp.*").value()};
  build_.module_name = "mlp.gate_up_proj";
  const auto ignored = make_linear_method(build_, two_parts());
  EXPECT_EQ(ignored->named_parameters().size(), 1u);
  build_.module_name = "attn.gate_up_proj";
  EXPECT_EQ(make_linear_method(build_, two_parts())->named_parameters().size(), 2u);
}

TEST(KVScales, OneServesForBothAndNoneIsOne) {
  ThreadPool pool(1);
  const auto loaded = [&](const std::vector<std::pair<std::string, float>>& values) {
    KVScales scales;
    scales.allocate_parameters(Stream(&pool));
    for (const NamedParameter& named : scales.named_parameters()) {
      EXPECT_TRUE(named.parameter->is_loaded());
      for (const auto& [name, value] : values) {
        if (name == named.name) {
          EXPECT_TRUE(named.parameter->load(filled({1}, DType::kFloat32, value)).ok());
        }
      }
    }
    EXPECT_TRUE(scales.finish_load(Stream(&pool)).ok());
    return std::pair(scales.k(), scales.v());
  };
  EXPECT_EQ(loaded({}), std::pair(1.0f, 1.0f));
  EXPECT_EQ(loaded({{"k_scale", 0.5f}, {"v_scale", 2.0f}}), std::pair(0.5f, 2.0f));
  EXPECT_EQ(loaded({{"k_scale", 0.5f}}), std::pair(0.5f, 0.5f));
  EXPECT_EQ(loaded({{"kv_scale", 3.0f}}), std::pair(3.0f, 3.0f));
}

}  // namespace
}  // namespace atom
