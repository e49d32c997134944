// The environment variables of atom, read once when the program starts. Nothing else reads the
// environment. docs/environment.md lists them.
#pragma once

#include <string>
#include <vector>

namespace atom {

struct Env {
  // ATOM_DISABLE_MMAP=1: read checkpoint files instead of mapping them.
  bool disable_mmap = false;
  // ATOM_CPU_ISA=scalar|avx2|avx512|amx: the best instruction set that kernels may use.
  std::string cpu_isa;
  // ATOM_OP_VARIANT="linear=avx2,attention=reference": forces a variant of an operator.
  std::string op_variant;
  // ATOM_LLAMA_ENABLE_AITER_TRITON_FUSED_RMSNORM_QUANT=0: RMSNorm before an FP8 linear leaves its
  // result in the model's dtype, to be quantised on its own.
  bool fused_rms_norm_quant = true;
  // ATOM_LLAMA_ENABLE_AITER_TRITON_FUSED_SILU_MUL_QUANT=0: likewise the activation of a gated MLP.
  bool fused_silu_mul_quant = true;
  // ATOM_CUBLASLT: the file of cuBLASLt, instead of looking for it.
  std::string cublaslt;
  // ATOM_ENABLE_QK_NORM_ROPE_CACHE_QUANT_FUSION=0: on a GPU, norms of queries and keys, rotary
  // embedding and writing the KV cache by a kernel each instead of one for all.
  bool qk_norm_rope_cache_fusion = true;
  // ATOM_ENABLE_DS_INPUT_RMSNORM_QUANT_FUSION=0: as the first, before latent attention alone.
  bool mla_input_norm_quant = true;
  // ATOM_ENABLE_DS_QKNORM_QUANT_FUSION=0: of latent attention, the projections to both latents
  // apart, and the norm of queries' from its quantization.
  bool mla_latents_fusion = true;
  // ATOM_USE_TRITON_GEMM=0: on a GPU, prompts of latent attention without expanding keys and
  // values.
  bool mla_prefill = true;
  // ATOM_ENABLE_ALLREDUCE_RMSNORM_FUSION=0: between GPUs, what ranks have of a layer's result is
  // added up by a kernel of its own before RMSNorm.
  bool all_reduce_rms_norm_fusion = true;
  // AITER_QUICK_REDUCE_QUANTIZATION=NONE|FP8|INT4: between GPUs, how the values of large sums
  // travel; NONE: as they are.
  enum class ReduceQuantization { kNone, kFloat8, kInt4 };
  ReduceQuantization reduce_quantization = ReduceQuantization::kNone;
  // VLLM_DSA_USE_CONTEXT_PARALLEL_THRESHOLD: with -pcp, the fewest tokens of a prompt that are
  // shared out among ranks where an indexer selects what is attended to; 0: as few as there are.
  int dsa_context_parallel_threshold = 0;
  // ATOM_ENFORCE_EAGER=1: as --enforce-eager.
  bool enforce_eager = false;
  // ATOM_NUM_THREADS: size of the thread pool; 0 = the physical cores this process may use.
  int num_threads = 0;
  // ATOM_DP_SIZE, ATOM_DP_RANK, ATOM_DP_RANK_LOCAL, ATOM_DP_MASTER_IP and ATOM_DP_MASTER_PORT, as
  // they stand: see config/dp_environment.h.
  std::string dp_size;
  std::string dp_rank;
  std::string dp_rank_local;
  std::string dp_master_ip;
  std::string dp_master_port;
  // ATOM_LOG_LEVEL: debug, info, warning, error or off.
  std::string log_level;
  // ATOM_LOG_FORMAT: text or json.
  std::string log_format;
  // ATOM_API_KEY: the key that clients of `serve` must send; empty: none.
  std::string api_key;
  // NO_COLOR (no-color.org): terminal output without colours.
  bool no_color = false;
  // OPENAI_API_KEY: what `bench serve` shows a server that asks for a key.
  std::string openai_api_key;
  // XDG_RUNTIME_DIR: a folder of this user for sockets; empty when unset.
  std::string runtime_folder;

  // $XDG_CACHE_HOME/atom, else ~/.cache/atom: what is kept between runs; empty: there is no home
  // folder.
  std::string cache_folder;
  // $XDG_STATE_HOME/atom, else ~/.local/state/atom: what a user did, for the next start; empty:
  // there is no home folder.
  std::string state_folder;
  // TERM: the kind of terminal; empty when unset.
  std::string terminal;

  // The model hub, with the names and defaults that huggingface_hub gives them.
  // HF_ENDPOINT: URL of the hub; empty: the public one.
  std::string hf_endpoint;
  // HF_TOKEN, else HUGGING_FACE_HUB_TOKEN: proof of who downloads; empty: hf_token_path.
  std::string hf_token;
  // HF_TOKEN_PATH, else $HF_HOME/token: the file that holds the token when HF_TOKEN does not.
  std::string hf_token_path;
  // HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else $HF_HOME/hub; HF_HOME is
  // ~/.cache/huggingface when unset. Empty: there is no home folder.
  std::string hf_hub_cache;
  // HF_HUB_OFFLINE=1, or TRANSFORMERS_OFFLINE=1: use the cache only.
  bool hf_hub_offline = false;

  // Why nothing comes of variables that are set and that other systems act on; for the log.
  std::vector<std::string> notes;
};

const Env& env();

}  // namespace atom
