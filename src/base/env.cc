#include "base/env.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "base/log.h"

namespace atom {
namespace {

std::string get_string(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool get_bool(const char* name, bool default_value = false) {
  std::string value = get_string(name);
  if (value.empty()) return default_value;
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (const char* no : {"0", "false", "no", "off"}) {
    if (value == no) return false;
  }
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (value == yes) return true;
  }
  log::warning("{}='{}' is not a boolean (0, 1, false, true): taken as {}",
               name,
               value,
               default_value ? 1 : 0);
  return default_value;
}

Env::ReduceQuantization get_reduce_quantization(const char* name) {
  const std::string value = get_string(name);
  if (value == "FP8") return Env::ReduceQuantization::kFloat8;
  if (value == "INT4") return Env::ReduceQuantization::kInt4;
  if (!value.empty() && value != "NONE") {
    log::warning("{}='{}' is none of NONE, FP8 and INT4: taken as NONE", name, value);
  }
  return Env::ReduceQuantization::kNone;
}

// "~/models" -> "/home/someone/models"
std::string expand_home(const std::string& path, const std::string& home) {
  if (path == "~") return home;
  return path.starts_with("~/") ? home + path.substr(1) : path;
}

// $XDG_CACHE_HOME, else ~/.cache; empty when there is no home folder.
std::string user_cache_folder(const std::string& home) {
  const std::string cache = expand_home(get_string("XDG_CACHE_HOME"), home);
  return cache.empty() && !home.empty() ? home + "/.cache" : cache;
}

// Atom's own in $XDG_STATE_HOME, else in ~/.local/state; empty when there is no home folder.
std::string user_state_folder(const std::string& home) {
  const std::string state = expand_home(get_string("XDG_STATE_HOME"), home);
  if (!state.empty()) return state + "/atom";
  return home.empty() ? "" : home + "/.local/state/atom";
}

void read_hub(Env* env) {
  const auto first = [](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (std::string value = get_string(name); !value.empty()) return value;
    }
    return std::string();
  };
  const std::string home = get_string("HOME");
  std::string hf_home = expand_home(get_string("HF_HOME"), home);
  if (hf_home.empty()) {
    const std::string cache = user_cache_folder(home);
    if (!cache.empty()) hf_home = cache + "/huggingface";
  }
  env->hf_endpoint = get_string("HF_ENDPOINT");
  env->hf_token = first({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  env->hf_token_path = expand_home(get_string("HF_TOKEN_PATH"), home);
  if (env->hf_token_path.empty() && !hf_home.empty()) env->hf_token_path = hf_home + "/token";
  env->hf_hub_cache = expand_home(first({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}), home);
  if (env->hf_hub_cache.empty() && !hf_home.empty()) env->hf_hub_cache = hf_home + "/hub";
  env->hf_hub_offline = get_bool("HF_HUB_OFFLINE") || get_bool("TRANSFORMERS_OFFLINE");
}

int get_int(const char* name, int min, int max) {
  const std::string value = get_string(name);
  if (value.empty()) return 0;
  char* end = nullptr;
  const long parsed = std::strtol(value.c_str(), &end, 10);
  if (*end == '\0' && parsed >= min && parsed <= max) return static_cast<int>(parsed);
  log::warning("{}='{}' is not an integer in [{}, {}]: ignored", name, value, min, max);
  return 0;
}

struct ForeignVariable {
  const char* name;
  const char* reason;
};

constexpr ForeignVariable kForeign[] = {
#define FOREIGN_ENV(name, reason) {name, reason},
#include "base/foreign_env.def"
#undef FOREIGN_ENV
};

std::vector<std::string> foreign_notes() {
  std::vector<std::string> notes;
  for (const auto& [name, reason] : kForeign) {
    if (!get_string(name).empty())
      notes.push_back(fmt::format("{} has no effect: {}", name, reason));
  }
  return notes;
}

// CUDA's driver reads which cards it may use from its own variable; AMD's name stands for that.
void share_visible_devices(std::vector<std::string>* notes) {
  const std::string devices = get_string("HIP_VISIBLE_DEVICES");
  if (devices.empty()) return;
  const char* cuda = std::getenv("CUDA_VISIBLE_DEVICES");
  if (cuda == nullptr) {
    ::setenv("CUDA_VISIBLE_DEVICES", devices.c_str(), 1);
    notes->push_back(
        fmt::format("HIP_VISIBLE_DEVICES={} stands for CUDA_VISIBLE_DEVICES", devices));
  } else if (devices != cuda) {
    notes->push_back(fmt::format(
        "HIP_VISIBLE_DEVICES={} has no effect: CUDA_VISIBLE_DEVICES is {}", devices, cuda));
  }
}

Env read_env() {
  Env env;
  env.disable_mmap = get_bool("ATOM_DISABLE_MMAP");
  env.cpu_isa = get_string("ATOM_CPU_ISA");
  env.op_variant = get_string("ATOM_OP_VARIANT");
  env.fused_rms_norm_quant =
      get_bool("ATOM_LLAMA_ENABLE_AITER_TRITON_FUSED_RMSNORM_QUANT", /*default_value=*/true);
  env.fused_silu_mul_quant =
      get_bool("ATOM_LLAMA_ENABLE_AITER_TRITON_FUSED_SILU_MUL_QUANT", /*default_value=*/true);
  env.cublaslt = get_string("ATOM_CUBLASLT");
  env.qk_norm_rope_cache_fusion =
      get_bool("ATOM_ENABLE_QK_NORM_ROPE_CACHE_QUANT_FUSION", /*default_value=*/true);
  env.mla_input_norm_quant =
      get_bool("ATOM_ENABLE_DS_INPUT_RMSNORM_QUANT_FUSION", /*default_value=*/true);
  env.mla_latents_fusion = get_bool("ATOM_ENABLE_DS_QKNORM_QUANT_FUSION", /*default_value=*/true);
  env.mla_prefill = get_bool("ATOM_USE_TRITON_GEMM", /*default_value=*/true);
  env.all_reduce_rms_norm_fusion =
      get_bool("ATOM_ENABLE_ALLREDUCE_RMSNORM_FUSION", /*default_value=*/true);
  env.reduce_quantization = get_reduce_quantization("AITER_QUICK_REDUCE_QUANTIZATION");
  env.dsa_context_parallel_threshold =
      get_int("VLLM_DSA_USE_CONTEXT_PARALLEL_THRESHOLD", 1, 1 << 30);
  env.enforce_eager = get_bool("ATOM_ENFORCE_EAGER");
  env.notes = foreign_notes();
  share_visible_devices(&env.notes);
  env.num_threads = get_int("ATOM_NUM_THREADS", 1, 1024);
  env.dp_size = get_string("ATOM_DP_SIZE");
  env.dp_rank = get_string("ATOM_DP_RANK");
  env.dp_rank_local = get_string("ATOM_DP_RANK_LOCAL");
  env.dp_master_ip = get_string("ATOM_DP_MASTER_IP");
  env.dp_master_port = get_string("ATOM_DP_MASTER_PORT");
  env.log_level = get_string("ATOM_LOG_LEVEL");
  env.log_format = get_string("ATOM_LOG_FORMAT");
  env.api_key = get_string("ATOM_API_KEY");
  env.no_color = !get_string("NO_COLOR").empty();
  env.openai_api_key = get_string("OPENAI_API_KEY");
  env.runtime_folder = get_string("XDG_RUNTIME_DIR");
  const std::string cache = user_cache_folder(get_string("HOME"));
  if (!cache.empty()) env.cache_folder = cache + "/atom";
  env.state_folder = user_state_folder(get_string("HOME"));
  env.terminal = get_string("TERM");
  read_hub(&env);
  return env;
}

}  // namespace

const Env& env() {
  static const Env instance = read_env();
  return instance;
}

}  // namespace atom
