#!/usr/bin/env bash
# Prints docs/cli.md: what --help says of every command.
# usage: tools/document_cli.sh ATOM > docs/cli.md
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

if [ $# -ne 1 ]; then
  echo "usage: tools/document_cli.sh ATOM" >&2
  exit 2
fi
atom=$1

echo "# Command line"
echo
echo "Printed by \`tools/document_cli.sh\` from \`--help\`; a test keeps the two equal."
echo
echo '```text'
"$atom" --help
echo '```'
"$atom" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z ]*[a-z]\)  .*/\1/p' | while read -r command; do
  echo
  echo "## atom $command"
  echo
  echo '```text'
  # A name may have two words.
  "$atom" $command --help
  echo '```'
done
