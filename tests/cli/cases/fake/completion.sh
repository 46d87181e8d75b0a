# SPDX-License-Identifier: Apache-2.0
# Scripts that the shells take; what bash proposes.
for shell in bash zsh fish; do breakwater completion $shell > $shell; echo "exit $?"; done
bash -n bash && echo bash takes it
if command -v zsh > /dev/null; then zsh -n zsh || echo zsh refuses it; fi
if command -v fish > /dev/null; then fish -n fish || echo fish refuses it; fi
grep -c . zsh fish
source ./bash
compopt() { :; } # works in completions only
propose() { COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _breakwater; echo "${COMPREPLY[*]}"; }
propose breakwater p
propose breakwater ls --j
propose breakwater prune gpt --keep-
propose breakwater help do
propose breakwater completion ''
propose breakwater ls --remote x
mkdir folder; touch file
propose breakwater export gpt --to f
propose breakwater import f
propose breakwater ls f
cat bash
