#include "config/nodes_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "config/engine_config.h"
#include "config/flags.h"

namespace atom {
namespace {

// Flags that may differ between nodes, and groups of such.
constexpr std::array<std::string_view, 16> kFlagsOfANode = {"model",
                                                            "revision",
                                                            "tokenizer",
                                                            "chat-template",
                                                            "generation-config",
                                                            "override-generation-config",
                                                            "node-rank",
                                                            "master-addr",
                                                            "master-port",
                                                            "node-secret-file",
                                                            "num-threads",
                                                            "cpu-memory-utilization",
                                                            "gpu-memory-utilization",
                                                            "first-card",
                                                            "max-num-waiting",
                                                            "profile-dir"};
constexpr std::array<std::string_view, 2> kGroupsOfANode = {"Supervision", "Logging"};

bool is_of_a_node(const FlagSpec& flag) {
  return std::ranges::find(kFlagsOfANode, flag.name) != kFlagsOfANode.end() ||
         std::ranges::find(kGroupsOfANode, flag.group) != kGroupsOfANode.end();
}

// FNV-1a. It tells mistakes apart, not forgeries: those who send it have proved who they are.
void add_to_hash(std::string_view text, uint64_t* hash) {
  for (const char c : text) *hash = (*hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  *hash = (*hash ^ 0xFF) * 0x100000001B3;
}

// Names and sizes of the files of weights.
Result<std::vector<std::string>> list_weights(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    if (file->path().extension() != ".safetensors") continue;
    std::error_code unknown;
    files.push_back(
        fmt::format("{} {}", file->path().filename().string(), file->file_size(unknown)));
  }
  if (error) return not_found("cannot read the folder {}: {}", folder, error.message());
  std::ranges::sort(files);
  return files;
}

}  // namespace

Status check_nodes(const EngineConfig& config) {
  const NodesConfig& nodes = config.nodes;
  const ParallelConfig& parallel = config.parallel;
  if (nodes.num_nodes == 1) {
    if (nodes.node_rank == 0) return {};
    return invalid_argument("--node-rank {} needs --nnodes", nodes.node_rank);
  }
  if (nodes.node_rank >= nodes.num_nodes) {
    return invalid_argument("--node-rank {}: with --nnodes {} it is below {}",
                            nodes.node_rank,
                            nodes.num_nodes,
                            nodes.num_nodes);
  }
  const int32_t world =
      parallel.tensor_parallel_size * parallel.pipeline_parallel_size * parallel.data_parallel_size;
  if (world % nodes.num_nodes != 0) {
    return invalid_argument(
        "--nnodes {} does not divide the {} ranks of --tensor-parallel-size {}, "
        "--pipeline-parallel-size {} and --data-parallel-size {}",
        nodes.num_nodes,
        world,
        parallel.tensor_parallel_size,
        parallel.pipeline_parallel_size,
        parallel.data_parallel_size);
  }
  if (parallel.prefill_context_parallel_size > 1) {
    return unimplemented(
        "--nnodes {} with --prefill-context-parallel-size {}: ranks that share a prompt are on one "
        "node",
        nodes.num_nodes,
        parallel.prefill_context_parallel_size);
  }
  const int32_t num_copies = parallel.enable_dp_attention
                                 ? parallel.tensor_parallel_size * parallel.data_parallel_size
                                 : parallel.data_parallel_size;
  if (num_copies % nodes.num_nodes != 0 && nodes.num_nodes % num_copies != 0) {
    return invalid_argument(
        "--nnodes {} with {} copies of the model: a node has whole copies, as many as any other, "
        "or a copy has whole nodes; take a number that the copies divide or that divides them",
        nodes.num_nodes,
        num_copies);
  }
  return {};
}

Result<std::string> digest_for_nodes(const EngineConfig& config, const std::string& version) {
  uint64_t files = 0xCBF29CE484222325;
  const std::string& folder = config.model.model;
  ASSIGN_OR_RETURN(const std::string text, read_file(folder + "/config.json", 16 << 20));
  add_to_hash(text, &files);
  if (config.model.load_dummy == DummyWeights::kNone) {
    ASSIGN_OR_RETURN(const std::vector<std::string> weights, list_weights(folder));
    for (const std::string& file : weights) add_to_hash(file, &files);
  }
  uint64_t flags = 0xCBF29CE484222325;
  for (const FlagSpec& flag : flag_specs()) {
    if (!is_of_a_node(flag)) add_to_hash(flag.name + "=" + flag.get(config), &flags);
  }
  return fmt::format("atom {}, checkpoint {:016x}, flags {:016x}", version, files, flags);
}

}  // namespace atom
