#include "engine/node_mesh.h"

#include "base/file.h"
#include "base/log.h"

namespace atom {
namespace {

constexpr size_t kMaxSecretFile = 4096;
constexpr std::chrono::hours kYears{24 * 365 * 10};

Result<std::string> read_secret(const std::string& path) {
  if (path.empty()) {
    return invalid_argument(
        "--nnodes needs --node-secret-file: a file with the same text on all nodes (head -c 32 "
        "/dev/urandom | base64)");
  }
  ASSIGN_OR_RETURN(std::string text, read_file(path, kMaxSecretFile));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() >= kMinMeshSecret) return text;
  return invalid_argument(
      "--node-secret-file {} has {} bytes: take at least {}", path, text.size(), kMinMeshSecret);
}

}  // namespace

Result<MeshOptions> node_mesh(const ResolvedConfig& config,
                              int64_t num_sampled_ids,
                              const std::string& device,
                              const std::function<bool()>& go_on) {
  const NodesConfig& nodes = config.engine.nodes;
  MeshOptions mesh;
  mesh.process = nodes.node_rank;
  mesh.num_processes = nodes.num_nodes;
  mesh.address = nodes.master_address;
  mesh.port = static_cast<uint16_t>(nodes.master_port);
  ASSIGN_OR_RETURN(mesh.secret, read_secret(nodes.secret_file));
  ASSIGN_OR_RETURN(const std::string digest, digest_for_nodes(config.engine, ATOM_VERSION));
  mesh.digest = fmt::format("{}, {} tokens, on {}", digest, num_sampled_ids, device);
  mesh.patience = kYears;
  mesh.go_on = go_on;
  mesh.on_listening = [num_nodes = nodes.num_nodes](uint16_t port) {
    log::info("waiting for {} other nodes at port {}", num_nodes - 1, port);
  };
  return mesh;
}

}  // namespace atom
