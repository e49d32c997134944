// Questions to the hub that have small answers. Each is asked again after a transient failure.
// Belongs to one thread.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "hub/http_client.h"
#include "hub/hub_options.h"
#include "hub/model_name.h"
#include "hub/repo_listing.h"

namespace atom::hub {

class HubApi {
 public:
  // `keep_going` is asked while waiting; false ends the call with kAborted. All arguments outlive
  // this object.
  HubApi(HttpClient* client, const HubOptions& options, std::function<bool()> keep_going);

  // The commit and files of a model at its revision. At most `max_attempts` requests.
  Result<RepoListing> list(const ModelName& model, int max_attempts);

  // Etag and size of a file that the listing gives without.
  Result<RepoFile> look_up(const ModelName& model,
                           const std::string& commit,
                           const std::string& file);

 private:
  Result<HttpReply> ask(const HttpRequest& request,
                        const ModelName& model,
                        const std::string& file,
                        int max_attempts,
                        std::string* body);

  HttpClient* const client_;
  const HubOptions& options_;
  const std::function<bool()> keep_going_;
};

// Where the content of a file is.
std::string file_url(const HubOptions& options,
                     const ModelName& model,
                     const std::string& commit,
                     const std::string& file);

}  // namespace atom::hub
