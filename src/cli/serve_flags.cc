#include "cli/serve_flags.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/env.h"
#include "base/log.h"
#include "server/api_key.h"

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
  option.set = [target, name = option.names[0]](const std::string& value) -> Status {
    if (value.empty()) return invalid_argument("{}: the value is empty", name);
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

std::vector<server::ApiKey> keys_of(const std::vector<std::string>& secrets,
                                    const std::string& name) {
  std::vector<server::ApiKey> keys;
  for (const std::string& secret : secrets) {
    server::ApiKey& key = keys.emplace_back();
    key.secret = secret;
    key.name = fmt::format("{}-{}", name, keys.size());
  }
  return keys;
}

// "/a/b", or nothing for the root.
Result<std::string> normalized_root(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  if (path.empty() || path.starts_with('/')) return path;
  return invalid_argument("--root-path is '{}'; expected a path that begins with /", path);
}

void add_address_options(ServeFlags* flags, std::vector<Option>* options) {
  std::vector<Option>& list = *options;
  list.push_back(text_option("--host",
                             kServer,
                             "ADDRESS",
                             "Address to listen on; 0.0.0.0 and :: are all of the machine's.",
                             &flags->options.http.host));
  list.back().default_value = flags->options.http.host;
  list.push_back(int_option(
      "--port", kServer, 0, 65535, "Port to listen on; 0 takes any free one.", &flags->port));
  Option server_port = int_option("--server-port",
                                  kServer,
                                  0,
                                  65535,
                                  "Another name of --port, and counts if both are given.",
                                  &flags->server_port);
  server_port.default_value.clear();
  list.push_back(std::move(server_port));
  list.push_back(text_option("--uds",
                             kServer,
                             "PATH",
                             "Unix socket to listen on instead.",
                             &flags->options.http.unix_socket));
  list.push_back(list_option("--served-model-name",
                             "NAME",
                             "What clients call the model; may be given several times. Without "
                             "it, the name of the checkpoint's folder.",
                             &flags->served_model_names));
  list.back().takes_list = true;
  list.push_back(text_option("--root-path",
                             kServer,
                             "PATH",
                             "Where a proxy has this server: requests may come with the path in "
                             "front of theirs.",
                             &flags->root_path));
  list.push_back(switch_option("--no-ui", kServer, "Serve no page at /.", &flags->no_ui));
  list.push_back(switch_option("--strict-fields",
                               kServer,
                               "Refuse requests with fields that are not known; else these are "
                               "not read, counted in /metrics and each named once in the log.",
                               &flags->options.strict_fields));
  list.push_back(switch_option("--enable-force-include-usage",
                               kServer,
                               "End every stream with the usage, as if include_usage were set.",
                               &flags->options.force_include_usage));
  list.push_back(int_option("--shutdown-timeout",
                            kServer,
                            0,
                            kMaxSeconds,
                            "Seconds that running answers get after SIGTERM.",
                            &flags->shutdown_timeout));
}

void add_access_options(ServeFlags* flags, std::vector<Option>* options) {
  std::vector<Option>& list = *options;
  list.push_back(list_option("--api-key",
                             "KEY",
                             "Key that clients must send; may be given several times. Visible to "
                             "other users of the machine: ATOM_API_KEY or --api-key-file are not.",
                             &flags->api_keys));
  list.push_back(
      text_option("--api-key-file",
                  kServer,
                  "FILE",
                  "File with one key per line, and behind it what it allows (docs/serving.md). "
                  "SIGHUP reads it again.",
                  &flags->api_key_file));
  list.push_back(switch_option("--cache-salt-per-key",
                               kServer,
                               "Cache prompts for each key apart: nobody sees by speed or "
                               "cached_tokens what others have sent.",
                               &flags->options.cache_salt_per_key));
  list.push_back(text_option("--ssl-certfile",
                             kServer,
                             "FILE",
                             "TLS certificate chain (PEM); with --ssl-keyfile: https.",
                             &flags->options.http.tls_certificate_file));
  list.push_back(text_option("--ssl-keyfile",
                             kServer,
                             "FILE",
                             "Key of the certificate (PEM).",
                             &flags->options.http.tls_key_file));
  list.push_back(list_option("--allowed-origins",
                             "ORIGIN",
                             "Origin that web pages may call from (CORS), * for any; may be given "
                             "several times. Without it only the server's own.",
                             &flags->allowed_origins));
  list.push_back(
      switch_option("--no-cors",
                    kServer,
                    "Let no other origin call from a browser, as without --allowed-origins.",
                    &flags->no_cors));
  list.push_back(list_option("--allowed-hosts",
                             "NAME",
                             "Name that clients may call the server by (the Host header), * for "
                             "any; may be given several times. Without it any, but on a loopback "
                             "address only that address and localhost.",
                             &flags->allowed_hosts));
}

void add_model_options(ServeFlags* flags, std::vector<Option>* options) {
  std::vector<Option>& list = *options;
  list.push_back(text_option("--tool-call-parser",
                             kModel,
                             "NAME",
                             "How tool calls are read from answers: auto, none or a parser's name.",
                             &flags->options.output_format.tool_call_parser));
  list.back().default_value = flags->options.output_format.tool_call_parser;
  list.push_back(text_option("--reasoning-parser",
                             kModel,
                             "NAME",
                             "How reasoning is read from answers: auto, none or a parser's name.",
                             &flags->options.output_format.reasoning_parser));
  list.back().default_value = flags->options.output_format.reasoning_parser;
  list.push_back(text_option("--default-chat-template-kwargs",
                             kModel,
                             "JSON",
                             "Variables of the chat template for requests that set none.",
                             &flags->options.default_chat_template_kwargs));
  list.push_back(switch_option("--trust-request-chat-template",
                               kModel,
                               "Take chat templates from requests (chat_template), which may cost "
                               "a second of a worker each.",
                               &flags->options.trust_request_chat_template));
}

void add_store_options(ServeFlags* flags, std::vector<Option>* options) {
  options->push_back(int_option(
      "--max-stored-responses",
      kLimits,
      0,
      1 << 20,
      "Conversations of /v1/responses kept for previous_response_id, in MiB; the longest "
      "unused go first, and 0 keeps none.",
      &flags->max_stored_mib));
}

void add_limits_options(ServeFlags* flags, std::vector<Option>* options) {
  std::vector<Option>& list = *options;
  list.push_back(int_option("--max-logprobs",
                            kLimits,
                            0,
                            SamplingParams::kMaxLogprobs,
                            "Most log-probabilities per token that a request may ask for.",
                            &flags->max_logprobs));
  list.push_back(int_option("--num-workers",
                            kLimits,
                            0,
                            1024,
                            "Threads that parse and tokenize requests; 0 chooses.",
                            &flags->options.num_workers));
  list.push_back(int_option("--max-connections",
                            kLimits,
                            1,
                            1 << 20,
                            "Connections open at once; more get 503.",
                            &flags->max_connections));
  list.push_back(int_option(
      "--max-body-size", kLimits, 1, 1024, "Largest request body in MiB.", &flags->max_body_mib));
  list.push_back(int_option("--max-buffered-bytes",
                            kLimits,
                            1,
                            1 << 20,
                            "Request bodies held at a time, in MiB; more get 429.",
                            &flags->max_buffered_mib));
  list.push_back(int_option("--header-timeout",
                            kLimits,
                            1,
                            kMaxSeconds,
                            "Seconds for the headers of a request to arrive.",
                            &flags->header_timeout));
  list.push_back(int_option("--body-timeout",
                            kLimits,
                            1,
                            kMaxSeconds,
                            "Seconds for the body of a request to arrive.",
                            &flags->body_timeout));
  list.push_back(int_option("--idle-timeout",
                            kLimits,
                            1,
                            kMaxSeconds,
                            "Seconds that a connection may stay open between requests.",
                            &flags->idle_timeout));
  list.back().names.push_back("--timeout-keep-alive");
  list.push_back(int_option("--write-timeout",
                            kLimits,
                            1,
                            kMaxSeconds,
                            "Seconds that a client may take nothing of its answer.",
                            &flags->write_timeout));
  list.push_back(int_option("--keep-alive-interval",
                            kLimits,
                            1,
                            kMaxSeconds,
                            "Seconds of silence after which a stream sends a comment.",
                            &flags->keep_alive_interval));
}

}  // namespace

std::vector<Option> ServeFlags::make_options() {
  std::vector<Option> list;
  add_address_options(this, &list);
  add_access_options(this, &list);
  add_model_options(this, &list);
  add_limits_options(this, &list);
  add_store_options(this, &list);
  return list;
}

Result<server::ServerOptions> ServeFlags::to_options(const std::string& model) const {
  using std::chrono::seconds;
  server::ServerOptions result = options;
  result.http.port = static_cast<uint16_t>(server_port == kNoPort ? port : server_port);
  if (server_port != kNoPort && port != kDefaultPort) {
    log::warning("--server-port counts, not --port: the engine has no port of its own");
  }
  result.max_logprobs = max_logprobs;
  ASSIGN_OR_RETURN(result.root_path, normalized_root(root_path));
  result.serves_page = !no_ui;
  result.served_model_names = served_model_names;
  if (served_model_names.empty()) result.served_model_names = {default_name(model)};
  result.api_keys = keys_of(api_keys, "option");
  if (api_keys.empty() && !env().api_key.empty()) {
    result.api_keys = keys_of({env().api_key}, "environment");
  }
  result.api_key_file = api_key_file;
  // Wrong ones are found before the model is loaded.
  if (!api_key_file.empty()) RETURN_IF_ERROR(server::read_api_key_file(api_key_file).status());
  result.allowed_hosts = allowed_hosts;
  result.allowed_origins = allowed_origins;
  if (no_cors && !allowed_origins.empty()) {
    return invalid_argument("--no-cors and --allowed-origins contradict each other");
  }
  if (result.http.tls_certificate_file.empty() != result.http.tls_key_file.empty()) {
    return invalid_argument("--ssl-certfile and --ssl-keyfile go together");
  }
  result.shutdown_timeout = seconds(shutdown_timeout);
  result.http.max_body_size = static_cast<size_t>(max_body_mib) << 20;
  result.http.max_buffered_bytes = static_cast<size_t>(max_buffered_mib) << 20;
  result.max_stored_bytes = static_cast<size_t>(max_stored_mib) << 20;
  result.http.max_connections = static_cast<size_t>(max_connections);
  result.http.header_timeout = seconds(header_timeout);
  result.http.body_timeout = seconds(body_timeout);
  result.http.idle_timeout = seconds(idle_timeout);
  result.http.write_timeout = seconds(write_timeout);
  result.http.keep_alive_interval = seconds(keep_alive_interval);
  return result;
}

}  // namespace atom::cli
