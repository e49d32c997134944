// The scratch memory of encoding, kept between calls for its capacity and for the piece cache.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_model.h"

namespace atom {

struct EncodeWorkspace {
  ModelWorkspace model;
  PreTokenized pre_tokenized;
  std::string normalized;
  std::vector<AddedTokenSegment> segments, normalized_segments;
};

// Workspaces for concurrent calls: a call takes one for itself, so that none waits for another.
class WorkspacePool {
 public:
  std::unique_ptr<EncodeWorkspace> take() {
    {
      const MutexLock lock(&mutex_);
      if (!idle_.empty()) {
        auto workspace = std::move(idle_.back());
        idle_.pop_back();
        return workspace;
      }
    }
    return std::make_unique<EncodeWorkspace>();
  }

  void give_back(std::unique_ptr<EncodeWorkspace> workspace) {
    PreTokenized& pre_tokenized = workspace->pre_tokenized;
    for (auto* spans :
         {&pre_tokenized.pieces, &pre_tokenized.next_pieces, &pre_tokenized.matches}) {
      release_if_large(spans);
    }
    for (auto* text : {&pre_tokenized.buffer, &pre_tokenized.next_buffer, &workspace->normalized}) {
      release_if_large(text);
    }
    release_if_large(&workspace->segments);
    release_if_large(&workspace->normalized_segments);
    const MutexLock lock(&mutex_);
    if (idle_.size() < kMaxIdleWorkspaces) idle_.push_back(std::move(workspace));
  }

 private:
  // Each holds a piece cache of 1 MiB.
  static constexpr size_t kMaxIdleWorkspaces = 16;
  // Scratch larger than this is given back after a call.
  static constexpr size_t kMaxKeptBytes = size_t{4} << 20;

  template <typename Container>
  static void release_if_large(Container* container) {
    if (container->capacity() * sizeof(*container->data()) > kMaxKeptBytes) {
      *container = Container();
    }
  }

  Mutex mutex_;
  std::vector<std::unique_ptr<EncodeWorkspace>> idle_ GUARDED_BY(mutex_);
};

}  // namespace atom
