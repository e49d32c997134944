// Speed of fused_moe on the CPU with shapes of released models, against the machine's roofs.
//   fused_moe_bench [threads=N] [dtype=bfloat16] [format=fp4|int4|int8|fp8] [tokens=1,8,512]
//                   [shape=NAME] [seconds=0.5]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_info.h"
#include "ops/fused_moe/fused_moe.h"
#include "ops/roofs/roofs.h"
#include "ops/variant.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchShape {
  const char* name;
  int64_t num_experts, top_k, hidden_size, intermediate_size;
  GatedActivationKind kind;
};

constexpr BenchShape kShapes[] = {
    {"qwen3-30b-a3b", 128, 8, 2048, 768, GatedActivationKind::kSilu},
    {"gpt-oss-20b", 32, 4, 2880, 2880, GatedActivationKind::kClampedSwiGlu},
};

struct Options {
  int num_threads = num_usable_cores();
  DType dtype = DType::kBFloat16;
  std::optional<QuantFormat> format;  // else weights of dtype
  std::vector<int64_t> tokens = {1, 4, 16, 64, 512};
  std::string shape;
  double seconds = 0.5;
};

std::vector<int64_t> parse_numbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const char* at = text.c_str(); *at != '\0'; at += *at == ',') {
    char* end;
    numbers.push_back(std::strtoll(at, &end, 10));
    if (end == at) break;
    at = end;
  }
  return numbers;
}

std::optional<QuantFormat> parse_format(const std::string& name) {
  if (name == "fp4") return QuantFormat{QuantDType::kFloat4E2M1, QuantType::kPer1x32, 1};
  if (name == "int4") return QuantFormat{QuantDType::kInt4, QuantType::kPer1x128, 1};
  if (name == "int8") return QuantFormat{QuantDType::kInt8, QuantType::kPerToken, 1};
  if (name == "fp8") return QuantFormat{QuantDType::kFloat8E4M3, QuantType::kPer128x128, 128};
  return std::nullopt;
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string key(argument.substr(0, equals));
    const std::string value(equals == argument.npos ? "" : argument.substr(equals + 1));
    if (key == "threads") {
      options.num_threads = std::atoi(value.c_str());
    } else if (key == "dtype" && parse_dtype(value).ok()) {
      options.dtype = parse_dtype(value).value();
    } else if (key == "format" && parse_format(value)) {
      options.format = parse_format(value);
    } else if (key == "shape") {
      options.shape = value;
    } else if (key == "seconds") {
      options.seconds = std::atof(value.c_str());
    } else if (key == "tokens") {
      options.tokens = parse_numbers(value);
    } else {
      fmt::print(stderr, "unknown option {}\n", argument);
      std::exit(2);
    }
  }
  return options;
}

uint32_t next_random(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

Tensor filled(const Shape& shape, DType dtype) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    uint32_t state = 1;
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      tensor.data<T>()[i] = from_float<T>(static_cast<float>(next_random(state)) * 0x1p-24f - 0.5f);
    }
  });
  return tensor;
}

// Random experts, different for each token.
Tensor random_ids(int64_t num_tokens, const BenchShape& shape, uint32_t& state) {
  const Tensor ids = Tensor::empty({num_tokens, shape.top_k}, DType::kInt32);
  for (int64_t t = 0; t < num_tokens; ++t) {
    std::set<int32_t> chosen;
    while (static_cast<int64_t>(chosen.size()) < shape.top_k) {
      chosen.insert(static_cast<int32_t>(next_random(state) % shape.num_experts));
    }
    std::copy(chosen.begin(), chosen.end(), ids.data<int32_t>() + t * shape.top_k);
  }
  return ids;
}

int64_t num_active(const Tensor& ids) {
  return static_cast<int64_t>(
      std::set<int32_t>(ids.data<int32_t>(), ids.data<int32_t>() + ids.num_elements()).size());
}

std::vector<LinearWeight> make_weights(
    const Stream& stream, int64_t count, int64_t rows, int64_t columns, const Options& options) {
  std::vector<LinearWeight> weights;
  const Tensor floats = options.format ? Tensor() : filled({rows, columns}, options.dtype);
  for (int64_t e = 0; e < count; ++e) {
    if (!options.format) {
      weights.push_back(pack_linear_weight(stream, floats));
      continue;
    }
    // The same codes and scales everywhere: time does not depend on them.
    constexpr int kCode = 0x31;
    weights.push_back(make_quantized_weight(rows, columns, *options.format));
    for (const Tensor& part : {weights.back().data, weights.back().scales}) {
      std::memset(part.raw_data(), kCode, part.num_bytes());
    }
  }
  return weights;
}

void bench_shape(const Stream& stream, const BenchShape& shape, const Options& options) {
  const auto gate_up = make_weights(
      stream, shape.num_experts, 2 * shape.intermediate_size, shape.hidden_size, options);
  const auto down =
      make_weights(stream, shape.num_experts, shape.hidden_size, shape.intermediate_size, options);
  int64_t expert_size = 0;
  for (const LinearWeight* weight : {&gate_up[0], &down[0]}) {
    expert_size += moves(weight->data, weight->scales).bytes;
  }
  const ExpertWeights experts{gate_up, down, {}, {}, {}};
  const GatedActivation activation{shape.kind};
  uint32_t state = 7;
  for (const int64_t num_tokens : options.tokens) {
    const Tensor x = filled({num_tokens, shape.hidden_size}, options.dtype);
    const Tensor y = Tensor::empty({num_tokens, shape.hidden_size}, options.dtype);
    const Tensor weights = filled({num_tokens, shape.top_k}, DType::kFloat32);
    Tensor ids = random_ids(num_tokens, shape, state);
    Workspace measure;
    fused_moe(Stream::dry_run(), x, ids, weights, experts, activation, y, measure);
    Workspace scratch(measure.peak_size());
    const Roofs roofs = measure_roofs(stream, 0.1);
    const bool is_bfloat16 = options.dtype == DType::kBFloat16;
    const double roof_flops = is_bfloat16 ? roofs.bf16_flops : roofs.f32_flops;
    const double flops =
        6.0 * static_cast<double>(ids.num_elements() * shape.hidden_size * shape.intermediate_size);
    std::vector<double> times, shares;
    const Clock::time_point start = Clock::now();
    while (times.size() < 3 ||
           std::chrono::duration<double>(Clock::now() - start).count() < options.seconds) {
      ids = random_ids(num_tokens, shape, state);
      const Clock::time_point begin = Clock::now();
      fused_moe(stream, x, ids, weights, experts, activation, y, scratch);
      times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      const auto bytes = static_cast<double>(num_active(ids) * expert_size);
      shares.push_back(std::max(bytes / roofs.read_bandwidth, flops / roof_flops) / times.back());
    }
    std::sort(times.begin(), times.end());
    std::sort(shares.begin(), shares.end());
    fmt::print("{:<14} T={:<4} {:9.1f} us {:8.1f} GFLOP/s  share {:.3f}, of best calls {:.3f}\n",
               shape.name,
               num_tokens,
               times[times.size() / 2] * 1e6,
               flops / times[times.size() / 2] * 1e-9,
               shares[shares.size() / 2],
               shares.back());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace atom::ops

int main(int argc, char** argv) {
  const atom::ops::Options options = atom::ops::parse_options(argc, argv);
  atom::ThreadPool pool(options.num_threads);
  fmt::print("{}, {}, {} threads, {}\n",
             atom::cpu_model_name(),
             atom::cpu_isa_name(atom::cpu_isa()),
             options.num_threads,
             atom::dtype_name(options.dtype));
  for (const atom::ops::BenchShape& shape : atom::ops::kShapes) {
    if (options.shape.empty() || options.shape == shape.name) {
      bench_shape(atom::Stream(&pool), shape, options);
    }
  }
}
