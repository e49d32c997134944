// What is asked of a server before the measurement: which model it has, how much fits into its
// context and how it counts tokens. Answers are input from outside.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench_serve/connection.h"
#include "bench_serve/request_body.h"

namespace atom::bench_serve {

struct ServedModel {
  std::string name;
  int32_t max_len = 0;  // tokens of prompt and answer; 0: the server does not say
};

// How many tokens of a prompt the server counts for common words: per_word * words + around.
struct WordCost {
  double per_word = 1;
  double around = 0;
};

class ServerProbe {
 public:
  // `headers` as http_request() takes them. `connector` outlives the probe.
  ServerProbe(const Connector* connector, std::string headers, int stop_fd)
      : connector_(connector), headers_(std::move(headers)), stop_fd_(stop_fd) {}

  // The model of that name, or the first that /v1/models lists when `name` is empty. With a name,
  // a server without such a list is no error.
  Result<ServedModel> find_model(const std::string& name) const;

  // Distinct ids of ordinary tokens, from /tokenize; empty when the server has no such endpoint or
  // the ids are too few to make prompts of.
  Result<std::vector<int32_t>> token_ids(const std::string& model) const;

  // From the usage of two small requests; nothing learned leaves the defaults. An error only when
  // interrupted.
  Result<WordCost> measure_words(const BodyWriter& writer, const std::string& path) const;

 private:
  Result<Json> fetch_json(const char* method,
                          const std::string& path,
                          const std::string& body) const;

  const Connector* const connector_;
  const std::string headers_;
  const int stop_fd_;
};

}  // namespace atom::bench_serve
