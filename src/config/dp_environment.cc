#include "config/dp_environment.h"

#include <charconv>
#include <optional>
#include <string>

namespace atom {
namespace {

std::optional<int32_t> parse_int(const std::string& text) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status require_zero(const char* name, const std::string& text) {
  if (text.empty() || parse_int(text) == 0) return {};
  return unimplemented(
      "{}='{}': one process starts the ranks of all copies, so it is rank 0; unset it, and "
      "ATOM_DP_SIZE says how many copies there are",
      name,
      text);
}

}  // namespace

Status apply_dp_environment(const Env& variables, EngineConfig* config) {
  RETURN_IF_ERROR(require_zero("ATOM_DP_RANK", variables.dp_rank));
  RETURN_IF_ERROR(require_zero("ATOM_DP_RANK_LOCAL", variables.dp_rank_local));
  const std::string& address = variables.dp_master_ip;
  if (!address.empty() && address != "127.0.0.1" && address != "localhost") {
    return unimplemented(
        "ATOM_DP_MASTER_IP='{}': ranks of this process meet within it, none at another address; "
        "unset it",
        address);
  }
  if (!variables.dp_master_port.empty()) {
    const std::optional<int32_t> port = parse_int(variables.dp_master_port);
    // Where ranks meet within the process no port is opened, so any will do.
    if (!port || *port < 1 || *port > 65535) {
      return invalid_argument("ATOM_DP_MASTER_PORT='{}': expected a port, 1 to 65535",
                              variables.dp_master_port);
    }
  }
  if (variables.dp_size.empty()) return {};
  const std::optional<int32_t> size = parse_int(variables.dp_size);
  if (!size || *size < 1 || *size > kMaxCopies) {
    return invalid_argument(
        "ATOM_DP_SIZE='{}': expected a number of copies, 1 to {}", variables.dp_size, kMaxCopies);
  }
  config->parallel.data_parallel_size = *size;
  return {};
}

}  // namespace atom
