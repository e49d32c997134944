// The files of a model at one commit, as the hub's API lists them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace atom::hub {

struct RepoFile {
  std::string etag;   // name of its blob; empty: the listing does not say
  uint64_t size = 0;  // bytes; with an etag only
};

struct RepoListing {
  std::string commit;                     // 40 hexadecimal digits
  std::map<std::string, RepoFile> files;  // by name; the names are the server's, unchecked
};

constexpr uint64_t kMaxFileSize = uint64_t{1} << 42;  // 4 TiB

// The answer to /api/models/NAME/revision/REVISION?blobs=true. `where` begins each message.
Result<RepoListing> parse_repo_listing(std::string_view text, std::string_view where);

// An etag as a header gives it, without quotes; an error when it could be no file name.
Result<std::string> clean_etag(std::string_view etag);

}  // namespace atom::hub
