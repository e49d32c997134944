#!/usr/bin/env bash
# From a fresh clone to an answer: installs what is missing, builds, and asks the demo model.
set -euo pipefail

usage() {
  cat <<'MESSAGE'
usage: ./run.sh [--gpu] ["question"]

Installs the packages that atom needs (apt, with sudo when you are not root; nothing when all is
there), builds build/release/atom when it is not up to date, and answers the question with the demo
model in models/tldr-8m, which knows command-line tools:

  ./run.sh "How do I use git commit?"
  ./run.sh "What is ffmpeg?"

With --gpu it builds with CUDA (build/cuda/atom) and answers on the NVIDIA GPU.

MESSAGE
}

preset=release
device=cpu
setup_options=()
if [ "${1:-}" = --gpu ]; then
  preset=cuda
  device=cuda
  setup_options=(--cuda)
  shift
fi
case "${1:-}" in
  -h | --help)
    usage
    exit 0
    ;;
  -*)
    echo "run.sh: unknown option '$1'" >&2
    usage >&2
    exit 2
    ;;
esac
if [ $# -gt 1 ]; then
  echo "run.sh: expected one question, got $# arguments; put the question in quotes" >&2
  usage >&2
  exit 2
fi
question=${1:-How do I use git commit?}

cd "$(dirname "$0")"
# Before the kernels are compiled, which takes long.
if [ "$device" = cuda ] && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
  echo "run.sh: --gpu: this machine has no NVIDIA driver (no /dev/nvidiactl, in WSL no /dev/dxg): install it, or start the container with --gpus all. To build only: tools/setup.sh --cuda && tools/build.sh cuda atom" >&2
  exit 1
fi
tools/setup.sh "${setup_options[@]}"
tools/build.sh "$preset" atom
exec "build/$preset/atom" generate models/tldr-8m --device "$device" --chat "$question"
