#include "server/body_reader.h"

#include "base/log.h"
#include "server/server_context.h"

namespace atom::server {

void UnknownFieldLog::tell(const UnknownFields& fields) {
  const MutexLock lock(&mutex_);
  for (const std::string& name : fields.names) {
    if (told_.size() >= kMaxNames || !told_.insert(name).second) continue;
    log::warning_with({{"field", name}},
                      "requests have a field that is not known and not read (said once; "
                      "--strict-fields refuses such requests)");
  }
}

BodyReader::BodyReader(ServerContext* server) : server_(server) {
  if (!server->options.strict_fields) context_.unknown = &unknown_;
  context_.vocab_size = server->engine.config().model.vocab_size;
  context_.max_logprobs = server->options.max_logprobs;
  context_.keeps_responses = server->responses.is_on();
}

BodyReader::~BodyReader() {
  if (unknown_.count == 0) return;
  server_->metrics.count_unknown_fields(unknown_.count);
  server_->unknown_fields.tell(unknown_);
}

}  // namespace atom::server
