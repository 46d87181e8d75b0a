# SPDX-License-Identifier: Apache-2.0
# Without a tier; an empty variable is none; the option wins over the variable.
exec 2>&1
breakwater ls
echo "exit $?"
BREAKWATER_REMOTE= breakwater ls
echo "exit $?"
breakwater doctor
echo "exit $?"
BREAKWATER_REMOTE=file:///none breakwater ls --remote file:///x gpt | head -1
BREAKWATER_REMOTE=file:///x breakwater ls --remote file:///none
echo "exit $?"
breakwater ls --remote /x
echo "exit $?"
