// Weights of every storage that a scheme can ask for, by the products that they give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "layers/quant/quantized_linear.h"
#include "ops/test_tensors.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace atom {
namespace {

using ::testing::HasSubstr;

// Every storage gives the product of a random x and the dequantized weight in double, in the
// memory that the plan said.
struct StoredCase {
  QuantScheme scheme;
  int64_t in_features;
};

constexpr int64_t kGateRows = 320, kUpRows = 200;

const StoredCase kStored[] = {
    {{QuantType::kPer128x128, QuantType::kPer1x128}, 320},
    {{QuantType::kPerToken,
      QuantType::kPerToken,
      false,
      false,
      QuantDType::kInt8,
      QuantDType::kInt8},
     96},
    {{QuantType::kPerTensor,
      QuantType::kPerTensor,
      true,
      false,
      QuantDType::kInt8,
      QuantDType::kInt8},
     96},
    {{QuantType::kPer1x32,
      QuantType::kPer1x32,
      false,
      false,
      QuantDType::kFloat4E2M1,
      QuantDType::kFloat4E2M1},
     96},
    {{QuantType::kPer1x128, QuantType::kNo, false, false, QuantDType::kInt4}, 256},
    {{QuantType::kPer1x32, QuantType::kNo, false, false, QuantDType::kInt4}, 96}};

LinearPartition uneven_parts(int64_t in_features) {
  LinearPartition partition;
  partition.out_slices = {{"gate", kGateRows, {}}, {"up", kUpRows, {}}};
  partition.in_features = in_features;
  return partition;
}

// Value k of a row that starts at `row`.
double stored_value(QuantDType dtype, const uint8_t* row, int64_t k) {
  if (dtype == QuantDType::kFloat8E4M3) return to_float(Float8E4M3{row[k]});
  if (dtype == QuantDType::kInt8) return static_cast<int8_t>(row[k]);
  const int code = row[k / 2] >> (k % 2 * 4) & 15;
  return dtype == QuantDType::kInt4 ? code - 8 : float4_to_float(static_cast<uint8_t>(code));
}

// Loads both parts with random codes and scales; returns the dequantized rows.
std::vector<std::vector<double>> load_stored(QuantizedLinearMethod& method,
                                             const StoredCase& c,
                                             const Stream& stream) {
  method.allocate_parameters(stream);
  std::map<std::string, Tensor> sources;
  uint64_t seed = 1;
  for (const NamedParameter& named : method.named_parameters()) {
    for (const auto& [id, rows] : {std::pair("gate", kGateRows), {"up", kUpRows}}) {
      const Tensor& data = named.parameter->data();
      const bool is_weight = named.name == "weight";
      int64_t source_rows = rows;
      if (!is_weight && c.scheme.weights == QuantType::kPer128x128)
        source_rows = (rows + 127) / 128;
      const bool per_part = !is_weight && data.shape().rank() == 1;
      const Shape shape = per_part ? Shape{1} : Shape{source_rows, data.size(1)};
      const Tensor source = Tensor::empty(shape, data.dtype());
      for (int64_t i = 0; i < source.num_bytes(); ++i) {
        auto* bytes = static_cast<uint8_t*>(source.raw_data());
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = static_cast<uint8_t>(seed >> 56);
        if (data.dtype() == DType::kFloat8E4M3 && (bytes[i] & 0x7f) == 0x7f) bytes[i] = 0x35;
        if (!is_weight && data.dtype() == DType::kUInt8) bytes[i] = 122 + bytes[i] % 4;
      }
      for (int64_t i = 0; data.dtype() == DType::kFloat32 && i < source.num_elements(); ++i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        source.data<float>()[i] = 0.01f + static_cast<float>(seed >> 40) * 0x1p-24f * 0.02f;
        if (named.name == "input_scale") source.data<float>()[i] = 1e-4f * static_cast<float>(rows);
      }
      EXPECT_TRUE(named.parameter->load(source, id).ok()) << named.name;
      sources[named.name + id] = source;
    }
  }
  std::vector<std::vector<double>> weight;
  for (const auto& [id, rows] : {std::pair("gate", kGateRows), {"up", kUpRows}}) {
    const Tensor& codes = sources[std::string("weight") + id];
    const Tensor& scales = sources[std::string("weight_scale") + id];
    for (int64_t r = 0; r < rows; ++r) {
      const auto* row =
          static_cast<const uint8_t*>(codes.raw_data()) + r * codes.num_bytes() / rows;
      std::vector<double> values;
      for (int64_t k = 0; k < c.in_features; ++k) {
        int64_t at = 0;
        if (c.scheme.weights == QuantType::kPerToken) at = r;
        if (c.scheme.weights == QuantType::kPer128x128) {
          at = r / 128 * scales.size(1) + k / 128;
        } else if (scales.rank() == 2 && scales.size(1) > 1) {
          at = r * scales.size(1) + k / (c.in_features / scales.size(1));
        }
        const double scale = scales.dtype() == DType::kUInt8
                                 ? e8m0_to_float(scales.data<uint8_t>()[at])
                                 : scales.data<float>()[at];
        values.push_back(stored_value(c.scheme.weight_dtype, row, k) * scale);
      }
      weight.push_back(std::move(values));
    }
  }
  return weight;
}

TEST(QuantizedLinear, ComputesWithEveryStorage) {
  ThreadPool pool(2);
  const Stream stream(&pool);
  ModelConfig config;
  for (const StoredCase& c : kStored) {
    for (const bool quantizes_activations : {false, true}) {
      BuildContext build{config, DType::kFloat32, 64};
      build.emulate_quantized_activations = quantizes_activations;
      QuantizedLinearMethod method(build, c.scheme, uneven_parts(c.in_features));
      const int64_t planned = method.resident_bytes();
      const auto weight = load_stored(method, c, stream);
      const Status finished = method.finish_load(stream);
      ASSERT_TRUE(finished.ok()) << finished.message();
      EXPECT_EQ(method.resident_bytes(), planned);
      const Tensor x = ops::random_tensor({3, c.in_features}, DType::kFloat32, 5);
      const Tensor y = Tensor::zeros({3, kGateRows + kUpRows}, DType::kFloat32);
      Workspace workspace(1 << 20);
      method.apply(stream, x, Tensor(), y, workspace);
      const bool keeps_x = !quantizes_activations || c.scheme.activations == QuantType::kNo;
      // Half a step of each activation: of 1 of 2 bits, of 3 bits of mantissa, of 127.
      const double step = keeps_x                                                ? 1e-5
                          : c.scheme.activation_dtype == QuantDType::kFloat4E2M1 ? 0.26
                                                                                 : 0.07;
      for (int64_t t = 0; t < 3; ++t) {
        for (int64_t n = 0; n < kGateRows + kUpRows; ++n) {
          double sum = 0, magnitude = 0;
          for (int64_t k = 0; k < c.in_features; ++k) {
            const double product = weight[n][k] * x.data<float>()[t * c.in_features + k];
            sum += product;
            magnitude += std::abs(keeps_x ? product : weight[n][k]);
          }
          ASSERT_NEAR(y.data<float>()[t * y.size(1) + n], sum, step * magnitude)
              << c.scheme.to_string() << " row " << t << ", column " << n;
        }
      }
    }
  }
}

TEST(QuantizedLinear, QuantizesFloatsWhileLoading) {
  ThreadPool pool(2);
  const Stream stream(&pool);
  ModelConfig config;
  BuildContext build{config, DType::kFloat32, 64};
  build.emulate_quantized_activations = false;
  for (const QuantDType dtype :
       {QuantDType::kFloat8E4M3, QuantDType::kInt8, QuantDType::kFloat4E2M1}) {
    const QuantType type =
        dtype == QuantDType::kFloat4E2M1 ? QuantType::kPer1x32 : QuantType::kPerToken;
    const QuantScheme scheme = {type, type, false, true, dtype, dtype};
    QuantizedLinearMethod method(build, scheme, uneven_parts(96));
    const int64_t planned = method.resident_bytes();
    method.allocate_parameters(stream);
    const Tensor rows = ops::random_tensor({kGateRows + kUpRows, 96}, DType::kFloat32, 3);
    Parameter& weight = *method.named_parameters().front().parameter;
    ASSERT_TRUE(weight.load(ops::copy_of(rows.narrow(0, 0, kGateRows)), "gate").ok());
    ASSERT_TRUE(weight.load(ops::copy_of(rows.narrow(0, kGateRows, kUpRows)), "up").ok());
    ASSERT_TRUE(method.finish_load(stream).ok());
    EXPECT_EQ(method.resident_bytes(), planned);
    // The unit matrix reads the weight back.
    const Tensor x = Tensor::zeros({96, 96}, DType::kFloat32);
    for (int64_t k = 0; k < 96; ++k) x.data<float>()[k * 97] = 1.0f;
    const Tensor y = Tensor::zeros({96, kGateRows + kUpRows}, DType::kFloat32);
    Workspace workspace(1 << 22);
    method.apply(stream, x, Tensor(), y, workspace);
    // Half a step of the largest value, 1: of 3 bits of mantissa, of 127, of FP4's 4 to 6 of 6
    // where the scale is up to twice what it need be.
    const double step = dtype == QuantDType::kInt8         ? 0.5 / 127
                        : dtype == QuantDType::kFloat8E4M3 ? 1.0 / 16
                                                           : 0.26;
    for (int64_t n = 0; n < kGateRows + kUpRows; ++n) {
      for (int64_t k = 0; k < 96; ++k) {
        ASSERT_NEAR(y.data<float>()[k * y.size(1) + n], rows.data<float>()[n * 96 + k], step)
            << scheme.to_string();
      }
    }
  }
}

TEST(QuantizedLinear, RefusesGroupsThatInputsDoNotDivideInto) {
  ModelConfig config;
  config.quantization.method = "quark";
  const QuantScheme scheme = {
      QuantType::kPer1x32, QuantType::kNo, false, false, QuantDType::kFloat4E2M1};
  config.quantization.groups = {{{ModulePattern::parse("Linear").value()}, scheme}};
  BuildContext build{config, DType::kFloat32, 64};
  build.module_name = "mlp.gate_up_proj";
  make_linear_method(build, uneven_parts(100));
  EXPECT_THAT(build.status.message(),
              HasSubstr("mlp.gate_up_proj: 100 inputs do not divide into groups of 32"));
}

}  // namespace
}  // namespace atom
