#include "structured_output/compile_queue.h"

#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace atom {

using Clock = std::chrono::steady_clock;
using Compiled = Result<std::shared_ptr<const CompiledGrammar>>;

// Lives as long as a thread needs it.
struct CompileQueue::Shared {
  struct Job {
    uint64_t id;
    std::string text;
  };

  explicit Shared(MakeCompiler make) : make_compiler(std::move(make)) {}

  static void run(const std::shared_ptr<Shared>& shared);
  std::optional<Job> next_job();
  // False: it was given up meanwhile, and with it this thread.
  bool finish(uint64_t id, Compiled grammar);
  Compiled compile(const std::string& text);

  const MakeCompiler make_compiler;
  Mutex compiler_mutex;
  bool has_tried GUARDED_BY(compiler_mutex) = false;
  Status failure GUARDED_BY(compiler_mutex);
  std::unique_ptr<GrammarCompiler> compiler GUARDED_BY(compiler_mutex);  // const once set

  Mutex mutex;
  Condition changed;
  std::deque<Job> waiting GUARDED_BY(mutex);
  std::map<uint64_t, Clock::time_point> running GUARDED_BY(mutex);  // since when
  std::vector<Done> done GUARDED_BY(mutex);
  int num_lost GUARDED_BY(mutex) = 0;
  bool stopping GUARDED_BY(mutex) = false;
};

std::optional<CompileQueue::Shared::Job> CompileQueue::Shared::next_job() {
  MutexLock lock(&mutex);
  while (waiting.empty() && !stopping) changed.wait(&lock);
  if (stopping) return std::nullopt;
  Job job = std::move(waiting.front());
  waiting.pop_front();
  running.emplace(job.id, Clock::now());
  return job;
}

bool CompileQueue::Shared::finish(uint64_t id, Compiled grammar) {
  const MutexLock lock(&mutex);
  if (running.erase(id) > 0) {
    done.push_back({id, std::move(grammar)});
    return true;
  }
  --num_lost;
  return false;
}

Compiled CompileQueue::Shared::compile(const std::string& text) {
  GrammarCompiler* ready = nullptr;
  {
    const MutexLock lock(&compiler_mutex);
    if (!has_tried) {
      Result<std::unique_ptr<GrammarCompiler>> made = make_compiler();
      failure = made.status();
      if (made.ok()) compiler = std::move(made).value();
      has_tried = true;
    }
    RETURN_IF_ERROR(failure);
    ready = compiler.get();
  }
  return ready->compile(text);
}

void CompileQueue::Shared::run(const std::shared_ptr<Shared>& shared) {
  while (std::optional<Job> job = shared->next_job()) {
    if (!shared->finish(job->id, shared->compile(job->text))) return;
  }
}

CompileQueue::CompileQueue(MakeCompiler make_compiler, const Limits& limits)
    : limits_(limits), shared_(std::make_shared<Shared>(std::move(make_compiler))) {}

CompileQueue::~CompileQueue() {
  {
    const MutexLock lock(&shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_all();
}

void CompileQueue::start_threads() {
  for (; num_threads_ < limits_.num_threads; ++num_threads_) {
    // Nobody waits for it: XGrammar cannot be interrupted.
    std::thread([shared = shared_] { Shared::run(shared); }).detach();
  }
}

void CompileQueue::submit(uint64_t id, std::string structural_tag) {
  ++num_unfinished_;
  start_threads();
  {
    const MutexLock lock(&shared_->mutex);
    if (shared_->num_lost >= limits_.num_lost_threads) {
      shared_->done.push_back(
          {id, unavailable("too many grammars take too long to compile: try again later")});
      return;
    }
    shared_->waiting.push_back({id, std::move(structural_tag)});
  }
  shared_->changed.notify_one();
}

std::vector<CompileQueue::Done> CompileQueue::take_done() {
  std::vector<Done> done;
  {
    const MutexLock lock(&shared_->mutex);
    const Clock::time_point now = Clock::now();
    for (auto job = shared_->running.begin(); job != shared_->running.end();) {
      if (now - job->second <= limits_.time) {
        ++job;
        continue;
      }
      const double seconds = std::chrono::duration<double>(limits_.time).count();
      shared_->done.push_back(
          {job->first,
           invalid_argument("the grammar takes more than {:.3g} s to compile", seconds)});
      job = shared_->running.erase(job);
      ++shared_->num_lost;
      --num_threads_;
    }
    done = std::exchange(shared_->done, {});
    // The others would wait for what may never end.
    if (shared_->num_lost >= limits_.num_lost_threads) {
      for (const Shared::Job& job : shared_->waiting) {
        done.push_back(
            {job.id, unavailable("too many grammars take too long to compile: try again later")});
      }
      shared_->waiting.clear();
    } else if (!shared_->waiting.empty()) {
      start_threads();
    }
  }
  num_unfinished_ -= done.size();
  return done;
}

}  // namespace atom
