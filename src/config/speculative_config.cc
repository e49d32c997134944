#include "config/speculative_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/config_reader.h"

namespace atom {
namespace {

constexpr const char* kWhere = "--speculative-config";
// With more sequences verifying drafts takes the time that fewer steps save: as measured with three
// drafts, of which half are right, on CPU cores with AVX2, and two of them on an H200, where 64 is
// the most that was measured, and pays.
constexpr int32_t kLargestDraftingBatchOnCpu = 3;
constexpr int32_t kLargestDraftingBatchOnGpu = 64;
constexpr int32_t kLongestLookup = 64;

constexpr const char* kKeys[] = {"method",
                                 "model",
                                 "num_speculative_tokens",
                                 "prompt_lookup_min",
                                 "prompt_lookup_max",
                                 "disable_by_batch_size",
                                 "speculative_disable_by_batch_size",
                                 "draft_tensor_parallel_size"};

// Further keys of vLLM's object, and what holds here instead.
struct OtherKey {
  const char* name;
  const char* instead;
};
constexpr OtherKey kOtherKeys[] = {
    {"attention_backend", "drafts take the model's kernels"},
    {"code_revision", "no code of a checkpoint is run"},
    {"disable_padded_drafter_batch", "steps of every number of drafts are recorded"},
    {"draft_load_config", "the draft model is loaded as the model is"},
    {"draft_sample_method", "the likeliest token of a draft model is the draft"},
    {"enforce_eager", "--enforce-eager says it of the model and its drafts"},
    {"max_model_len", "drafts reach as far as the model: --max-model-len"},
    {"moe_backend", "drafts take the model's kernels"},
    {"parallel_drafting", "each draft is made from the one before"},
    {"quantization", "draft layers are as their checkpoint stores them"},
    {"rejection_sample_method", "a draft counts if it is what the model samples there"},
    {"revision", "'model' is a folder"},
    {"speculative_token_tree", "drafts are a chain"},
    {"use_local_argmax_reduction", "that is how drafts are chosen"},
};

Status check_key(std::string_view key) {
  if (std::ranges::find(kKeys, key) != std::end(kKeys)) return {};
  const auto* other = std::ranges::find(kOtherKeys, key, &OtherKey::name);
  if (other != std::end(kOtherKeys)) {
    return invalid_argument("{}: '{}' is not supported: {}", kWhere, key, other->instead);
  }
  return invalid_argument(
      "{}: unknown key '{}'; expected method, model, num_speculative_tokens, prompt_lookup_min, "
      "prompt_lookup_max, disable_by_batch_size or draft_tensor_parallel_size",
      kWhere,
      key);
}

// Without it 'model' says who drafts, as with vLLM: a head, or "ngram".
Result<SpeculativeMethod> parse_method(const ConfigReader& reader, std::string* model) {
  ASSIGN_OR_RETURN(std::string name, reader.get_string("method", ""));
  if (*model == "ngram" || *model == "[ngram]") {
    if (name.empty()) name = "ngram";
    if (name == "ngram") model->clear();
  }
  if (name.empty() && !model->empty()) return SpeculativeMethod::kEagle3;
  if (name == "ngram") return SpeculativeMethod::kNgram;
  if (name == "eagle3") return SpeculativeMethod::kEagle3;
  // vLLM also has a name for each family.
  if (name == "mtp" || name.ends_with("_mtp")) return SpeculativeMethod::kMtp;
  return invalid_argument(
      "{}: 'method' is \"{}\"; expected \"mtp\", \"eagle3\" or \"ngram\"", kWhere, name);
}

Status check_shares(const ConfigReader& reader, int32_t tensor_parallel_size) {
  constexpr const char* kKey = "draft_tensor_parallel_size";
  ASSIGN_OR_RETURN(const int64_t shares, reader.get_int(kKey, 1, INT32_MAX, tensor_parallel_size));
  if (shares == tensor_parallel_size) return {};
  return reader.wrong(kKey,
                      *reader.find(kKey),
                      fmt::format("{}, since the layers of drafts are shared out like the model's "
                                  "(--tensor-parallel-size)",
                                  tensor_parallel_size));
}

Result<SpeculativeOptions> parse(const SpeculativeOptions& options, const DraftedModel& drafted) {
  if (options.method != SpeculativeMethod::kOff || options.num_tokens != 1 ||
      !options.draft_model.empty()) {
    return invalid_argument(
        "{} and --method, --num-speculative-tokens or --draft-model exclude each other: the object "
        "has them all",
        kWhere);
  }
  ASSIGN_OR_RETURN(const Json json, parse_json(options.json, kWhere));
  if (!json.is_object()) return invalid_argument("{}: expected a JSON object", kWhere);
  for (const auto& [key, unused] : json.items()) {
    RETURN_IF_ERROR(check_key(key));
  }
  const ConfigReader reader(json, kWhere);
  SpeculativeOptions parsed = options;
  parsed.json.clear();
  ASSIGN_OR_RETURN(parsed.draft_model, reader.get_string("model", ""));
  ASSIGN_OR_RETURN(parsed.method, parse_method(reader, &parsed.draft_model));
  // The layers of "mtp" are in the model's own checkpoint, which vLLM's users may name.
  if (parsed.method == SpeculativeMethod::kMtp && parsed.draft_model == drafted.name) {
    parsed.draft_model.clear();
  }
  RETURN_IF_ERROR(check_shares(reader, drafted.tensor_parallel_size));
  ASSIGN_OR_RETURN(parsed.num_tokens,
                   reader.get_int("num_speculative_tokens", 1, kMaxSpeculativeTokens, 1));
  // One of the two alone stands for both.
  const char* other = reader.has("prompt_lookup_max") ? "prompt_lookup_max" : "prompt_lookup_min";
  if (reader.has(other)) {
    ASSIGN_OR_RETURN(const int64_t length, reader.get_int(other, 1, kLongestLookup, 1));
    ASSIGN_OR_RETURN(parsed.prompt_lookup_min,
                     reader.get_int("prompt_lookup_min", 1, kLongestLookup, length));
    ASSIGN_OR_RETURN(parsed.prompt_lookup_max,
                     reader.get_int("prompt_lookup_max", 1, kLongestLookup, length));
  }
  for (const char* key : {"disable_by_batch_size", "speculative_disable_by_batch_size"}) {
    ASSIGN_OR_RETURN(parsed.disable_by_batch_size,
                     reader.get_int(key, 1, 65536, parsed.disable_by_batch_size));
  }
  return parsed;
}

}  // namespace

const char* name_of(SpeculativeMethod method) {
  switch (method) {
    case SpeculativeMethod::kOff:
      return "off";
    case SpeculativeMethod::kNgram:
      return "ngram";
    case SpeculativeMethod::kMtp:
      return "mtp";
    case SpeculativeMethod::kEagle3:
      return "eagle3";
  }
  return "";
}

Result<SpeculativeOptions> resolve_speculative(const SpeculativeOptions& options,
                                               const DraftedModel& drafted) {
  SpeculativeOptions resolved = options;
  if (!options.json.empty()) {
    ASSIGN_OR_RETURN(resolved, parse(options, drafted));
  }
  if (resolved.forced_acceptance_rate >= 0) {
    if (resolved.forced_acceptance >= 0) {
      return invalid_argument(
          "--forced-acceptance and --forced-acceptance-rate exclude each other: one is the other "
          "times --num-speculative-tokens");
    }
    resolved.forced_acceptance = resolved.forced_acceptance_rate * resolved.num_tokens;
  }
  const bool is_eagle = resolved.method == SpeculativeMethod::kEagle3;
  if (resolved.method == SpeculativeMethod::kOff &&
      (resolved.num_tokens != 1 || resolved.disable_by_batch_size != 0)) {
    return invalid_argument(
        "--num-speculative-tokens and --speculative-disable-by-batch-size need a --method: mtp, "
        "eagle3 or ngram");
  }
  if (is_eagle && resolved.draft_model.empty()) {
    return invalid_argument(
        "--method eagle3 needs --draft-model, the folder of the draft model's checkpoint");
  }
  const bool has_head = is_eagle || resolved.method == SpeculativeMethod::kMtp;
  if (!has_head && resolved.draft_head_dtype != DraftHeadDType::kAuto) {
    return invalid_argument("--draft-head-dtype: only --method mtp and eagle3 draft by a head");
  }
  if (!is_eagle && !resolved.draft_model.empty()) {
    return invalid_argument("--draft-model {}: only --method eagle3 takes a draft model",
                            resolved.draft_model);
  }
  if (resolved.prompt_lookup_min > resolved.prompt_lookup_max) {
    return invalid_argument("--prompt-lookup-min {} is more than --prompt-lookup-max {}",
                            resolved.prompt_lookup_min,
                            resolved.prompt_lookup_max);
  }
  return resolved;
}

void set_drafting_batch(const SpeculativeOptions& options,
                        bool is_cpu,
                        SchedulerConfig* scheduler) {
  if (options.method == SpeculativeMethod::kOff) return;
  const int32_t by_device = is_cpu ? kLargestDraftingBatchOnCpu : kLargestDraftingBatchOnGpu;
  scheduler->speculative_disable_by_batch_size =
      options.disable_by_batch_size > 0 ? options.disable_by_batch_size : by_device;
}

void set_speculation(const SpeculativeOptions& options, SchedulerConfig* scheduler) {
  if (options.method == SpeculativeMethod::kOff) return;
  scheduler->num_speculative_tokens = options.num_tokens;
  // The first draft comes from the place of the last token, each further one from the next.
  scheduler->num_lookahead_tokens =
      options.method == SpeculativeMethod::kNgram ? 0 : options.num_tokens - 1;
  set_drafting_batch(options, false, scheduler);
  // Steps in flight in a pipeline never depend on each other's tokens.
  if (scheduler->num_stages == 1) scheduler->max_steps_in_flight = 1;
}

}  // namespace atom
