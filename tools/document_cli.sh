#!/usr/bin/env bash
# Prints docs/cli.md: what --help says of every command.
#   tools/document_cli.sh build/release/atom > docs/cli.md
set -euo pipefail

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
