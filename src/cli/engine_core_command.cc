// atom engine-core: an engine core in a process of its own. A front end starts it
// (engine/core_manager.h) and it ends with it.
#include <sys/prctl.h>

#include <new>

#include "base/child_process.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "cli/start_engine.h"
#include "engine/copy_group.h"
#include "engine/core_arguments.h"
#include "models/registry.h"

namespace atom::cli {
namespace {

Result<ResolvedConfig> resolve_config(const CoreArguments& arguments) {
  RETURN_IF_ERROR(apply_log_flags(arguments.config));
  ASSIGN_OR_RETURN(const ModelConfig model, load_model_config(arguments.config.model.model));
  return resolve(arguments.config, model);
}

// Its failures go to the front end, which says them to the user.
int serve(const CoreArguments& arguments) {
  zmq::context_t context;
  try {
    const Result<ResolvedConfig> config = resolve_config(arguments);
    if (config.ok()) {
      const bool ok = serve_core(*config, arguments.num_sampled_ids, context, arguments.endpoints);
      return ok ? kExitOk : kExitError;
    }
    EngineCore::report_failure(context, arguments.endpoints, config.status());
  } catch (const std::bad_alloc&) {
    EngineCore::report_failure(
        context, arguments.endpoints, resource_exhausted("the engine is out of memory"));
  } catch (const std::exception& error) {
    EngineCore::report_failure(
        context, arguments.endpoints, internal_error("the engine: {}", error.what()));
  }
  return kExitError;
}

}  // namespace

int run_engine_core(const std::vector<std::string>& args) {
  ::prctl(PR_SET_NAME, "atom-engine");
  const Result<CoreArguments> arguments = parse_core_arguments(args);
  if (!arguments.ok()) return fail_usage("", arguments.status().with_context(kEngineCoreCommand));
  if (!exit_with_parent(arguments->lifeline)) {
    return fail_usage("", invalid_argument("{} is started by other commands", kEngineCoreCommand));
  }
  return serve(*arguments);
}

}  // namespace atom::cli
