// The options of `atom serve` that are the server's, not the engine's.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/option.h"
#include "server/server_options.h"

namespace atom::cli {

// As given; to_options() makes of it what the server takes.
struct ServeFlags {
  static constexpr int32_t kDefaultPort = 8000;
  static constexpr int32_t kNoPort = -1;

  server::ServerOptions options;
  int32_t port = kDefaultPort;
  int32_t server_port = kNoPort;  // over `port`
  std::vector<std::string> served_model_names;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> allowed_origins;
  bool no_cors = false;
  std::vector<std::string> allowed_hosts;
  bool no_ui = false;
  std::string root_path;
  int32_t max_logprobs = SamplingParams::kMaxLogprobs;
  int32_t shutdown_timeout = 30;  // seconds
  int32_t max_body_mib = 32;
  int32_t max_buffered_mib = 512;
  int32_t max_stored_mib = 0;
  int32_t max_connections = 65536;
  int32_t header_timeout = 10;       // seconds
  int32_t body_timeout = 60;         // seconds
  int32_t idle_timeout = 120;        // seconds
  int32_t write_timeout = 60;        // seconds
  int32_t keep_alive_interval = 15;  // seconds

  // They set the members, which outlive them.
  std::vector<Option> make_options();
  // `model`: what the model is called when no name is given.
  Result<server::ServerOptions> to_options(const std::string& model) const;
};

}  // namespace atom::cli
