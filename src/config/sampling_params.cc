#include "config/sampling_params.h"

#include <limits>

namespace atom {
namespace {

constexpr size_t kMaxStopBytes = 4096;
constexpr size_t kMaxKeptTokenIds = 1024;
constexpr size_t kMaxCacheSaltBytes = 1024;

// Written so that NaN fails.
Status check_float(const char* field, float value, float min, float max) {
  if (value >= min && value <= max) return {};
  return invalid_argument("{} is {}; expected a number in [{:g}, {:g}]", field, value, min, max);
}

// (0, max]
Status check_positive(const char* field, float value, float max) {
  if (value > 0 && value <= max) return {};
  return invalid_argument("{} is {}; expected a number in (0, {:g}]", field, value, max);
}

Status check_int(const char* field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return invalid_argument("{} is {}; expected an integer in [{}, {}]", field, value, min, max);
}

Status check_count(const char* field, size_t count, size_t max) {
  if (count <= max) return {};
  return invalid_argument("{} has {} entries; expected at most {}", field, count, max);
}

Status check_stop(const std::vector<std::string>& stop) {
  RETURN_IF_ERROR(check_count("stop", stop.size(), SamplingParams::kMaxStopStrings));
  for (const std::string& text : stop) {
    if (text.empty()) return invalid_argument("stop contains an empty string");
    if (text.size() > kMaxStopBytes) {
      return invalid_argument(
          "stop contains a string of {} bytes; expected at most {}", text.size(), kMaxStopBytes);
    }
  }
  return {};
}

}  // namespace

Status SamplingParams::validate(int64_t vocab_size) const {
  constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();
  RETURN_IF_ERROR(check_int("n", n, 1, kMaxN));
  RETURN_IF_ERROR(check_float("temperature", temperature, 0, 100));
  RETURN_IF_ERROR(check_positive("top_p", top_p, 1));
  RETURN_IF_ERROR(check_int("top_k", top_k, -1, kIntMax));
  RETURN_IF_ERROR(check_float("min_p", min_p, 0, 1));
  RETURN_IF_ERROR(check_float("presence_penalty", presence_penalty, -2, 2));
  RETURN_IF_ERROR(check_float("frequency_penalty", frequency_penalty, -2, 2));
  RETURN_IF_ERROR(
      check_float("repetition_penalty", repetition_penalty, kMinRepetitionPenalty, 100));
  RETURN_IF_ERROR(check_count("logit_bias", logit_bias.size(), kMaxLogitBias));
  for (const auto& [token_id, bias] : logit_bias) {
    RETURN_IF_ERROR(check_int("a token id of logit_bias", token_id, 0, vocab_size - 1));
    RETURN_IF_ERROR(check_float("a bias of logit_bias", bias, -100, 100));
  }
  RETURN_IF_ERROR(check_int("max_tokens", max_tokens, 0, kIntMax));
  RETURN_IF_ERROR(check_int("min_tokens", min_tokens, 0, max_tokens));
  RETURN_IF_ERROR(check_stop(stop));
  RETURN_IF_ERROR(check_count("stop_token_ids", stop_token_ids.size(), kMaxStopTokenIds));
  for (int32_t token_id : stop_token_ids) {
    RETURN_IF_ERROR(check_int("a token id of stop_token_ids", token_id, 0, vocab_size - 1));
  }
  RETURN_IF_ERROR(
      check_count("kept_special_token_ids", kept_special_token_ids.size(), kMaxKeptTokenIds));
  if (logprobs) RETURN_IF_ERROR(check_int("logprobs", *logprobs, 0, kMaxLogprobs));
  if (prompt_logprobs) {
    RETURN_IF_ERROR(check_int("prompt_logprobs", *prompt_logprobs, 0, kMaxLogprobs));
  }
  if (cache_salt.size() > kMaxCacheSaltBytes) {
    return invalid_argument(
        "cache_salt has {} bytes; expected at most {}", cache_salt.size(), kMaxCacheSaltBytes);
  }
  return {};
}

}  // namespace atom
