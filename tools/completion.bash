# Completion for bash of atom's commands, options and named values, as --help of the executable that
# is typed has them; files and folders elsewhere.
# usage: source tools/completion.bash

_atom_help() {
  "${COMP_WORDS[0]}" "$@" --help 2>/dev/null
}

_atom_complete() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local -a command=("${COMP_WORDS[1]-}")
  if [[ ${command[0]} == bench && ${COMP_WORDS[2]-} == serve ]]; then command+=(serve); fi
  local words=""
  if ((COMP_CWORD == 1)); then
    words=$(_atom_help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
  elif [[ $current == -* ]]; then
    # "--[no-]json, -j FILE" are --json, --no-json and -j.
    words=$(_atom_help "${command[@]}" | sed -n 's/^  \(-.*\)/\1/p' | tr ',' '\n' |
      sed -n 's/^ *--\[no-\]\([^ ]*\).*/--\1\n--no-\1/p; t; s/^ *\(-[^ ]*\).*/\1/p')
  elif [[ $previous == --* ]]; then
    # "--load-dummy [none|zero]"
    words=$(_atom_help "${command[@]}" |
      sed -n "s/^  $previous \[\{0,1\}\([^], ]*|[^], ]*\).*/\1/p" | tr '|' '\n')
  elif [[ ${command[*]} == bench && $COMP_CWORD -eq 2 ]]; then
    words="latency throughput roofline breakdown serve"
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -o default -F _atom_complete atom
