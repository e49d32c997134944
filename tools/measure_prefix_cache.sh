#!/usr/bin/env bash
# Counts what of the prompts of conversations a hybrid computes again: 64 conversations of 8 turns
# behind a prefix of 4,096 tokens, of their own and shared. No model and no GPU is needed.
#   tools/measure_prefix_cache.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
ATOM_CONVERSATIONS=${ATOM_CONVERSATIONS:-64} exec "$build/src/scheduler/scheduler_test" \
  --gtest_filter='*SchedulerConversations*' --gtest_brief=1
