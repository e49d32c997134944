#include "cli/serve_flags.h"

#include <filesystem>
#include <utility>

#include "base/env.h"
#include "server/api_keys.h"

namespace atom::cli {
namespace {

constexpr const char* kServer = "Server";
constexpr const char* kLimits = "Server limits";
constexpr const char* kModel = "Model";
constexpr int kMaxSeconds = 1 << 20;

Option list_option(std::string name,
                   std::string value_name,
                   std::string help,
                   std::vector<std::string>* target) {
  Option option =
      text_option(std::move(name), kServer, std::move(value_name), std::move(help), nullptr);
  option.repeatable = true;
  option.set = [target](const std::string& value) -> Status {
    if (value.empty()) return invalid_argument("the value is empty");
    target->push_back(value);
    return {};
  };
  return option;
}

// A folder's own name; a name of the hub as it is, without the revision.
std::string default_name(const std::string& model) {
  std::error_code error;
  if (!std::filesystem::is_directory(model, error)) return model.substr(0, model.find('@'));
  const std::filesystem::path folder = std::filesystem::canonical(model, error);
  return error ? model : folder.filename().string();
}

Status add_keys(const ServeFlags& flags, std::vector<std::string>* keys) {
  *keys = flags.api_keys;
  if (keys->empty() && !env().api_key.empty()) keys->push_back(env().api_key);
  if (flags.api_key_file.empty()) return {};
  ASSIGN_OR_RETURN(std::vector<std::string> more, server::read_api_key_file(flags.api_key_file));
  keys->insert(keys->end(), more.begin(), more.end());
  return {};
}

}  // namespace

std::vector<Option> ServeFlags::make_options() {
  std::vector<Option> list;
  list.push_back(text_option("--host",
                             kServer,
                             "ADDRESS",
                             "Address to listen on; 0.0.0.0 and :: are all of the machine's.",
                             &options.http.host));
  list.back().default_value = options.http.host;
  list.push_back(
      int_option("--port", kServer, 0, 65535, "Port to listen on; 0 takes any free one.", &port));
  list.back().names.push_back("--server-port");
  list.push_back(text_option(
      "--uds", kServer, "PATH", "Unix socket to listen on instead.", &options.http.unix_socket));
  list.push_back(list_option("--served-model-name",
                             "NAME",
                             "What clients call the model; may be given several times. Without "
                             "it, the name of the checkpoint's folder.",
                             &served_model_names));
  list.push_back(list_option("--api-key",
                             "KEY",
                             "Key that clients must send; may be given several times. Visible to "
                             "other users of the machine: ATOM_API_KEY or --api-key-file are not.",
                             &api_keys));
  list.push_back(
      text_option("--api-key-file", kServer, "FILE", "File with one key per line.", &api_key_file));
  list.push_back(text_option("--ssl-certfile",
                             kServer,
                             "FILE",
                             "TLS certificate chain (PEM); with --ssl-keyfile: https.",
                             &options.http.tls_certificate_file));
  list.push_back(text_option("--ssl-keyfile",
                             kServer,
                             "FILE",
                             "Key of the certificate (PEM).",
                             &options.http.tls_key_file));
  list.push_back(list_option("--allowed-origins",
                             "ORIGIN",
                             "Origin that browsers may call from; may be given several times. "
                             "Without it any.",
                             &allowed_origins));
  list.push_back(
      switch_option("--no-cors", kServer, "Let no other origin call from a browser.", &no_cors));
  list.push_back(int_option("--shutdown-timeout",
                            kServer,
                            0,
                            kMaxSeconds,
                            "Seconds that running answers get after SIGTERM.",
                            &shutdown_timeout));
  list.push_back(text_option("--tool-call-parser",
                             kModel,
                             "NAME",
                             "How tool calls are read from answers: auto, none or a parser's name.",
                             &options.output_format.tool_call_parser));
  list.back().default_value = options.output_format.tool_call_parser;
  list.push_back(text_option("--reasoning-parser",
                             kModel,
                             "NAME",
                             "How reasoning is read from answers: auto, none or a parser's name.",
                             &options.output_format.reasoning_parser));
  list.back().default_value = options.output_format.reasoning_parser;
  list.push_back(text_option("--default-chat-template-kwargs",
                             kModel,
                             "JSON",
                             "Variables of the chat template for requests that set none.",
                             &options.default_chat_template_kwargs));
  list.push_back(int_option("--num-workers",
                            kLimits,
                            0,
                            1024,
                            "Threads that parse and tokenise requests; 0 chooses.",
                            &options.num_workers));
  list.push_back(int_option("--max-connections",
                            kLimits,
                            1,
                            1 << 20,
                            "Connections open at once; more get 503.",
                            &max_connections));
  list.push_back(int_option(
      "--max-body-size", kLimits, 1, 1024, "Largest request body in MiB.", &max_body_mib));
  list.push_back(int_option("--header-timeout",
                            kLimits,
                            1,
                            kMaxSeconds,
                            "Seconds for the headers of a request to arrive.",
                            &header_timeout));
  list.push_back(int_option("--body-timeout",
                            kLimits,
                            1,
                            kMaxSeconds,
                            "Seconds for the body of a request to arrive.",
                            &body_timeout));
  list.push_back(int_option("--idle-timeout",
                            kLimits,
                            1,
                            kMaxSeconds,
                            "Seconds that a connection may stay open between requests.",
                            &idle_timeout));
  list.push_back(int_option("--write-timeout",
                            kLimits,
                            1,
                            kMaxSeconds,
                            "Seconds that a client may take nothing of its answer.",
                            &write_timeout));
  list.push_back(int_option("--keep-alive-interval",
                            kLimits,
                            1,
                            kMaxSeconds,
                            "Seconds of silence after which a stream sends a comment.",
                            &keep_alive_interval));
  return list;
}

Result<server::ServerOptions> ServeFlags::to_options(const std::string& model) const {
  using std::chrono::seconds;
  server::ServerOptions result = options;
  result.http.port = static_cast<uint16_t>(port);
  result.served_model_names = served_model_names;
  if (served_model_names.empty()) result.served_model_names = {default_name(model)};
  RETURN_IF_ERROR(add_keys(*this, &result.api_keys));
  result.allowed_origins = allowed_origins;
  if (no_cors && !allowed_origins.empty()) {
    return invalid_argument("--no-cors and --allowed-origins contradict each other");
  }
  if (!no_cors && allowed_origins.empty()) result.allowed_origins = {"*"};
  if (result.http.tls_certificate_file.empty() != result.http.tls_key_file.empty()) {
    return invalid_argument("--ssl-certfile and --ssl-keyfile go together");
  }
  result.shutdown_timeout = seconds(shutdown_timeout);
  result.http.max_body_size = static_cast<size_t>(max_body_mib) << 20;
  result.http.max_connections = static_cast<size_t>(max_connections);
  result.http.header_timeout = seconds(header_timeout);
  result.http.body_timeout = seconds(body_timeout);
  result.http.idle_timeout = seconds(idle_timeout);
  result.http.write_timeout = seconds(write_timeout);
  result.http.keep_alive_interval = seconds(keep_alive_interval);
  return result;
}

}  // namespace atom::cli
