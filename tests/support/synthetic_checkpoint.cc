#include "tests/support/synthetic_checkpoint.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tensor/numeric.h"
#include "tests/support/stored_tensor.h"

namespace atom {
namespace {

constexpr uint64_t kMaxElements = uint64_t{1} << 28;

uint64_t fnv1a64(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

// A generator of real numbers and the dtype that they are rounded to.
struct RealGenerator {
  bool is_normal;
  double offset;  // mean or low
  double scale;   // std or high - low

  double value(uint64_t x) const {
    if (!is_normal) return offset + scale * (static_cast<double>(x >> 11) / 0x1p53);
    const uint64_t sum = (x & 0xffff) + ((x >> 16) & 0xffff) + ((x >> 32) & 0xffff) + (x >> 48);
    return offset + scale * ((static_cast<double>(sum) - 131070.0) / 37837.2);
  }
};

Result<std::string> real_bytes(const RealGenerator& generator,
                               const std::string& dtype,
                               SplitMix64 random,
                               uint64_t num_elements) {
  if (dtype != "F32" && dtype != "BF16") {
    return invalid_argument("dtype {} has no real generator", dtype);
  }
  std::string bytes;
  bytes.reserve(num_elements * (dtype == "F32" ? 4 : 2));
  for (uint64_t i = 0; i < num_elements; ++i) {
    const float value = static_cast<float>(generator.value(random.next()));
    if (dtype == "F32") {
      append_value(bytes, value);
    } else {
      append_value(bytes, from_float<BFloat16>(value));
    }
  }
  return bytes;
}

// One byte per element, whatever 8-bit format it stands for.
Result<std::string> code_bytes(const std::string& kind,
                               int base,
                               SplitMix64 random,
                               uint64_t num_elements) {
  std::string bytes;
  bytes.reserve(num_elements);
  for (uint64_t i = 0; i < num_elements; ++i) {
    const uint64_t x = random.next();
    uint64_t code = x & 255;
    if (kind == "e4m3") {
      code = ((x >> 63) << 7) | ((4 + (x >> 8) % 6) << 3) | (x & 7);
    } else if (kind == "int8") {
      if (code == 0x80) code = 0x81;
    } else if (kind == "e8m0") {
      code = static_cast<uint64_t>(base) - (x & 1);
    } else if (kind != "byte") {
      return invalid_argument("unknown generator '{}'", kind);
    }
    append_value(bytes, static_cast<uint8_t>(code));
  }
  return bytes;
}

std::string multiples_of(int64_t step, uint64_t num_elements) {
  std::string bytes;
  for (uint64_t i = 0; i < num_elements; ++i) append_value(bytes, static_cast<int64_t>(i) * step);
  return bytes;
}

Result<std::string> header_dtype(const std::string& name) {
  static const std::map<std::string, std::string> names = {{"bfloat16", "BF16"},
                                                           {"float32", "F32"},
                                                           {"float8_e4m3fn", "F8_E4M3"},
                                                           {"int8", "I8"},
                                                           {"uint8", "U8"},
                                                           {"bool", "BOOL"},
                                                           {"int64", "I64"}};
  const auto found = names.find(name);
  if (found == names.end()) return invalid_argument("unknown dtype '{}'", name);
  return found->second;
}

// Throws nlohmann's exceptions on a description of the wrong form; materialize_checkpoint catches.
Result<StoredTensor> generate(const std::string& name, const Json& description, uint64_t seed) {
  StoredTensor tensor{name, {}, description.at("shape").get<std::vector<int64_t>>(), {}};
  ASSIGN_OR_RETURN(tensor.dtype, header_dtype(description.at("dtype").get<std::string>()));
  uint64_t num_elements = 1;
  for (const int64_t extent : tensor.shape) {
    if (extent < 0 || static_cast<uint64_t>(extent) > kMaxElements ||
        num_elements * static_cast<uint64_t>(extent) > kMaxElements) {
      return invalid_argument("{}: more than {} elements", name, kMaxElements);
    }
    num_elements *= static_cast<uint64_t>(extent);
  }
  const SplitMix64 random(fnv1a64(description.value("alias_of", name)) +
                          seed * 0xd1b54a32d192ed03u);
  const Json& generator = description.at("gen");
  const std::string kind = generator.at("kind").get<std::string>();
  Result<std::string> bytes = std::string();
  if (kind == "normal") {
    const RealGenerator real{true, generator.at("mean"), generator.at("std")};
    bytes = real_bytes(real, tensor.dtype, random, num_elements);
  } else if (kind == "uniform") {
    const double low = generator.at("low");
    const RealGenerator real{false, low, generator.at("high").get<double>() - low};
    bytes = real_bytes(real, tensor.dtype, random, num_elements);
  } else if (kind == "multiples") {
    if (tensor.dtype != "I64") return invalid_argument("{}: multiples are int64", name);
    bytes = multiples_of(generator.at("step"), num_elements);
  } else {
    bytes = code_bytes(kind, generator.value("base", 0), random, num_elements);
  }
  if (!bytes.ok()) return bytes.status().with_context(name);
  tensor.bytes = std::move(bytes).value();
  return tensor;
}

Status write_sharded(const std::string& folder,
                     const std::vector<StoredTensor>& tensors,
                     size_t num_shards) {
  const size_t shard_size = (tensors.size() + num_shards - 1) / num_shards;
  size_t total_size = 0;
  std::string weight_map;
  for (size_t shard = 0; shard < num_shards; ++shard) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, num_shards);
    const size_t begin = std::min(shard * shard_size, tensors.size());
    const size_t end = std::min(begin + shard_size, tensors.size());
    const std::vector<StoredTensor> part(tensors.begin() + static_cast<std::ptrdiff_t>(begin),
                                         tensors.begin() + static_cast<std::ptrdiff_t>(end));
    RETURN_IF_ERROR(write_safetensors(folder + "/" + name, part));
    for (const StoredTensor& tensor : part) {
      weight_map +=
          fmt::format("{}  \"{}\": \"{}\"", weight_map.empty() ? "\n" : ",\n", tensor.name, name);
      total_size += tensor.bytes.size();
    }
  }
  const std::string index = fmt::format(
      "{{\n \"metadata\": {{\n  \"total_size\": {}\n }},\n \"weight_map\": {{{}\n }}\n}}",
      total_size,
      weight_map);
  return write_text(folder + "/model.safetensors.index.json", index);
}

}  // namespace

Status materialize_checkpoint(const std::string& case_folder, const std::string& out_folder) {
  const std::string description_path = case_folder + "/checkpoint.json";
  ASSIGN_OR_RETURN(const Json description, read_json_file(description_path));
  ASSIGN_OR_RETURN(const std::string config, read_file(case_folder + "/config.json", 1 << 20));
  RETURN_IF_ERROR(write_text(out_folder + "/config.json", config));
  try {
    const uint64_t seed = description.at("seed");
    const size_t num_shards = description.at("shards");
    std::vector<StoredTensor> tensors;
    for (const auto& [name, tensor] : description.at("tensors").items()) {
      ASSIGN_OR_RETURN(StoredTensor generated, generate(name, tensor, seed));
      tensors.push_back(std::move(generated));
    }
    if (num_shards == 1) return write_safetensors(out_folder + "/model.safetensors", tensors);
    return write_sharded(out_folder, tensors, num_shards);
  } catch (const Json::exception& error) {
    return invalid_argument("{}: {}", description_path, error.what());
  }
}

}  // namespace atom
