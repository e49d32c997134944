// How the bodies of this server's requests are read, and what becomes of the fields in them that
// nobody knows: each name is told once in the log, and all are counted. Thread-safe.
#pragma once

#include <set>
#include <string>

#include "base/mutex.h"
#include "server/openai/field_error.h"

namespace atom::server {

struct ServerContext;

// Names that the log has had.
class UnknownFieldLog {
 public:
  // At most so many names; clients choose them.
  static constexpr size_t kMaxNames = 256;

  void tell(const UnknownFields& fields);

 private:
  Mutex mutex_;
  std::set<std::string> told_ GUARDED_BY(mutex_);
};

// Reads one body.
class BodyReader {
 public:
  explicit BodyReader(ServerContext* server);
  // Tells of the unknown fields.
  ~BodyReader();
  BodyReader(const BodyReader&) = delete;
  BodyReader& operator=(const BodyReader&) = delete;

  const BodyContext& context() const { return context_; }

 private:
  ServerContext* const server_;
  UnknownFields unknown_;
  BodyContext context_;
};

}  // namespace atom::server
