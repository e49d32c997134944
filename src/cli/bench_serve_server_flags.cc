// Where the server of `atom bench serve` is and how it is asked.
#include <algorithm>

#include "base/log.h"
#include "cli/bench_serve_groups.h"
#include "cli/bench_serve_option_kinds.h"

namespace atom::cli {
namespace {

using namespace atom::bench_serve;  // NOLINT: nearly every type here is its

constexpr const char* kServerGroup = "Server";

Status set_endpoint(const std::string& text, BenchmarkOptions* benchmark) {
  const bool is_path = text.starts_with('/') && std::all_of(text.begin(), text.end(), [](char c) {
                         return c > ' ' && c < 0x7f;
                       });
  if (text != "completions" && text != "chat" && !is_path) {
    return wrong_value("--endpoint", text, "completions, chat or a path such as /v1/completions");
  }
  const bool is_chat = text.find("chat") != std::string::npos;
  benchmark->endpoint = is_chat ? EndpointKind::kChat : EndpointKind::kCompletions;
  benchmark->endpoint_path = is_path ? text : "";
  return {};
}

Status set_backend(const std::string& text, BenchmarkOptions* benchmark) {
  if (text == "openai-chat") return set_endpoint("chat", benchmark);
  // --endpoint beside it says more.
  if (text == "openai" || text == "vllm" || text == "sglang") return {};
  return wrong_value("--backend", text, "one of openai, vllm, sglang, openai-chat");
}

// Where the server is, and what it speaks.
void add_address_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  Option url = with_setter("--base-url",
                           kServerGroup,
                           "URL",
                           "The server: http://HOST:PORT, https://HOST or unix:/PATH.",
                           [=](const std::string& text) -> Status {
                             flags->has_base_url = true;
                             benchmark->base_url = text;
                             return {};
                           });
  options->push_back(with_default(std::move(url), benchmark->base_url));
  options->push_back(text_option("--host",
                                 kServerGroup,
                                 "NAME",
                                 "Host of the server, where there is no --base-url.",
                                 &flags->host));
  options->push_back(int_option("--port", kServerGroup, 1, 65535, "Its port.", &flags->port));
  Option endpoint =
      with_setter("--endpoint",
                  kServerGroup,
                  "completions|chat|PATH",
                  "Where requests go; a path with \"chat\" in it takes messages.",
                  [=](const std::string& text) { return set_endpoint(text, benchmark); });
  options->push_back(with_default(std::move(endpoint), "completions"));
  options->push_back(with_setter(
      "--backend",
      kServerGroup,
      "openai|vllm|sglang|openai-chat",
      "vLLM's name for the protocol: openai-chat is --endpoint chat, the others completions.",
      [=](const std::string& text) { return set_backend(text, benchmark); }));
  options->push_back(with_setter("--trust-remote-code",
                                 kServerGroup,
                                 "",
                                 "No effect: no code of a model is ever run.",
                                 [](const std::string&) -> Status {
                                   log::warning(
                                       "--trust-remote-code has no effect: no code of a model is "
                                       "ever run");
                                   return {};
                                 }));
}

// What it is asked with.
void add_access_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  options->push_back(text_option("--model",
                                 kServerGroup,
                                 "NAME",
                                 "The model to ask for; without it the first of /v1/models.",
                                 &benchmark->model));
  options->push_back(text_option("--api-key",
                                 kServerGroup,
                                 "KEY",
                                 "Sent as a bearer token; without it $OPENAI_API_KEY.",
                                 &benchmark->api_key));
  Option header = with_setter("--header",
                              kServerGroup,
                              "NAME=VALUE",
                              "A header of every request.",
                              [=](const std::string& text) -> Status {
                                benchmark->headers.push_back(text);
                                return {};
                              });
  header.repeatable = true;
  options->push_back(std::move(header));
  options->push_back(with_setter("--insecure",
                                 kServerGroup,
                                 "",
                                 "Accept any certificate of a https server.",
                                 [=](const std::string&) -> Status {
                                   benchmark->verify_certificate = false;
                                   return {};
                                 }));
  options->push_back(number_option("--timeout",
                                   kServerGroup,
                                   0,
                                   false,
                                   "Seconds that a request may take.",
                                   &benchmark->timeout));
  options->push_back(number_option("--ready-check-timeout-sec",
                                   kServerGroup,
                                   -1,
                                   false,
                                   "Seconds to wait for the server to become ready.",
                                   &benchmark->ready_timeout));
}

}  // namespace

void add_server_options(BenchServeFlags* flags, std::vector<Option>* options) {
  add_address_options(flags, options);
  add_access_options(flags, options);
}

}  // namespace atom::cli
