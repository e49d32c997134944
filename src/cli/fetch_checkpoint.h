// Models of a hub where a command takes a checkpoint folder.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "config/engine_config.h"
#include "hub/hub_options.h"

namespace atom::cli {

class ProgressBar;

// Shows a download on the terminal. Belongs to one thread.
class PullProgress {
 public:
  PullProgress();
  ~PullProgress();

  bool show(const hub::Progress& progress);  // a hub::ProgressHandler: always goes on
  void finish();                             // removes the bar

  bool shown() const { return bytes_total_ > 0; }

 private:
  std::unique_ptr<ProgressBar> bar_;
  uint64_t bytes_total_ = 0;
  uint64_t bytes_shown_ = 0;
  bool said_waiting_ = false;
};

// Lets `model` and `tokenizer` name folders: a model of the hub is downloaded, unless the cache has
// it. `files` says what of the model is needed.
Status fetch_checkpoint(hub::FileSet files, ModelSourceConfig* source);

}  // namespace atom::cli
