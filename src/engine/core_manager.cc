#include "engine/core_manager.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <new>

#include "base/env.h"
#include "base/log.h"
#include "engine/copy_group.h"
#include "engine/core_arguments.h"
#include "engine/zmq_frames.h"

namespace atom {
namespace {

using std::chrono::milliseconds;

constexpr const char* kThisProgram = "/proc/self/exe";
// Until a core that says it is ready has been heard on its other socket, too.
constexpr milliseconds kReachablePoll{1};
constexpr std::chrono::seconds kReachableLimit{10};
constexpr milliseconds kLastWordPatience{50};
// Silence after which a process is looked at.
constexpr milliseconds kSuspicious = 2 * CoreWatch::kHeartbeat;
// The log tells of a silence this long: on a busy machine a process pauses for tenths of a second.
constexpr milliseconds kToldSilence{1000};

double to_seconds(CoreWatch::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

CoreManager::CoreManager(const ResolvedConfig& config,
                         int64_t num_sampled_ids,
                         CoreLaunch launch,
                         CoreHandlers handlers)
    : config_(config),
      num_sampled_ids_(num_sampled_ids),
      launch_(std::move(launch)),
      handlers_(std::move(handlers)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      restarts_(config.engine.supervision.max_restarts) {}

Result<std::unique_ptr<CoreManager>> CoreManager::start(const ResolvedConfig& config,
                                                        int64_t num_sampled_ids,
                                                        CoreLaunch launch,
                                                        CoreHandlers handlers) {
  std::unique_ptr<CoreManager> manager(
      new CoreManager(config, num_sampled_ids, std::move(launch), std::move(handlers)));
  if (!manager->wake_.valid()) return resource_exhausted("no file descriptors are left");
  if (manager->launch_.child_process) {
    ASSIGN_OR_RETURN(manager->folder_, IpcFolder::create(env().runtime_folder));
  }
  manager->thread_ = std::thread([m = manager.get()] { m->run(); });
  Status status;
  {
    MutexLock lock(&manager->health_mutex_);
    while (!manager->first_start_.has_value()) manager->started_changed_.wait(&lock);
    status = *manager->first_start_;
  }
  RETURN_IF_ERROR(status);
  return manager;
}

CoreManager::~CoreManager() {
  stop();
}

void CoreManager::stop() {
  stopping_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
}

EngineHealth CoreManager::health() const {
  const MutexLock lock(&health_mutex_);
  return health_;
}

void CoreManager::send(const CoreRequest& request) {
  if (!requests_.send(request)) wake();
}

void CoreManager::wake() {
  (void)!::eventfd_write(wake_.get(), 1);
}

bool CoreManager::wait_for_stop(milliseconds timeout) {
  const auto deadline = CoreWatch::Clock::now() + timeout;
  while (!stopping_) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - CoreWatch::Clock::now());
    if (left.count() <= 0) return false;
    pollfd woken{wake_.get(), POLLIN, 0};
    ::poll(&woken, 1, static_cast<int>(left.count()));
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
  }
  return true;
}

// ---- the manager's thread ----------------------------------------------------------------------

void CoreManager::run() {
  while (!stopping_) {
    const Ending ending = run_core();
    if (stopping_) break;
    if (!was_ready_) {
      const MutexLock lock(&health_mutex_);
      first_start_ =
          ending.failure.value_or(unavailable("the engine {} while it started", ending.how));
      started_changed_.notify_all();
      return;
    }
    if (!restart_delay_) return;
    if (wait_for_stop(*restart_delay_)) break;
    const MutexLock lock(&health_mutex_);
    ++health_.num_restarts;
  }
  set_state(EngineState::kStopping, "the engine is stopping");
}

Result<EngineCoreEndpoints> CoreManager::bind_sockets(zmq::socket_t* responses) {
  if (folder_ != nullptr && !folder_->is_intact()) {
    log::warning("the folder {} is gone", folder_->path());
    ASSIGN_OR_RETURN(folder_, IpcFolder::create(env().runtime_folder));
  }
  const uint64_t life = num_lives_++;
  const std::string base =
      folder_ ? "ipc://" + folder_->path() + "/" : std::string("inproc://atom-core-");
  EngineCoreEndpoints endpoints{fmt::format("{}requests-{}", base, life),
                                fmt::format("{}responses-{}", base, life),
                                kCoreIdentity};
  if (launch_.child_process) endpoints.heartbeat = CoreWatch::kHeartbeat;
  try {
    *responses = atom::bind(context_, zmq::socket_type::pull, endpoints.responses);
    requests_.open(context_, endpoints.requests);
  } catch (const zmq::error_t& error) {
    return unavailable("cannot make the sockets {} and {}: {}",
                       endpoints.requests,
                       endpoints.responses,
                       error.what());
  }
  return endpoints;
}

CoreManager::Ending CoreManager::run_core() {
  restart_delay_.reset();
  up_ = false;
  announced_.reset();
  watch_.emplace(config_.engine.supervision, CoreWatch::Clock::now());
  zmq::socket_t responses;
  const Result<EngineCoreEndpoints> endpoints = bind_sockets(&responses);
  if (!endpoints.ok()) {
    const Ending ending{"could not be started: " + endpoints.status().message(),
                        endpoints.status()};
    go_down(ending);
    return ending;
  }
  std::optional<Ending> ending;
  if (const Status launched = launch_core(*endpoints); launched.ok()) {
    ending = supervise(responses);
  } else {
    ending = Ending{"could not be started: " + launched.message(), launched};
  }
  if (ending && !stopping_) {
    if (child_) child_->kill();
    // What it finished before it died counts, and so does what it said about its end.
    if (std::optional<Ending> last_word = receive_last(responses, *ending)) ending = last_word;
    go_down(*ending);
  } else {
    stop_core();
  }
  // Not before the core's thread has read what was sent.
  if (core_thread_.joinable()) core_thread_.join();
  requests_.close();
  if (child_) {
    child_->wait_for_good();
    log::info("{}: process {} has ended ({})", launch_.name, child_->pid(), child_->how_it_ended());
    child_.reset();
  }
  return ending.value_or(Ending{});
}

Status CoreManager::launch_core(const EngineCoreEndpoints& endpoints) {
  if (!launch_.child_process) {
    core_thread_ = std::thread(
        [this, endpoints] { serve_core(config_, num_sampled_ids_, context_, endpoints); });
    return {};
  }
  CoreArguments arguments{endpoints, num_sampled_ids_, ChildProcess::kLifeline, config_.engine};
  arguments.config.log_level = log::level_name(log::level());
  // Beside other copies, less memory is free than when all of them began.
  const bool has_others = config_.num_cores() > 1;
  if (has_others && num_blocks_ > 0) arguments.config.cache.num_blocks = num_blocks_;
  std::vector<std::string> argv = format_core_arguments(arguments);
  argv.insert(argv.begin(), "atom");
  const std::string executable = launch_.executable.empty() ? kThisProgram : launch_.executable;
  ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::start(executable, argv));
  child_.emplace(std::move(child));
  {
    const MutexLock lock(&health_mutex_);
    health_.pid = child_->pid();
  }
  log::info("{}: the process is {}", launch_.name, child_->pid());
  return {};
}

std::optional<CoreManager::Ending> CoreManager::supervise(zmq::socket_t& responses) {
  while (!stopping_) {
    const bool unreachable_yet = announced_ && !up_;
    const int exit_fd = child_ ? child_->exit_fd() : -1;
    wait_for_any(
        responses, {wake_.get(), exit_fd}, unreachable_yet ? kReachablePoll : watch_->next_tick());
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
    if (std::optional<Ending> ending = receive(responses)) return ending;
    note_progress();
    if (announced_ && !up_) announce_when_reachable();
    if (announced_ && !up_ && CoreWatch::Clock::now() - announced_at_ > kReachableLimit) {
      return Ending{"did not connect to take requests", std::nullopt};
    }
    if (child_ && child_->wait(milliseconds(0))) return death();
    if (requests_.has_failed()) return Ending{"could not be reached any more", std::nullopt};
    if (child_) {
      if (std::optional<Ending> ending = judge()) return ending;
    }
  }
  return std::nullopt;
}

std::optional<CoreManager::Ending> CoreManager::receive(zmq::socket_t& responses) {
  try {
    while (!stopping_) {
      const std::optional<std::vector<uint8_t>> frame = receive_frame(responses);
      if (!frame) break;
      Result<CoreResponse> response = decode_core_response(*frame);
      if (!response.ok()) {
        // Anyone who may write to the socket may write nonsense, and much of it.
        if (num_malformed_++ == 0) log::error("core manager: {}", response.status().message());
        continue;
      }
      watch_->heard(*response, CoreWatch::Clock::now());
      if (std::optional<Ending> ending = handle(std::move(*response))) return ending;
    }
  } catch (const std::bad_alloc&) {
    // What it said is lost, and with it where its requests stand.
    return Ending{"said more than there is memory for", std::nullopt};
  }
  return std::nullopt;
}

std::optional<CoreManager::Ending> CoreManager::receive_last(zmq::socket_t& responses,
                                                             const Ending& ending) {
  if (std::optional<Ending> last_word = receive(responses)) return last_word;
  if (!ending.exited) return std::nullopt;
  // It chose to end, so it may have said why; that may still be on its way through ZeroMQ.
  const auto deadline = CoreWatch::Clock::now() + kLastWordPatience;
  while (!stopping_ && CoreWatch::Clock::now() < deadline) {
    wait_for_any(responses, {wake_.get()}, kReachablePoll);
    if (std::optional<Ending> last_word = receive(responses)) return last_word;
  }
  return std::nullopt;
}

std::optional<CoreManager::Ending> CoreManager::handle(CoreResponse response) {
  if (auto* step = std::get_if<StepOutput>(&response)) {
    for (const RequestDelta& delta : step->deltas) {
      if (!delta.token_ids.empty()) restarts_.served();
    }
    if (up_ && handlers_.on_step) handlers_.on_step(std::move(*step));
  } else if (const auto* loading = std::get_if<CoreLoading>(&response)) {
    if (!was_ready_ && handlers_.on_loading) handlers_.on_loading(*loading);
  } else if (const auto* ready = std::get_if<CoreReady>(&response)) {
    if (announced_) return std::nullopt;
    announced_ = *ready;
    announced_at_ = CoreWatch::Clock::now();
  } else if (const auto* profile = std::get_if<CoreProfile>(&response)) {
    if (up_ && handlers_.on_profile) handlers_.on_profile(*profile);
  } else if (auto* failed = std::get_if<CoreFailed>(&response)) {
    return Ending{"failed: " + failed->reason, Status(failed->code, failed->reason)};
  }
  return std::nullopt;
}

void CoreManager::announce_when_reachable() {
  if (!requests_.reach()) return;
  up_ = true;
  if (handlers_.on_ready) handlers_.on_ready(*announced_);
  set_state(EngineState::kReady, "");
  if (was_ready_) {
    log::warning("{} serves again", launch_.name);
    return;
  }
  was_ready_ = true;
  num_blocks_ = announced_->num_blocks;
  const MutexLock lock(&health_mutex_);
  first_start_ = Status();
  started_changed_.notify_all();
}

std::optional<CoreManager::Ending> CoreManager::judge() {
  const CoreWatch::Verdict verdict = watch_->tick(CoreWatch::Clock::now());
  // Its requests need not wait until the kernel has freed its memory: 2 s were seen for 3 GiB.
  if (watch_->silence() >= kSuspicious && child_->is_dying()) {
    return death();
  }
  const EngineState state = health().state;
  const SupervisionConfig& limits = config_.engine.supervision;
  switch (verdict) {
    case CoreWatch::Verdict::kFine:
      if (up_ && state == EngineState::kUnresponsive) {
        if (std::exchange(told_silence_, false)) {
          log::warning("the engine (process {}) speaks again", child_->pid());
        }
        set_state(EngineState::kReady, "");
      }
      break;
    case CoreWatch::Verdict::kSilent:
      if (up_ && state == EngineState::kReady) {
        set_state(EngineState::kUnresponsive, "the engine does not respond");
      }
      if (up_ && watch_->silence() >= kToldSilence && !std::exchange(told_silence_, true)) {
        log::warning("the engine (process {}) has been silent for {} ms",
                     child_->pid(),
                     std::chrono::duration_cast<milliseconds>(watch_->silence()).count());
      }
      break;
    case CoreWatch::Verdict::kHung:
      return Ending{
          fmt::format("was silent for {:.1f} s and was killed", to_seconds(watch_->silence())),
          std::nullopt};
    case CoreWatch::Verdict::kStuck:
      return Ending{fmt::format("made no progress on a step for {:.1f} s and was killed",
                                limits.step_timeout),
                    std::nullopt};
  }
  return std::nullopt;
}

CoreManager::Ending CoreManager::death() const {
  return {fmt::format("died ({})", child_->how_it_ended()), std::nullopt, child_->exited()};
}

void CoreManager::note_progress() {
  const MutexLock lock(&health_mutex_);
  health_.last_progress = watch_->last_progress();
}

void CoreManager::go_down(const Ending& ending) {
  requests_.cut_off();
  if (!was_ready_) return;  // nobody has sent it anything
  std::string reason = launch_.name + " " + ending.how;
  log::error("{}", reason);
  Status lost;
  Status refusal;
  if (!launch_.child_process) {
    lost = refusal = ending.failure.value_or(unavailable("{}", reason));
  } else if (restart_delay_ = restarts_.died(); restart_delay_) {
    lost = unavailable("{} and is being restarted; the request was lost", reason);
    refusal = unavailable("{} is restarting", launch_.name);
  } else {
    reason += fmt::format(" and is not started again: {} restarts in a row served nothing",
                          config_.engine.supervision.max_restarts);
    lost = refusal = unavailable("{}", reason);
  }
  set_state(restart_delay_ ? EngineState::kRestarting : EngineState::kFailed, reason);
  if (handlers_.on_down) handlers_.on_down(lost, refusal);
}

void CoreManager::stop_core() {
  set_state(EngineState::kStopping, "the engine is stopping");
  if (up_) send(Shutdown{});
  requests_.cut_off();
  if (!child_) return;
  const milliseconds patience(
      static_cast<int64_t>(config_.engine.supervision.shutdown_timeout * 1000));
  if (up_ && child_->wait(patience)) return;
  if (up_) log::warning("the engine (process {}) did not end in time: killed", child_->pid());
  child_->kill();
}

void CoreManager::set_state(EngineState state, const std::string& reason) {
  EngineHealth health;
  {
    const MutexLock lock(&health_mutex_);
    if (health_.state == state && health_.reason == reason) return;
    if (state == EngineState::kUnresponsive) ++health_.num_unresponsive;
    if (state == EngineState::kRestarting || state == EngineState::kFailed) health_.pid = 0;
    health_.state = state;
    health_.reason = reason;
    health = health_;
  }
  if (handlers_.on_health) handlers_.on_health(health);
}

}  // namespace atom
