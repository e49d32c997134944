// When a failed request is worth another attempt, and what to tell when it is not.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/status.h"
#include "hub/http_client.h"
#include "hub/hub_options.h"
#include "hub/model_name.h"

namespace atom::hub {

// How long to wait before attempt `num_attempts + 1`; nothing when there should be none.
std::optional<std::chrono::milliseconds> delay_before_retry(const HttpOutcome& outcome,
                                                            int num_attempts,
                                                            const HubOptions& options);

// What a failed request for `file` (empty: the model itself) means and what would help.
// kUnavailable: the hub could not be reached, or was not able to answer.
Status explain_failure(const HttpOutcome& outcome,
                       const ModelName& model,
                       const std::string& file,
                       const HubOptions& options);

}  // namespace atom::hub
