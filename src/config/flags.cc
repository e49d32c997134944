#include "config/flags.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "base/parse_number.h"

namespace atom {
namespace {

// A kind says how one type of flag is parsed and shown. parse() returns nothing for a bad value.
template <typename T>
struct NumberKind {
  T min;
  T max;
  std::string value_name() const { return std::is_floating_point_v<T> ? "NUMBER" : "INT"; }
  std::string range() const { return fmt::format("[{}, {}]", min, max); }
  std::string expected() const {
    return fmt::format(
        "{} in {}", std::is_floating_point_v<T> ? "a number" : "an integer", range());
  }
  std::optional<T> parse(std::string_view text) const {
    const std::optional<T> value = parse_number<T>(text);
    // Written so that NaN fails.
    return value && *value >= min && *value <= max ? value : std::nullopt;
  }
  std::string format(T value) const { return fmt::format("{}", value); }
};

NumberKind<int32_t> int_kind(int32_t min, int32_t max) {
  return {min, max};
}
NumberKind<uint64_t> seed_kind() {
  return {0, UINT64_MAX};
}
NumberKind<double> double_kind(double min, double max) {
  return {min, max};
}

// Bytes with an optional unit, powers of 1024: 512M, 4G, 4GiB, 4GB.
struct BytesKind {
  static constexpr std::string_view kUnits = "KMGT";
  int64_t min;
  int64_t max;
  std::string value_name() const { return "BYTES"; }
  std::string range() const { return fmt::format("[{}, {}]", format(min), format(max)); }
  std::string expected() const { return "a size such as 4GiB or 512M in " + range(); }
  std::optional<int64_t> parse(std::string_view text) const {
    if (text.ends_with("iB")) {
      text.remove_suffix(2);
    } else if (text.ends_with('B')) {
      text.remove_suffix(1);
    }
    int shift = 0;
    if (const size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
        unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.remove_suffix(1);
    }
    const std::optional<int64_t> count = parse_number<int64_t>(text);
    if (!count || *count < 0 || *count > (INT64_MAX >> shift)) return std::nullopt;
    const int64_t bytes = *count << shift;
    return bytes >= min && bytes <= max ? std::optional(bytes) : std::nullopt;
  }
  std::string format(int64_t bytes) const {
    size_t unit = 0;
    while (unit < kUnits.size() && bytes > 0 && bytes % 1024 == 0) {
      bytes /= 1024;
      ++unit;
    }
    return unit == 0 ? fmt::format("{}", bytes) : fmt::format("{}{}iB", bytes, kUnits[unit - 1]);
  }
};

BytesKind bytes_kind(int64_t min, int64_t max) {
  return {min, max};
}

struct BoolKind {
  std::string value_name() const { return "BOOL"; }
  std::string range() const { return ""; }
  std::string expected() const { return "true or false"; }
  std::optional<bool> parse(std::string_view text) const {
    if (text == "true" || text == "1") return true;
    if (text == "false" || text == "0") return false;
    return std::nullopt;
  }
  std::string format(bool value) const { return value ? "true" : "false"; }
};

BoolKind bool_kind() {
  return {};
}

struct StringKind {
  size_t max_bytes = 4096;
  std::string value_name() const { return "TEXT"; }
  std::string range() const { return ""; }
  std::string expected() const { return fmt::format("at most {} bytes", max_bytes); }
  std::optional<std::string> parse(std::string_view text) const {
    if (text.size() > max_bytes) return std::nullopt;
    return std::string(text);
  }
  std::string format(const std::string& value) const { return value; }
};

StringKind string_kind(size_t max_bytes = 4096) {
  return {max_bytes};
}

// One of a few names, each standing for a value of the field; underscores stand for dashes.
template <typename T>
struct ChoiceKind {
  std::vector<std::pair<std::string, T>> choices;
  std::string implicit_value;

  std::string value_name() const {
    std::string names;
    for (const auto& choice : choices) names += (names.empty() ? "" : "|") + choice.first;
    return names;
  }
  std::string range() const { return ""; }
  std::string expected() const { return "one of " + value_name(); }
  std::optional<T> parse(std::string_view text) const {
    const auto is_same = [](char a, char b) { return a == b || (a == '-' && b == '_'); };
    for (const auto& [name, value] : choices) {
      if (std::ranges::equal(name, text, is_same)) return std::optional<T>(std::in_place, value);
    }
    return std::nullopt;
  }
  std::string format(const T& value) const {
    for (const auto& [name, candidate] : choices) {
      if (candidate == value) return name;
    }
    return "";
  }
};

ChoiceKind<std::optional<DType>> dtype_kind() {
  return {{{"auto", std::nullopt},
           {"bfloat16", DType::kBFloat16},
           {"float16", DType::kFloat16},
           {"float32", DType::kFloat32},
           {"half", DType::kFloat16},
           {"float", DType::kFloat32}},
          ""};
}

ChoiceKind<std::optional<DType>> kv_cache_dtype_kind() {
  return {{{"auto", std::nullopt},
           {"fp8", DType::kFloat8E4M3},
           {"fp8_e4m3", DType::kFloat8E4M3},
           {"bfloat16", DType::kBFloat16},
           {"bf16", DType::kBFloat16},
           {"float16", DType::kFloat16},
           {"float32", DType::kFloat32}},
          ""};
}

ChoiceKind<DType> state_dtype_kind() {
  return {{{"auto", DType::kFloat32}, {"float32", DType::kFloat32}, {"bfloat16", DType::kBFloat16}},
          ""};
}

ChoiceKind<QuantizationChoice> quantization_kind() {
  return {{{"auto", QuantizationChoice::kAuto},
           {"fp8", QuantizationChoice::kFp8},
           {"int8", QuantizationChoice::kInt8},
           {"mxfp4", QuantizationChoice::kMxFp4}},
          ""};
}

ChoiceKind<ExpertActivations> moe_activations_kind() {
  return {{{"auto", ExpertActivations::kAuto}, {"fp8", ExpertActivations::kFp8}}, ""};
}

ChoiceKind<DummyWeights> dummy_weights_kind() {
  return {{{"none", DummyWeights::kNone},
           {"empty", DummyWeights::kEmpty},
           {"zero", DummyWeights::kZero},
           {"random", DummyWeights::kRandom},
           {"xavier", DummyWeights::kRandom}},
          "random"};
}

ChoiceKind<SchedulingPolicy> policy_kind() {
  return {{{"fcfs", SchedulingPolicy::kFcfs},
           {"priority", SchedulingPolicy::kPriority},
           {"prefill-first", SchedulingPolicy::kPrefillFirst}},
          ""};
}

ChoiceKind<SpeculativeMethod> speculative_method_kind() {
  return {{{"off", SpeculativeMethod::kOff},
           {"ngram", SpeculativeMethod::kNgram},
           {"mtp", SpeculativeMethod::kMtp},
           {"eagle3", SpeculativeMethod::kEagle3}},
          ""};
}

ChoiceKind<DraftHeadDType> draft_head_dtype_kind() {
  return {{{"auto", DraftHeadDType::kAuto},
           {"fp8", DraftHeadDType::kFloat8},
           {"model", DraftHeadDType::kModel}},
          ""};
}

ChoiceKind<ExpertDispatch> dispatch_kind() {
  return {{{"auto", ExpertDispatch::kAuto},
           {"gather", ExpertDispatch::kGather},
           {"all-to-all", ExpertDispatch::kAllToAll},
           {"all-to-all-fp8", ExpertDispatch::kAllToAllFloat8}},
          ""};
}

ChoiceKind<DataParallelBalance> balance_kind() {
  return {{{"least-requests", DataParallelBalance::kLeastRequests},
           {"least-tokens", DataParallelBalance::kLeastTokens},
           {"round-robin", DataParallelBalance::kRoundRobin}},
          ""};
}

ChoiceKind<DeviceChoice> device_kind() {
  return {
      {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}},
      ""};
}

ChoiceKind<std::string> log_level_kind() {
  return {{{"auto", ""},
           {"debug", "debug"},
           {"info", "info"},
           {"warning", "warning"},
           {"error", "error"},
           {"off", "off"}},
          ""};
}

ChoiceKind<std::string> log_format_kind() {
  return {{{"auto", ""}, {"text", "text"}, {"json", "json"}}, ""};
}

template <typename Kind>
std::string implicit_value_of(const Kind& kind) {
  if constexpr (std::is_same_v<Kind, BoolKind>) return "true";
  if constexpr (requires { kind.implicit_value; }) return kind.implicit_value;
  return "";
}

std::vector<std::string> split_aliases(std::string_view text) {
  std::vector<std::string> aliases;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    aliases.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return aliases;
}

// `field` maps an EngineConfig, const or not, to a reference to the flag's field.
template <typename Kind, typename Field>
FlagSpec make_flag(const char* name,
                   const char* aliases,
                   const char* group,
                   uint32_t commands,
                   const Kind& kind,
                   Field field,
                   const char* help) {
  FlagSpec spec;
  spec.name = name;
  spec.aliases = split_aliases(aliases);
  spec.group = group;
  spec.commands = commands;
  spec.is_bool = std::is_same_v<Kind, BoolKind>;
  spec.implicit_value = implicit_value_of(kind);
  spec.value_name = kind.value_name();
  spec.range = kind.range();
  spec.default_value = kind.format(field(EngineConfig()));
  spec.help = help;
  spec.set = [flag = spec.name, kind, field](EngineConfig* config,
                                             std::string_view text) -> Status {
    auto value = kind.parse(text);
    if (!value) {
      return invalid_argument(
          "--{} is '{}'; expected {}", flag, text.substr(0, 100), kind.expected());
    }
    field(*config) = *std::move(value);
    return {};
  };
  spec.get = [kind, field](const EngineConfig& config) { return kind.format(field(config)); };
  return spec;
}

std::vector<FlagSpec> make_flags() {
  std::vector<FlagSpec> flags;
#define FLAG(name, aliases, group, commands, kind, field, help) \
  flags.push_back(make_flag(                                    \
      name,                                                     \
      aliases,                                                  \
      group,                                                    \
      commands,                                                 \
      kind,                                                     \
      [](auto&& config) -> auto&& { return (config.field); },   \
      help));
#include "config/flags.def"
#undef FLAG
  return flags;
}

// "--max_model_len" -> "max-model-len"
std::string canonical(std::string_view spelling) {
  while (spelling.starts_with('-')) spelling.remove_prefix(1);
  std::string name(spelling);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

std::span<const FlagSpec> flag_specs() {
  static const std::vector<FlagSpec> flags = make_flags();
  return flags;
}

const FlagSpec* find_flag(std::string_view spelling) {
  const std::string name = canonical(spelling);
  for (const FlagSpec& flag : flag_specs()) {
    if (flag.name == name) return &flag;
    for (const std::string& alias : flag.aliases) {
      if (canonical(alias) == name) return &flag;
    }
  }
  return nullptr;
}

}  // namespace atom
